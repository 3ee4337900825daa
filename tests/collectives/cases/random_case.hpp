#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/communicator.hpp"

namespace weft::test {

/// One of Communicator's functions that move data.
enum class Kind : std::uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  reduce_scatter_v,
  scan,
  exscan,
  all_gather,
  all_gather_v,
  broadcast,
  gather,
  gather_v,
  scatter,
  scatter_v,
  all_to_all,
  all_to_all_v,
  send_recv,  ///< every rank to another (or to itself)
  message,    ///< one send, one recv
};
inline constexpr int kKinds = 17;

[[nodiscard]] constexpr bool reduces(Kind kind) noexcept {
  return kind <= Kind::exscan;
}

/// Where a rank's buffers lie.
enum class Memory : std::uint8_t {
  own,        ///< private
  symmetric,  ///< symmetric, from its start on
  shifted,    ///< symmetric, behind the same number of elements on every rank
  scattered,  ///< symmetric, behind another number of elements on every rank
  mixed,      ///< private on some ranks, symmetric on others
  fresh,      ///< symmetric, allocated for this call
};
inline constexpr int kMemories = 6;

/// What contributions are made of.
enum class Values : std::uint8_t {
  whole,     ///< small whole numbers: sums are exact in any order
  everyday,  ///< floats of magnitude up to 4, integers of any
  special,   ///< with infinities, NaN, subnormal numbers and signed zeros among them
};

using Counts = std::vector<std::size_t>;

/// One call of every rank, equal on all of them.
struct Case {
  std::uint64_t seed = 0;  ///< of the contributions, and of choices that differ between ranks
  int ranks = 1;
  Kind kind = Kind::all_reduce;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t user_bytes = 0;  ///< ReduceOp::user: an element's, a multiple of 8
  std::size_t count = 0;       ///< elements of one rank's part; of the buffer where there are no parts
  int root = 0;
  bool in_place = false;
  Memory memory = Memory::own;
  Values values = Values::whole;
  std::vector<Counts> matrix;  ///< unequal parts: elements from one rank to another; row 0 where there is one division
  bool gaps = false;           ///< unequal parts: with offsets, out of order and apart
  std::vector<int> receivers;  ///< send_recv: of each rank's message, a permutation

  [[nodiscard]] Reduction how(int rank) const;
  [[nodiscard]] std::vector<double> scales() const;  ///< premul_sum: of the ranks
  /// "all_reduce of 7 × f32, sum, 3 ranks, in place, …"
  [[nodiscard]] std::string describe() const;
};

/// Case `number` of the run that `seed` stands for.
[[nodiscard]] Case make_case(std::uint64_t seed, std::uint64_t number, int ranks);
/// The same of the kind, data type, operator and root of `like`, as calls are that can be merged.
[[nodiscard]] Case make_similar_case(std::uint64_t seed, std::uint64_t number, Case const& like);

/// The function behind ReduceOp::user: elements are compositions of maps x → factor·x + offset (mod 2^32), two words
/// each. Associative, does not commute, exact.
void compose_maps(void* accumulator, void const* next, std::size_t bytes);

}  // namespace weft::test
