#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data_type.hpp"
#include "weft/parts.hpp"
#include "weft/reduction.hpp"

namespace weft {

/// What ranks must agree on before data moves. The numeric values are exchanged between ranks.
enum class Operation : std::uint8_t {
  barrier,
  broadcast,
  all_gather,
  reduce_scatter,
  all_reduce,
  allocate,
  reduce,
  gather,
  scatter,
  all_to_all,
  scan,
  exscan,
  all_gather_v,
  reduce_scatter_v,
  gather_v,
  scatter_v,
  all_to_all_v,
  send,
  receive,
  send_receive,
};

[[nodiscard]] std::string_view to_string(Operation operation) noexcept;

/// Between two ranks; the others are called by all.
[[nodiscard]] constexpr bool is_point_to_point(Operation operation) noexcept {
  return operation >= Operation::send;
}

/// The part of a call that must be equal on every rank.
struct Contract {
  /// Elements: of one rank's part, or of the whole buffer where there are no parts. Of all parts together for
  /// all_gather_v and reduce_scatter_v; 0 for the other operations with unequal parts, whose ranks need not know.
  std::uint64_t count = 0;
  std::uint32_t root = 0;  ///< all_gather_v and reduce_scatter_v: a fingerprint of the parts
  Operation operation = Operation::barrier;
  DataType dtype = DataType::u8;
  ReduceOp reduce = ReduceOp::sum;
  std::uint8_t variant = 0;  ///< of ReduceOp::user: a fingerprint of its name and element size
  /// Of calls that run as one: a fingerprint of their counts, whose sum is `count`, in 32 bits; 0: a call by itself.
  std::uint64_t pieces = 0;

  friend bool operator==(Contract const&, Contract const&) = default;
};

/// A contract in two words, as ranks tell it to one another. A fingerprint of pieces shares them with counts (its lower
/// 16 bits, which are not 0) and roots, which are ranks where there are pieces.
struct PackedContract {
  static constexpr unsigned kCountBits = 48;

  std::uint64_t count = 0;
  std::uint64_t rest = 0;

  explicit PackedContract(Contract const& contract) noexcept
      : count(contract.count | (contract.pieces << kCountBits)),
        rest(std::uint64_t{contract.root} | (contract.pieces & 0xffff0000U) |
             (static_cast<std::uint64_t>(contract.operation) << 32U) |
             (static_cast<std::uint64_t>(contract.dtype) << 40U) |
             (static_cast<std::uint64_t>(contract.reduce) << 48U) |
             (static_cast<std::uint64_t>(contract.variant) << 56U)) {}

  [[nodiscard]] Contract unpack() const noexcept {
    auto const low = count >> kCountBits;
    auto const root = static_cast<std::uint32_t>(rest);
    return {.count = count & ((std::uint64_t{1} << kCountBits) - 1),
            .root = low == 0 ? root : root & 0xffffU,
            .operation = static_cast<Operation>(rest >> 32U & 0xffU),
            .dtype = static_cast<DataType>(rest >> 40U & 0xffU),
            .reduce = static_cast<ReduceOp>(rest >> 48U & 0xffU),
            .variant = static_cast<std::uint8_t>(rest >> 56U),
            .pieces = low == 0 ? 0 : (low | (root & 0xffff0000U))};
  }
};

/// "all_reduce(1024 × f32, sum)"
[[nodiscard]] std::string describe(Contract const& contract);

/// Bytes [offset, offset + length) of a buffer.
struct ByteRange {
  std::size_t offset = 0;
  std::size_t length = 0;
};

/// One validated collective call, ready to run.
struct Call {
  Contract contract;
  std::uint64_t sequence = 0;  ///< this communicator's calls, from 1; point-to-point: this rank's, from 1
  void const* send = nullptr;
  void* recv = nullptr;
  Parts send_parts{};  ///< unequal parts
  Parts recv_parts{};
  std::size_t own_bytes = 0;                                  ///< gather_v: of send; scatter_v: of recv
  double scale = 1;                                           ///< premul_sum: of this rank's contribution
  UserFunction user{};                                        ///< ReduceOp::user: what combines
  std::shared_ptr<std::vector<std::size_t>> parts_storage{};  ///< of a call that outlives its caller's arrays
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point* met = nullptr;  ///< where to note when every rank had come; null: nowhere
  bool on_stream = false;                                ///< runs on a communication thread, beside computation

  [[nodiscard]] std::size_t bytes() const noexcept { return contract.count * size_of(contract.dtype); }
  /// Bytes that are reduced as one and may not be split: an element, whoever defines it.
  [[nodiscard]] std::size_t grain() const noexcept {
    return user.element_bytes != 0 ? user.element_bytes : size_of(contract.dtype);
  }
  /// What of `bytes`, a multiple of every data type's size, is whole grains.
  [[nodiscard]] std::size_t whole_grains(std::size_t bytes) const noexcept {
    return user.element_bytes == 0 ? bytes : bytes / user.element_bytes * user.element_bytes;
  }
  [[nodiscard]] bool is_root(int rank) const noexcept { return contract.root == static_cast<std::uint32_t>(rank); }

  /// Copies the parts' arrays into the call, which then no longer needs the caller's.
  void own_parts();

  /// Where rank `rank`'s part of a buffer lies that is divided by `parts`, or equally when they are empty.
  [[nodiscard]] ByteRange part(Parts const& parts, int rank) const noexcept;
};

/// "all_reduce(1024 × f32, sum), call 17"; "recv(7 × f32, from rank 2), point-to-point call 3"
[[nodiscard]] std::string describe(Call const& call);

}  // namespace weft
