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

/// The calls of a Group, as they come in. Calls of one kind merge, whatever came between them. What merges must follow
/// from what ranks have in common: kinds and lengths, in their order.
class OpenGroup final : public WorkLauncher, public std::enable_shared_from_this<OpenGroup> {
 public:
  /// `expected`: about how many calls will come.
  [[nodiscard]] static std::shared_ptr<OpenGroup> create(CollectiveOptions const& options, MergeLimits const& limits,
                                                         int rank, int ranks, std::size_t expected);

  /// Both return the group's Work.
  Work add(Call&& call, MergedCall::Run run, CollectiveOptions const& how);
  /// Messages; `call` is for the time limit and reports. Those to other ranks are to be numbered at the end.
  Work add(Call const& call, std::optional<Message> const& send, std::optional<Message> const& recv);

  /// The short way for what most calls of a group are, one more like the last one: takes the call if that is evident
  /// and so is that its arguments are good; false: it is to be checked and added as any other. all_reduce,
  /// reduce_scatter and all_gather, whose `op` is its contract's, sum.
  [[nodiscard]] bool extend(Operation operation, ConstBufferView const& send, BufferView const& recv, ReduceOp op,
                            CollectiveOptions const& how);

  /// Where the buffers of its calls are: they are all of one device.
  [[nodiscard]] Device device() const noexcept { return device_.value_or(Device{}); }
  [[nodiscard]] bool has_calls_on(Device device) const noexcept { return device_ == device; }
  /// False when `device` is another one than that of the calls so far.
  [[nodiscard]] bool is_of(Device device) noexcept {
    if (!device_) device_ = device;
    return *device_ == device;
  }
  /// Of a group on a device: its collectives, each by itself.
  [[nodiscard]] std::vector<Call>& device_calls() noexcept { return device_calls_; }

  /// No more calls come; they are about to be launched.
  void close() noexcept;
  bool launch(Work::State const&) noexcept override { return closed_.load(std::memory_order_acquire); }

  /// Why what the rank sends to itself cannot all be received, in the order of the calls; empty: it can.
  [[nodiscard]] std::string own_messages_differ() const;
  /// Why its calls on host memory are not independent; empty: they are.
  [[nodiscard]] std::string dependence() { return buffers_.dependence(calls_); }
  [[nodiscard]] std::size_t size() const noexcept { return buffers_.calls(); }  ///< its calls on host memory
  void copy_own_messages() const noexcept;

  [[nodiscard]] CollectiveOptions const& options() const noexcept { return options_; }
  [[nodiscard]] std::vector<MergedCall>& calls() noexcept { return calls_; }
  [[nodiscard]] std::vector<Message>& messages() noexcept { return messages_; }  ///< between ranks; on a device, all
  [[nodiscard]] Call& transfer() noexcept { return transfer_; }                  ///< of the messages
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
  MergedCall* last_ = nullptr;  // open, and joined by the last call, which had no options of its own
  std::vector<Message> messages_;
  std::vector<Message> own_sends_;  // to the rank itself
  std::vector<Message> own_recvs_;
  Call transfer_;
  std::atomic<bool> closed_{false};
};

}  // namespace weft
