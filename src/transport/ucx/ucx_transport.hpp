#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "transport/transport.hpp"
#include "transport/ucx/channel.hpp"

namespace weft::ucx {

/// A Transport of tagged messages over UCX, which go straight from and to callers' memory.
class UcxTransport final : public Transport {
 public:
  /// The channel must outlive it, and must carry no other messages of Tag::Kind::step.
  explicit UcxTransport(Channel& channel) : channel_(channel) {}
  ~UcxTransport() override;

  /// Sets what its waits are for from now on: their time limit, and how errors describe them.
  void set_purpose(Purpose purpose) { purpose_ = std::move(purpose); }
  [[nodiscard]] Purpose const& purpose() const noexcept { return purpose_; }

  [[nodiscard]] int rank() const noexcept override { return channel_.rank(); }
  [[nodiscard]] int size() const noexcept override { return channel_.size(); }
  [[nodiscard]] Request start_send(int to, std::span<std::byte const> bytes) override;
  [[nodiscard]] Request start_recv(int from, std::span<std::byte> bytes) override;
  void wait(Request& request) override;
  void fail(ErrorCode code, std::string const& message) noexcept override;

 private:
  struct Slot {
    Pending operation;
    std::size_t expected = 0;  // bytes of a receive
    bool receives = false;
    bool used = false;
  };

  void check_peer(int peer) const;
  /// Where there is a failure, abandons everything that is under way, whose memory the caller may then free, and
  /// throws.
  void throw_if_failed();
  [[nodiscard]] std::size_t take_slot();
  void free_slot(std::size_t index) noexcept;
  [[nodiscard]] Request started(std::size_t index);
  void check(Slot const& slot, bool fits);
  /// Ends everything that is under way, for good.
  void abandon() noexcept;

  Channel& channel_;
  Purpose purpose_;
  std::deque<Slot> slots_;  // with stable addresses
  std::vector<std::size_t> free_;
};

}  // namespace weft::ucx
