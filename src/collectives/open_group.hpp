#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/group_buffers.hpp"
#include "collectives/merged_call.hpp"
#include "collectives/message.hpp"
#include "runtime/work_state.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Collects the calls of a Group. Calls of one kind merge, whatever calls came between them. Which calls merge must
/// follow only from what is equal on all ranks: the kinds and lengths of the calls, in their order.
class OpenGroup final : public WorkLauncher, public std::enable_shared_from_this<OpenGroup> {
 public:
  /// `expected`: about how many calls will come.
  [[nodiscard]] static std::shared_ptr<OpenGroup> create(CollectiveOptions const& options, MergeLimits const& limits,
                                                         int rank, int ranks, std::size_t expected);

  /// Both return the group's Work.
  Work add(Call&& call, MergedCall::Run run, CollectiveOptions const& how);
  /// Adds messages; `call` gives the time limit, and reports name it. Whoever ends the group numbers those to other
  /// ranks.
  Work add(Call const& call, std::optional<Message> const& send, std::optional<Message> const& recv);

  /// The short way for most calls of a group, which are like the one before. Adds the call if it clearly is, and has
  /// valid arguments, and returns true. False: nothing was done, and the call must be checked and added as any other.
  /// For all_reduce, reduce_scatter and all_gather; all_gather passes its contract's `op`, which is sum.
  [[nodiscard]] bool extend(Operation operation, ConstBufferView const& send, BufferView const& recv, ReduceOp op,
                            CollectiveOptions const& how);

  /// Where the buffers of its calls are: all on one device, or all on the host.
  [[nodiscard]] Device device() const noexcept { return device_.value_or(Device{}); }
  [[nodiscard]] bool has_calls_on(Device device) const noexcept { return device_ == device; }
  /// Whether a call on `device` may join: false where the calls so far are on another one. The first call decides.
  [[nodiscard]] bool is_of(Device device) noexcept {
    if (!device_) device_ = device;
    return *device_ == device;
  }
  /// The collectives of a group on a device, each by itself.
  [[nodiscard]] std::vector<Call>& device_calls() noexcept { return device_calls_; }

  /// No more calls come; the group is about to be launched.
  void close() noexcept;
  bool launch(Work::State const&) noexcept override { return closed_.load(std::memory_order_acquire); }

  /// Why the rank's sends to itself do not match its receives from itself, in the order of the calls; empty: they do.
  [[nodiscard]] std::string own_messages_differ() const;
  /// Why calls on host memory depend on one another; empty: they do not.
  [[nodiscard]] std::string dependence() { return buffers_.dependence(calls_); }
  [[nodiscard]] std::size_t size() const noexcept { return buffers_.calls(); }  ///< the number of calls on host memory
  void copy_own_messages() const noexcept;

  [[nodiscard]] CollectiveOptions const& options() const noexcept { return options_; }
  [[nodiscard]] std::vector<MergedCall>& calls() noexcept { return calls_; }
  [[nodiscard]] std::vector<Message>& messages() noexcept { return messages_; }  ///< to others; on a device, all
  [[nodiscard]] Call& transfer() noexcept { return transfer_; }                  ///< the call of the messages
  [[nodiscard]] std::shared_ptr<Work::State> const& state() const noexcept { return state_; }

 private:
  OpenGroup(CollectiveOptions const& options, MergeLimits const& limits, int rank, int ranks, std::size_t expected)
      : options_(options),
        limits_(limits),
        rank_(rank),
        ranks_(static_cast<std::size_t>(ranks)),
        expected_(expected),
        buffers_(rank, ranks) {}

  CollectiveOptions const options_;
  MergeLimits const limits_;
  int const rank_;
  std::size_t const ranks_;
  std::size_t const expected_;
  std::shared_ptr<Work::State> state_;
  std::optional<Device> device_;
  GroupBuffers buffers_;
  std::vector<Call> device_calls_;
  std::vector<MergedCall> calls_;
  MergedCall* last_ = nullptr;  // what the last call joined, if it is open and that call had no options of its own
  std::vector<Message> messages_;
  std::vector<Message> own_sends_;  // to the rank itself
  std::vector<Message> own_recvs_;
  Call transfer_;
  std::atomic<bool> closed_{false};
};

}  // namespace weft
