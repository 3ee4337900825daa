#pragma once

#include <span>
#include <string_view>

#include "collectives/call.hpp"
#include "collectives/p2p/context.hpp"
#include "collectives/p2p/cost.hpp"

namespace weft::p2p {

/// For which numbers of ranks an algorithm's cost formula is exactly what a call with equal parts takes, to the last
/// byte. Elsewhere it is an upper bound.
enum class Exact : std::uint8_t { always, powers_of_two, never };

/// One way to run an operation. The file OPERATION_NAME.cpp says in which steps, and with how many bytes on the wire.
struct Algorithm {
  Operation operation;  ///< all_gather for all_gather_v, and so on; scan for exscan
  std::string_view name;
  void (*run)(Context& context, Call const& call);
  double (*cost_s)(CostQuestion const& question);
  Exact exact = Exact::always;
  bool keeps_order = true;    ///< combines in rank order, as operators need that do not commute
  bool bitwise = false;       ///< combines like kernels::reduce of all contributions: the bits of the shm back end
  bool unequal_parts = true;  ///< takes …_v calls
};

/// All algorithms; those of one operation stand together.
[[nodiscard]] std::span<Algorithm const> algorithms() noexcept;
[[nodiscard]] bool can_run(Algorithm const& algorithm, Call const& call) noexcept;
/// Null where there is none.
[[nodiscard]] Algorithm const* find_algorithm(Operation operation, std::string_view name) noexcept;

struct Choice {
  Algorithm const& algorithm;
  double seconds;  ///< by its formula; 0 for one rank
};
/// Times by formula that differ by less than this part count as equal.
inline constexpr double kAlike = 0.05;
/// Chooses the algorithm that is the fastest by its formula; `network.bytes` is overwritten by the call's. Among those
/// within kAlike of it, takes the one with the least latencies, because a step takes longer than α where ranks sleep
/// meanwhile. `same_bits`: for reductions whose result depends on the order, considers only algorithms whose bits do
/// not depend on where an element lies, so that calls may be cut or merged anywhere.
[[nodiscard]] Choice choose(Call const& call, CostQuestion network, bool same_bits);

/// The error text of a rank that has no memory left for `call`.
[[nodiscard]] std::string describe_exhaustion(int rank, Call const& call);

/// Runs a call that has been checked. Every rank passes an equal contract, and the same algorithm and tuning. The
/// in-place rules are those of weft/communicator.hpp. @throws Error{unsupported} where the algorithm cannot run the
/// call, before anything is sent; whatever the transport throws; std::bad_alloc, after all ranks have been told of it.
void run(Algorithm const& algorithm, Transport& transport, Call const& call, Tuning const& tuning = {});

}  // namespace weft::p2p
