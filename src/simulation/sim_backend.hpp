#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/backend.hpp"

namespace weft::sim {

/// Calls of up to this many bytes carry their bytes even where a simulation moves only sizes: ranks use small calls to
/// agree on things, and what they agree on has to be real.
inline constexpr std::size_t kCarriedBytes = std::size_t{64} << 10;

/// The back end of a simulated communicator. It passes each call on: to the back end that carries bytes, or to the one
/// that moves only sizes; messages between two ranks go to a back end of all ranks.
class SimBackend final : public Backend {
 public:
  /// `sizes`: null where every call carries its bytes. This is `rank` of `size` ranks.
  SimBackend(std::unique_ptr<Backend> data, std::unique_ptr<Backend> sizes, std::unique_ptr<Backend> messages, int rank,
             int size)
      : data_(std::move(data)), sizes_(std::move(sizes)), messages_(std::move(messages)), rank_(rank), size_(size) {}

  void all_reduce(Call const& call) override { of(call).all_reduce(call); }
  void reduce_scatter(Call const& call) override { of(call).reduce_scatter(call); }
  void all_gather(Call const& call) override { of(call).all_gather(call); }
  void broadcast(Call const& call) override { of(call).broadcast(call); }
  void reduce(Call const& call) override { of(call).reduce(call); }
  void gather(Call const& call) override { of(call).gather(call); }
  void scatter(Call const& call) override { of(call).scatter(call); }
  void all_to_all(Call const& call) override { of(call).all_to_all(call); }
  void scan(Call const& call) override { of(call).scan(call); }
  void barrier(Call const& call) override { data_->barrier(call); }
  void merged(MergedCall const& calls) override;
  [[nodiscard]] MergeLimits merge_limits() const noexcept override { return data_->merge_limits(); }
  void transfer(Call const& call, std::span<weft::Message const> messages) override {
    messages_->transfer(call, messages);
  }
  std::unique_ptr<Transit> begin(Call const& call, weft::Message const& message) override {
    return messages_->begin(call, message);
  }
  void await(Call const& call, std::function<bool()> const& ready) override { messages_->await(call, ready); }
  void throw_if_failed() override { data_->throw_if_failed(); }
  [[nodiscard]] PeerState peer_state(int rank) override { return messages_->peer_state(rank); }
  std::shared_ptr<void> allocate(Call const& call) override { return of(call).allocate(call); }
  void abort(std::string const& reason) noexcept override { data_->abort(reason); }
  void fail(ErrorCode code, std::string const& reason) noexcept override { data_->fail(code, reason); }

 private:
  [[nodiscard]] Backend& of(Call const& call) const noexcept;

  std::unique_ptr<Backend> data_;
  std::unique_ptr<Backend> sizes_;
  std::unique_ptr<Backend> messages_;
  int rank_;
  int size_;
  std::vector<std::byte> flat_;  // the buffers of merged calls, side by side
};

}  // namespace weft::sim
