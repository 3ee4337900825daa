#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/backend.hpp"
#include "collectives/p2p/algorithms.hpp"
#include "transport/transport.hpp"

namespace weft::p2p {

/// What a back end over transports is told about the network. Equal on all ranks.
struct Network {
  double alpha_s = 5e-6;  ///< for a message between any two ranks, as formulas count
  double beta_s_per_byte = 1 / 25e9;
  double gamma_s_per_byte = 0;
  bool bitwise = false;  ///< combine in rank order wherever results depend on it
  Tuning tuning{};
};

/// This rank's transports, none of which sees the messages of another.
struct Ends {
  std::unique_ptr<Transport> announcements;  ///< always carries data; null: calls are known to agree
  std::unique_ptr<Transport> data;           ///< of collectives; where it moves sizes only, buffers are not touched
  std::unique_ptr<Transport> messages;       ///< null: there are none
  /// Gives the memory for allocate(), by the number of the call; may be the same for all ranks. Empty: each has its
  /// own.
  std::function<std::shared_ptr<void>(std::uint64_t call, std::size_t bytes)> memory{};
};

/// Collectives over any Transport. First comes an announcement in ⌈log2 n⌉ steps, in which ranks compare their calls;
/// then the algorithm of collectives/p2p runs that is the fastest by its formula. For the simulator, where nothing else
/// can be waited for. Transports that can be polled have back ends of their own, which tell more about who is missing.
///
/// Messages from one rank to another begin in the order in which they were issued, on one stream at a time. There are
/// no messengers and no survivors.
class P2pBackend final : public Backend {
 public:
  using OnFailure = std::function<void(ErrorCode, std::string const&)>;
  /// `on_failure` tells all ranks; later calls here then throw.
  P2pBackend(Ends ends, Network const& network, OnFailure on_failure);

  void all_reduce(Call const& call) override { run(call); }
  void reduce_scatter(Call const& call) override { run(call); }
  void all_gather(Call const& call) override { run(call); }
  void broadcast(Call const& call) override { run(call); }
  void reduce(Call const& call) override { run(call); }
  void gather(Call const& call) override { run(call); }
  void scatter(Call const& call) override { run(call); }
  void all_to_all(Call const& call) override { run(call); }
  void scan(Call const& call) override { run(call); }
  void barrier(Call const& call) override { announce(call); }
  void merged(MergedCall const& calls) override;
  [[nodiscard]] MergeLimits merge_limits() const noexcept override {
    return {std::size_t{32} << 10, std::size_t{1} << 20};
  }
  void transfer(Call const& call, std::span<Message const> messages) override;
  std::unique_ptr<Transit> begin(Call const& call, Message const& message) override;
  void await(Call const& call, std::function<bool()> const& ready) override;
  void throw_if_failed() override {}
  [[nodiscard]] PeerState peer_state(int /*rank*/) override { return PeerState::present; }
  std::shared_ptr<void> allocate(Call const& call) override;
  void abort(std::string const& reason) noexcept override { fail(ErrorCode::aborted, reason); }
  void fail(ErrorCode code, std::string const& reason) noexcept override;

 private:
  void run(Call const& call);
  /// @throws Error{mismatch} on every rank where calls differ; nothing was moved.
  void announce(Call const& call);
  [[nodiscard]] Algorithm const& choose(Call const& call) const;

  Ends ends_;
  Network network_;
  OnFailure on_failure_;
  std::vector<std::byte> flat_;  // buffers of merged calls, side by side
};

}  // namespace weft::p2p
