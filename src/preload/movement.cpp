// MPI_Barrier, MPI_Bcast, MPI_Gather(v), MPI_Scatter(v), MPI_Allgather(v), MPI_Alltoall(v). MPI makes equal on all
// ranks how many bytes go from which rank to which, not the types that say where they lie: so Weft is told bytes.
#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "preload/intercept.hpp"
#include "preload/packing.hpp"
#include "weft/error.hpp"

namespace weft::preload {
namespace {

/// Parts of this size and more are left to MPI, which copies them once, out of the sender's private memory; Weft would
/// copy them twice.
constexpr std::size_t kAlltoallBytesForMpi = std::size_t{2} << 20;

ConstBufferView bytes_of(Outgoing const& from) {
  return {from.data(), from.bytes(), DataType::u8};
}

BufferView bytes_of(Incoming const& to) {
  return {to.data(), to.bytes(), DataType::u8};
}

void* element(void* buffer, std::ptrdiff_t index, Layout const& layout) {
  return static_cast<std::byte*>(buffer) + index * layout.extent;
}

/// A count and a type as callers pass them for one side of a call.
class Side {
 public:
  Side(Library const& library, int count, MPI_Datatype type)
      : layout_(count < 0 ? std::nullopt : library.types().layout(type, library.scratch())), count_(count) {}

  [[nodiscard]] bool valid() const noexcept { return layout_.has_value(); }
  [[nodiscard]] Layout const& layout() const noexcept { return *layout_; }
  [[nodiscard]] std::size_t count() const noexcept { return static_cast<std::size_t>(count_); }
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * layout_->bytes; }
  [[nodiscard]] bool valid_with(void const* buffer) const noexcept {
    return valid() && buffer != MPI_IN_PLACE && usable(buffer, bytes(), *layout_);
  }

 private:
  std::optional<Layout> layout_;
  int count_;
};

/// What can be told from one side's arguments alone, before ranks come together.
Outcome plausible(void const* buffer, int count, MPI_Datatype type) {
  return buffer != MPI_IN_PLACE && (count < 0 || type == MPI_DATATYPE_NULL) ? Outcome::invalid : Outcome::served;
}

bool is_rank(int root, Communicator const& ranks) {
  return root >= 0 && root < ranks.size();
}

constexpr auto kNoCheck = [](Library const&) { return Outcome::served; };

/// Throws where the two sides of this rank's call do not fit together. The other ranks know nothing of that and, with
/// MPI, would wait here. So the call was made with one of the sizes: it fails on all ranks where that is not theirs,
/// and otherwise afterwards on this one alone.
[[noreturn]] void reject_own(std::size_t sent, std::size_t received) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("this rank sends itself {} bytes, where it receives {}", sent, received));
}

/// Makes an all_gather in which this rank's own part is as long as what it sends, not as what it receives; then throws.
void gather_own_size(Communicator& ranks, Outgoing const& from, Parts const& parts) {
  std::vector<std::size_t> counts(parts.counts.begin(), parts.counts.end());
  auto& own = counts[static_cast<std::size_t>(ranks.rank())];
  auto const received = std::exchange(own, from.bytes());
  std::vector<std::byte> unused(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  ranks.all_gather(bytes_of(from), {unused.data(), unused.size(), DataType::u8}, Parts{counts, {}});
  reject_own(from.bytes(), received);
}

Outcome serve_gather(Library const& library, Communicator& ranks, void const* send, Side const& sent, void* recv,
                     Side const& received, int root) {
  auto const is_root = ranks.rank() == root;
  auto const in_place = is_root && send == MPI_IN_PLACE;
  if (is_root && !received.valid_with(recv)) return Outcome::invalid;
  if (!in_place && !sent.valid_with(send)) return Outcome::invalid;
  if ((is_root ? received : sent).bytes() == 0) return Outcome::nothing_to_move;
  // The others' sides have to match what the root receives. What the root sends itself is left out where it does not
  // match.
  auto const differs = is_root && !in_place && sent.bytes() != received.bytes();
  auto const stays = in_place || differs;
  Incoming to;
  if (is_root) {
    auto const all = received.count() * static_cast<std::size_t>(ranks.size());
    to = Incoming(recv, all, received.layout(), library.scratch());
  }
  auto const& side = stays ? received : sent;
  auto const own = static_cast<std::ptrdiff_t>(ranks.rank()) * static_cast<std::ptrdiff_t>(received.count());
  Outgoing from(stays ? element(recv, own, received.layout()) : send, side.count(), side.layout(), library.scratch());
  if (!stays) from.keep_apart_from(to);
  ranks.gather(bytes_of(from), bytes_of(to), root);
  to.deliver();
  if (differs) reject_own(sent.bytes(), received.bytes());
  return Outcome::served;
}

Outcome serve_scatter(Library const& library, Communicator& ranks, void const* send, Side const& sent, void* recv,
                      Side const& received, int root) {
  auto const is_root = ranks.rank() == root;
  auto const in_place = is_root && recv == MPI_IN_PLACE;
  if (is_root && !sent.valid_with(send)) return Outcome::invalid;
  if (!in_place && !received.valid_with(recv)) return Outcome::invalid;
  if ((is_root ? sent : received).bytes() == 0) return Outcome::nothing_to_move;
  // The others' sides have to match what the root sends. Its own side is left out where it does not match.
  auto const differs = is_root && !in_place && sent.bytes() != received.bytes();
  Outgoing from;
  if (is_root) {
    auto const all = sent.count() * static_cast<std::size_t>(ranks.size());
    from = Outgoing(send, all, sent.layout(), library.scratch());
  }
  if (!in_place && !differs) {
    Incoming const to(recv, received.count(), received.layout(), library.scratch());
    from.keep_apart_from(to);
    ranks.scatter(bytes_of(from), bytes_of(to), root);
    to.deliver();
    return Outcome::served;
  }
  // The root keeps its part where it is: Weft moves it onto itself.
  auto* const own = const_cast<std::byte*>(from.data()) + static_cast<std::size_t>(root) * sent.bytes();
  ranks.scatter(bytes_of(from), weft::BufferView{own, sent.bytes(), DataType::u8}, root);
  if (differs) reject_own(sent.bytes(), received.bytes());
  return Outcome::served;
}

}  // namespace
}  // namespace weft::preload

using namespace weft::preload;
using weft::Communicator;

extern "C" {

int MPI_Barrier(MPI_Comm communicator) {
  return intercept(
      Function::barrier, communicator, kNoCheck,
      [](Library const&, Communicator& ranks) {
        ranks.barrier();
        return Outcome::served;
      },
      [&] { return PMPI_Barrier(communicator); });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm communicator) {
  std::optional<Side> side;
  return intercept(
      Function::bcast, communicator,
      [&](Library const& with) {
        side.emplace(with, count, type);
        if (!side->valid_with(buffer)) return Outcome::invalid;
        return side->bytes() == 0 ? Outcome::nothing_to_move : Outcome::served;
      },
      [&](Library const& with, Communicator& ranks) {
        if (!is_rank(root, ranks)) return Outcome::invalid;
        if (ranks.rank() == root) {
          Outgoing const from(buffer, side->count(), side->layout(), with.scratch());
          ranks.broadcast({const_cast<std::byte*>(from.data()), from.bytes(), weft::DataType::u8}, root);
        } else {
          Incoming const to(buffer, side->count(), side->layout(), with.scratch());
          ranks.broadcast(bytes_of(to), root);
          to.deliver();
        }
        return Outcome::served;
      },
      [&] { return PMPI_Bcast(buffer, count, type, root, communicator); });
}

int MPI_Gather(void const* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count,
               MPI_Datatype recv_type, int root, MPI_Comm communicator) {
  return intercept(
      Function::gather, communicator, [&](Library const&) { return plausible(send, send_count, send_type); },
      [&](Library const& library, Communicator& ranks) {
        if (!is_rank(root, ranks)) return Outcome::invalid;
        auto const is_root = ranks.rank() == root;
        // Arguments that have no meaning on this rank may be anything.
        Side const sent(library, is_root && send == MPI_IN_PLACE ? -1 : send_count, send_type);
        Side const received(library, is_root ? recv_count : -1, recv_type);
        return serve_gather(library, ranks, send, sent, recv, received, root);
      },
      [&] { return PMPI_Gather(send, send_count, send_type, recv, recv_count, recv_type, root, communicator); });
}

int MPI_Gatherv(void const* send, int send_count, MPI_Datatype send_type, void* recv, int const counts[],
                int const displacements[], MPI_Datatype recv_type, int root, MPI_Comm communicator) {
  return intercept(
      Function::gatherv, communicator, [&](Library const&) { return plausible(send, send_count, send_type); },
      [&](Library const& library, Communicator& ranks) {
        if (!is_rank(root, ranks)) return Outcome::invalid;
        auto const scratch = library.scratch();
        auto const is_root = ranks.rank() == root;
        auto const in_place = is_root && send == MPI_IN_PLACE;
        Side const sent(library, in_place ? -1 : send_count, send_type);
        if (!in_place && !sent.valid_with(send)) return Outcome::invalid;
        if (!is_root) {
          ranks.gather(bytes_of(Outgoing(send, sent.count(), sent.layout(), scratch)), bytes_of(Incoming()),
                       weft::Parts{}, root);
          return Outcome::served;
        }
        MpiParts const parts{counts, displacements, ranks.size()};
        Side const received(library, 0, recv_type);
        if (!received.valid() || !parts.valid() || recv == MPI_IN_PLACE) return Outcome::invalid;
        Incoming const to(recv, parts, received.layout(), scratch);
        if (!usable(recv, to.bytes(), received.layout())) return Outcome::invalid;
        auto const own = static_cast<std::size_t>(counts[root]);
        Outgoing from = in_place ? Outgoing(element(recv, own == 0 ? 0 : displacements[root], received.layout()), own,
                                            received.layout(), scratch)
                                 : Outgoing(send, sent.count(), sent.layout(), scratch);
        if (!in_place) from.keep_apart_from(to);
        ranks.gather(bytes_of(from), bytes_of(to), to.parts(), root);
        to.deliver();
        return Outcome::served;
      },
      [&] {
        return PMPI_Gatherv(send, send_count, send_type, recv, counts, displacements, recv_type, root, communicator);
      });
}

int MPI_Scatter(void const* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count,
                MPI_Datatype recv_type, int root, MPI_Comm communicator) {
  return intercept(
      Function::scatter, communicator, [&](Library const&) { return plausible(recv, recv_count, recv_type); },
      [&](Library const& library, Communicator& ranks) {
        if (!is_rank(root, ranks)) return Outcome::invalid;
        auto const is_root = ranks.rank() == root;
        Side const sent(library, is_root ? send_count : -1, send_type);
        Side const received(library, is_root && recv == MPI_IN_PLACE ? -1 : recv_count, recv_type);
        return serve_scatter(library, ranks, send, sent, recv, received, root);
      },
      [&] { return PMPI_Scatter(send, send_count, send_type, recv, recv_count, recv_type, root, communicator); });
}

int MPI_Scatterv(void const* send, int const counts[], int const displacements[], MPI_Datatype send_type, void* recv,
                 int recv_count, MPI_Datatype recv_type, int root, MPI_Comm communicator) {
  return intercept(
      Function::scatterv, communicator, [&](Library const&) { return plausible(recv, recv_count, recv_type); },
      [&](Library const& library, Communicator& ranks) {
        if (!is_rank(root, ranks)) return Outcome::invalid;
        auto const scratch = library.scratch();
        auto const is_root = ranks.rank() == root;
        auto const in_place = is_root && recv == MPI_IN_PLACE;
        Side const received(library, in_place ? -1 : recv_count, recv_type);
        if (!in_place && !received.valid_with(recv)) return Outcome::invalid;
        MpiParts const parts{counts, displacements, ranks.size()};
        Side const sent(library, is_root ? 0 : -1, send_type);
        if (is_root && (!sent.valid() || !parts.valid() || send == MPI_IN_PLACE)) return Outcome::invalid;
        auto from = is_root ? Outgoing(send, parts, sent.layout(), scratch) : Outgoing();
        if (is_root && !usable(send, from.bytes(), sent.layout())) return Outcome::invalid;
        if (!in_place) {
          Incoming const to(recv, received.count(), received.layout(), scratch);
          from.keep_apart_from(to);
          ranks.scatter(bytes_of(from), from.parts(), bytes_of(to), root);
          to.deliver();
          return Outcome::served;
        }
        // The root keeps its part where it is: Weft moves it onto itself.
        auto const own = static_cast<std::size_t>(root);
        ranks.scatter(bytes_of(from), from.parts(),
                      weft::BufferView{const_cast<std::byte*>(from.data()) + from.offset_of(own),
                                       from.parts().counts[own], weft::DataType::u8},
                      root);
        return Outcome::served;
      },
      [&] {
        return PMPI_Scatterv(send, counts, displacements, send_type, recv, recv_count, recv_type, root, communicator);
      });
}

int MPI_Allgather(void const* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm communicator) {
  std::optional<Side> sent;
  std::optional<Side> received;
  return intercept(
      Function::allgather, communicator,
      [&](Library const& library) {
        received.emplace(library, recv_count, recv_type);
        sent.emplace(send == MPI_IN_PLACE ? *received : Side(library, send_count, send_type));
        if (!received->valid_with(recv) || !sent->valid()) return Outcome::invalid;
        if (send != MPI_IN_PLACE && !usable(send, sent->bytes(), sent->layout())) return Outcome::invalid;
        if (sent->bytes() != received->bytes()) return Outcome::invalid;
        return sent->bytes() == 0 ? Outcome::nothing_to_move : Outcome::served;
      },
      [&](Library const& library, Communicator& ranks) {
        auto const& layout = received->layout();
        Incoming const to(recv, received->count() * static_cast<std::size_t>(ranks.size()), layout, library.scratch());
        auto const own = static_cast<std::ptrdiff_t>(ranks.rank()) * static_cast<std::ptrdiff_t>(received->count());
        Outgoing from(send == MPI_IN_PLACE ? element(recv, own, layout) : send, sent->count(), sent->layout(),
                      library.scratch());
        if (send != MPI_IN_PLACE) from.keep_apart_from(to);
        ranks.all_gather(bytes_of(from), bytes_of(to));
        to.deliver();
        return Outcome::served;
      },
      [&] { return PMPI_Allgather(send, send_count, send_type, recv, recv_count, recv_type, communicator); });
}

int MPI_Allgatherv(void const* send, int send_count, MPI_Datatype send_type, void* recv, int const counts[],
                   int const displacements[], MPI_Datatype recv_type, MPI_Comm communicator) {
  return intercept(
      Function::allgatherv, communicator, [&](Library const&) { return plausible(send, send_count, send_type); },
      [&](Library const& library, Communicator& ranks) {
        auto const in_place = send == MPI_IN_PLACE;
        MpiParts const parts{counts, displacements, ranks.size()};
        Side const received(library, 0, recv_type);
        Side const sent(library, in_place ? -1 : send_count, send_type);
        if (!received.valid() || !parts.valid() || recv == MPI_IN_PLACE) return Outcome::invalid;
        if (!in_place && !sent.valid_with(send)) return Outcome::invalid;
        auto const& layout = received.layout();
        Incoming const to(recv, parts, layout, library.scratch());
        if (to.bytes() == 0) return Outcome::nothing_to_move;
        if (!usable(recv, to.bytes(), layout)) return Outcome::invalid;
        auto const rank = ranks.rank();
        auto const own = static_cast<std::size_t>(counts[rank]);
        Outgoing from = in_place ? Outgoing(element(recv, own == 0 ? 0 : displacements[rank], layout), own, layout,
                                            library.scratch())
                                 : Outgoing(send, sent.count(), sent.layout(), library.scratch());
        if (from.bytes() != own * layout.bytes) gather_own_size(ranks, from, to.parts());
        if (!in_place) from.keep_apart_from(to);
        ranks.all_gather(bytes_of(from), bytes_of(to), to.parts());
        to.deliver();
        return Outcome::served;
      },
      [&] {
        return PMPI_Allgatherv(send, send_count, send_type, recv, counts, displacements, recv_type, communicator);
      });
}

int MPI_Alltoall(void const* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count,
                 MPI_Datatype recv_type, MPI_Comm communicator) {
  std::optional<Side> sent;
  std::optional<Side> received;
  return intercept(
      Function::alltoall, communicator,
      [&](Library const& library) {
        received.emplace(library, recv_count, recv_type);
        sent.emplace(send == MPI_IN_PLACE ? *received : Side(library, send_count, send_type));
        if (!received->valid_with(recv) || !sent->valid()) return Outcome::invalid;
        if (send != MPI_IN_PLACE && !usable(send, sent->bytes(), sent->layout())) return Outcome::invalid;
        if (sent->bytes() != received->bytes()) return Outcome::invalid;
        if (sent->bytes() == 0) return Outcome::nothing_to_move;
        return sent->bytes() >= kAlltoallBytesForMpi ? Outcome::mpi_is_faster : Outcome::served;
      },
      [&](Library const& library, Communicator& ranks) {
        auto const all = static_cast<std::size_t>(ranks.size());
        Incoming const to(recv, received->count() * all, received->layout(), library.scratch());
        Outgoing from(send == MPI_IN_PLACE ? recv : send, sent->count() * all, sent->layout(), library.scratch());
        if (send != MPI_IN_PLACE) from.keep_apart_from(to);
        ranks.all_to_all(bytes_of(from), bytes_of(to));
        to.deliver();
        return Outcome::served;
      },
      [&] { return PMPI_Alltoall(send, send_count, send_type, recv, recv_count, recv_type, communicator); });
}

int MPI_Alltoallv(void const* send, int const send_counts[], int const send_displacements[], MPI_Datatype send_type,
                  void* recv, int const recv_counts[], int const recv_displacements[], MPI_Datatype recv_type,
                  MPI_Comm communicator) {
  return intercept(
      Function::alltoallv, communicator, kNoCheck,
      [&](Library const& library, Communicator& ranks) {
        auto const in_place = send == MPI_IN_PLACE;
        MpiParts const gets{recv_counts, recv_displacements, ranks.size()};
        auto const gives = in_place ? gets : MpiParts{send_counts, send_displacements, ranks.size()};
        Side const received(library, 0, recv_type);
        Side const sent(library, 0, in_place ? recv_type : send_type);
        if (!received.valid() || !sent.valid() || !gets.valid() || !gives.valid() || recv == MPI_IN_PLACE)
          return Outcome::invalid;
        Incoming const to(recv, gets, received.layout(), library.scratch());
        if (!usable(recv, to.bytes(), received.layout())) return Outcome::invalid;
        Outgoing from(in_place ? recv : send, gives, sent.layout(), library.scratch(), in_place);
        if (!usable(from.data(), from.bytes(), sent.layout())) return Outcome::invalid;
        from.keep_apart_from(to);
        ranks.all_to_all(bytes_of(from), from.parts(), bytes_of(to), to.parts());
        to.deliver();
        return Outcome::served;
      },
      [&] {
        return PMPI_Alltoallv(send, send_counts, send_displacements, send_type, recv, recv_counts, recv_displacements,
                              recv_type, communicator);
      });
}

}  // extern "C"
