#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/route.hpp"
#include "weft/data_type.hpp"
#include "weft/device.hpp"
#include "weft/parts.hpp"
#include "weft/reduction.hpp"
#include "weft/wire_format.hpp"

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

/// Whether calls of this kind may have a tag: no rank has a part of its own in them.
[[nodiscard]] constexpr bool may_have_tag(Operation operation) noexcept {
  switch (operation) {
    case Operation::barrier:
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::all_reduce:
    case Operation::all_to_all:
    case Operation::scan:
    case Operation::exscan:
    case Operation::all_gather_v:
    case Operation::reduce_scatter_v:
    case Operation::all_to_all_v: return true;
    default: return false;
  }
}

/// The tag of the all_gathers in which ranks agree on a new communicator, or on a device: reports say so.
inline constexpr std::uint32_t kMakingCommunicator = 0x77656674;

/// Whether each rank's part has a length of its own.
[[nodiscard]] constexpr bool has_unequal_parts(Operation operation) noexcept {
  return operation >= Operation::all_gather_v && operation <= Operation::all_to_all_v;
}

/// all_gather_v and reduce_scatter_v tell each other a fingerprint of their parts where others have a root.
[[nodiscard]] constexpr bool has_parts_in_common(Operation operation) noexcept {
  return operation == Operation::all_gather_v || operation == Operation::reduce_scatter_v;
}

/// The part of a call that must be equal on every rank.
struct Contract {
  /// Elements: of one rank's part, or of the whole buffer where there are no parts. Of all parts together for
  /// all_gather_v and reduce_scatter_v; 0 for the other operations with unequal parts, whose ranks need not know.
  std::uint64_t count = 0;
  /// Calls that have none: their tag. all_gather_v and reduce_scatter_v: a fingerprint of parts and tag.
  std::uint32_t root = 0;
  Operation operation = Operation::barrier;
  DataType dtype = DataType::u8;
  ReduceOp reduce = ReduceOp::sum;
  std::uint8_t variant = 0;  ///< of ReduceOp::user: a fingerprint of its name and element size
  /// What calls that run as one were by themselves.
  struct Group {
    static constexpr std::size_t kMostCalls = 65535;

    std::uint64_t elements = 0;  ///< the sum of their counts, without the gaps of a flat copy; below 2^40
    std::uint32_t sizes = 0;     ///< a fingerprint of their counts, in order
    std::uint16_t calls = 0;     ///< 0: a call by itself

    friend bool operator==(Group const&, Group const&) = default;
  } group{};

  /// 0: none, or one that only a fingerprint knows.
  [[nodiscard]] std::uint32_t tag() const noexcept {
    return may_have_tag(operation) && !has_parts_in_common(operation) ? root : 0;
  }

  friend bool operator==(Contract const&, Contract const&) = default;
};

/// A contract in two words, as ranks tell it to one another. They are not as they lie in memory, so that members are
/// loaded one by one: a word that was just written piece by piece can be read only when all earlier stores have left
/// this core, those to lines of a peer among them. What is told of a group takes the place of the count and
/// of bits that groups do not need: their roots are ranks, and nothing in them is user-defined.
struct PackedContract {
  static constexpr unsigned kCountBits = 48;

  std::uint64_t count = 0;
  std::uint64_t rest = 0;

  explicit PackedContract(Contract const& contract) noexcept
      : count(contract.count),
        rest(std::uint64_t{contract.root} | (static_cast<std::uint64_t>(contract.operation) << 40U) |
             (static_cast<std::uint64_t>(contract.dtype) << 32U) |
             (static_cast<std::uint64_t>(contract.reduce) << 48U) |
             (static_cast<std::uint64_t>(contract.variant) << 56U)) {
    if (contract.group.calls != 0) [[unlikely]]
      pack(contract.group);
  }

  PackedContract() = default;
  PackedContract(std::uint64_t first, std::uint64_t second) noexcept : count(first), rest(second) {}

  [[nodiscard]] Contract unpack() const noexcept;
  [[nodiscard]] bool operator==(PackedContract const&) const = default;

 private:
  void pack(Contract::Group const& group) noexcept;
};

/// "all_reduce(1024 × f32, sum)"; "group of 3 all_reduce calls (4096 × f32 in all, sum, sizes 1f2e3d4c)", where equal
/// fingerprints say that the sizes are the same, in the same order.
[[nodiscard]] std::string describe(Contract const& contract);
/// Of contracts that differ: "call 7 differs between ranks: rank 0 made …, rank 2 made …; make the calls equal".
[[nodiscard]] std::string describe_mismatch(std::uint64_t sequence, int rank, Contract const& mine, int peer,
                                            Contract const& theirs);

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
  std::shared_ptr<WireFeedback> feedback{};                   ///< null: none
  std::shared_ptr<std::vector<std::size_t>> parts_storage{};  ///< of a call that outlives its caller's arrays
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point* met = nullptr;  ///< where to note when every rank had come; null: nowhere
  mutable Route route{};                                 ///< what the backend tells of how it ran
  mutable bool brief = false;    ///< the backend: neither its work nor a wait took longer than a coarse clock tells
  Device device{};               ///< where its buffers are
  bool on_stream = false;        ///< runs on a communication thread, beside computation
  bool waited_for = false;       ///< from a stream, but run by the thread that made it, which would only wait
  Call const* within = nullptr;  ///< the program's call that this one is a step of, for reports; null: it is one itself

  /// As the program counts its calls.
  [[nodiscard]] std::uint64_t number() const noexcept { return within != nullptr ? within->sequence : sequence; }
  [[nodiscard]] bool is_on_host() const noexcept { return device.type == DeviceType::cpu; }
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

/// "all_reduce(1024 × f32, sum), call 17"; "recv(7 × f32, from rank 2), point-to-point call 3"; of a group without its
/// fingerprint; of a step "all_reduce(1024 × f32, sum), call 17, in its reduce_scatter(512 × f32, sum)"
[[nodiscard]] std::string describe(Call const& call);

}  // namespace weft
