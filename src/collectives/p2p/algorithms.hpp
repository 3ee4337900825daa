#pragma once

#include <span>
#include <string_view>

#include "collectives/call.hpp"
#include "collectives/p2p/context.hpp"
#include "collectives/p2p/cost.hpp"

namespace weft::p2p {

/// When a cost formula is what a call takes, to the last byte, where parts are equal; elsewhere it is no less.
enum class Exact : std::uint8_t { always, powers_of_two, never };

/// One way to run an operation; the file of its name says in which steps and with how many bytes on the wire.
struct Algorithm {
  Operation operation;  ///< all_gather for all_gather_v, and so on; scan for exscan
  std::string_view name;
  void (*run)(Context& context, Call const& call);
  double (*cost_s)(CostQuestion const& question);
  Exact exact = Exact::always;
  bool keeps_order = true;    ///< combines in rank order: fit for operators that do not commute
  bool bitwise = false;       ///< combines like kernels::reduce of all contributions: the bits of the shm back end
  bool unequal_parts = true;  ///< takes …_v calls
};

/// All of them; those of one operation stand together.
[[nodiscard]] std::span<Algorithm const> algorithms() noexcept;
[[nodiscard]] bool can_run(Algorithm const& algorithm, Call const& call) noexcept;
/// Null where there is none.
[[nodiscard]] Algorithm const* find_algorithm(Operation operation, std::string_view name) noexcept;

struct Choice {
  Algorithm const& algorithm;
  double seconds;  ///< by its formula; 0 for one rank
};
/// Formulas that differ by less say nothing.
inline constexpr double kAlike = 0.05;
/// The fastest by its formula, where `network.bytes` is overwritten by the call's; of those within kAlike of it the one
/// with the least latencies: where ranks sleep meanwhile, a step takes longer than α. `same_bits`: of a reduction whose
/// result depends on the order only those whose bits do not depend on where an element lies, so that calls may be cut
/// or merged anywhere.
[[nodiscard]] Choice choose(Call const& call, CostQuestion network, bool same_bits);

/// Runs a checked call. Every rank passes an equal contract, the same algorithm and tuning. In-place rules are
/// weft/communicator.hpp's. @throws Error{unsupported} where the algorithm cannot, before anything is sent; whatever
/// the transport throws.
void run(Algorithm const& algorithm, Transport& transport, Call const& call, Tuning const& tuning = {});

}  // namespace weft::p2p
