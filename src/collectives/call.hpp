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

/// The kinds of calls. Ranks exchange the numeric values to check that all make the same call.
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

/// Whether the operation is between two ranks; all other operations are called by every rank.
[[nodiscard]] constexpr bool is_point_to_point(Operation operation) noexcept {
  return operation >= Operation::send;
}

/// Whether calls of this kind may have a tag: collectives in which no rank has a role of its own, such as a root.
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

/// The tag of the library's own all_gathers, in which ranks agree on a new communicator or on a device. Reports say so.
inline constexpr std::uint32_t kMakingCommunicator = 0x77656674;

/// Whether each rank's part has a length of its own.
[[nodiscard]] constexpr bool has_unequal_parts(Operation operation) noexcept {
  return operation >= Operation::all_gather_v && operation <= Operation::all_to_all_v;
}

/// Whether all ranks are given the same parts: all_gather_v and reduce_scatter_v. Their contracts hold a fingerprint of
/// the parts where other operations have a root.
[[nodiscard]] constexpr bool has_parts_in_common(Operation operation) noexcept {
  return operation == Operation::all_gather_v || operation == Operation::reduce_scatter_v;
}

/// The part of a call that must be equal on every rank.
struct Contract {
  /// Elements of one rank's part, or of the whole buffer where there are no parts. all_gather_v and reduce_scatter_v:
  /// of all parts together. Other operations with unequal parts: 0, since no rank needs to know them all.
  std::uint64_t count = 0;
  /// Operations without a root: the tag. all_gather_v and reduce_scatter_v: a fingerprint of parts and tag.
  std::uint32_t root = 0;
  Operation operation = Operation::barrier;
  DataType dtype = DataType::u8;
  ReduceOp reduce = ReduceOp::sum;
  std::uint8_t variant = 0;  ///< of ReduceOp::user: a fingerprint of its name and element size
  /// Calls that run as one merged call: what they were by themselves.
  struct Group {
    static constexpr std::size_t kMostCalls = 65535;

    std::uint64_t elements = 0;  ///< the sum of their counts, without the gaps of a flat copy; below 2^40
    std::uint32_t sizes = 0;     ///< a fingerprint of their counts, in order
    std::uint16_t calls = 0;     ///< 0: a call by itself

    friend bool operator==(Group const&, Group const&) = default;
  } group{};

  /// The call's tag; 0: it has none, or only the fingerprint in `root` covers it.
  [[nodiscard]] std::uint32_t tag() const noexcept {
    return may_have_tag(operation) && !has_parts_in_common(operation) ? root : 0;
  }

  friend bool operator==(Contract const&, Contract const&) = default;
};

/// A contract in two words, as ranks send it to one another.
///
/// The bits are in another order than in memory, so that members are loaded one by one. A plain copy would read a whole
/// word that was just written piece by piece, and that load waits until all earlier stores have left this core, those
/// to a peer's cache lines among them.
///
/// A group's description takes the place of the count, and of bits that groups do not need: their roots are ranks, and
/// none of their reductions is user-defined.
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

/// "all_reduce(1024 × f32, sum)", or "group of 3 all_reduce calls (4096 × f32 in all, sum, sizes 1f2e3d4c)". Groups
/// whose fingerprints (`sizes`) are equal have the same sizes in the same order.
[[nodiscard]] std::string describe(Contract const& contract);
/// For two contracts that differ: "call 7 differs between ranks: rank 0 made …, rank 2 made …; make the calls equal".
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
  std::uint64_t sequence = 0;  ///< number among this communicator's calls (point-to-point: this rank's), from 1
  void const* send = nullptr;
  void* recv = nullptr;
  Parts send_parts{};  ///< operations with unequal parts; else empty
  Parts recv_parts{};
  std::size_t own_bytes = 0;                                  ///< size of send (gather_v) or of recv (scatter_v)
  double scale = 1;                                           ///< premul_sum: of this rank's contribution
  UserFunction user{};                                        ///< ReduceOp::user: the function that combines
  std::shared_ptr<WireFeedback> feedback{};                   ///< null: none
  std::shared_ptr<std::vector<std::size_t>> parts_storage{};  ///< after own_parts(): the parts' counts and offsets
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point* met = nullptr;  ///< where to note when every rank had come; null: nowhere
  mutable Route route{};                                 ///< set by the back end: how the bytes went
  mutable bool brief = false;    ///< set by the back end: it took less time than a coarse clock can measure
  Device device{};               ///< where its buffers are
  bool on_stream = false;        ///< runs on a communication thread, beside computation
  bool waited_for = false;       ///< from a stream, but run by the thread that made it, which would only wait
  Call const* within = nullptr;  ///< for reports: the program's call that this is a step of; null: the program's own

  /// The number of the program's call, also for a step of one.
  [[nodiscard]] std::uint64_t number() const noexcept { return within != nullptr ? within->sequence : sequence; }
  [[nodiscard]] bool is_on_host() const noexcept { return device.type == DeviceType::cpu; }
  [[nodiscard]] std::size_t bytes() const noexcept { return contract.count * size_of(contract.dtype); }
  /// The fewest bytes that are reduced as one and may not be split: an element, of the data type or of `user`.
  [[nodiscard]] std::size_t grain() const noexcept {
    return user.element_bytes != 0 ? user.element_bytes : size_of(contract.dtype);
  }
  /// `bytes`, a multiple of every data type's size, rounded down to whole grains.
  [[nodiscard]] std::size_t whole_grains(std::size_t bytes) const noexcept {
    return user.element_bytes == 0 ? bytes : bytes / user.element_bytes * user.element_bytes;
  }
  [[nodiscard]] bool is_root(int rank) const noexcept { return contract.root == static_cast<std::uint32_t>(rank); }

  /// Copies the parts' arrays into the call, which then may outlive the caller's.
  void own_parts();

  /// Where the part of rank `rank` lies in a buffer that `parts` divide; empty parts divide it equally.
  [[nodiscard]] ByteRange part(Parts const& parts, int rank) const noexcept;
};

/// "all_reduce(1024 × f32, sum), call 17"; "recv(7 × f32, from rank 2), point-to-point call 3"; a step:
/// "all_reduce(1024 × f32, sum), call 17, in its reduce_scatter(512 × f32, sum)". A group is described without its
/// fingerprint.
[[nodiscard]] std::string describe(Call const& call);

}  // namespace weft
