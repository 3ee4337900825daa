// all_gather, broadcast, all_to_all, gather, scatter: operations that move data without reducing.
#include "common/cases.hpp"
#include "common/traffic.hpp"

namespace weft::perf {
namespace {

std::size_t share_of(std::size_t elements, int ranks) {
  return elements / static_cast<std::size_t>(ranks);
}

class AllGather final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::all_gather; }
  [[nodiscard]] std::string name() const override { return "all_gather"; }
  [[nodiscard]] Counts counts(std::size_t elements, int ranks) const override {
    auto const share = share_of(elements, ranks);
    return {share, share * static_cast<std::size_t>(ranks), share};
  }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place place,
                                  bool in_place) const override {
    if (!in_place) return {send.slice(0, counts.send), recv.slice(0, counts.recv)};
    return {recv.slice(static_cast<std::size_t>(place.rank) * counts.send, counts.send), recv.slice(0, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 1.0 * (ranks - 1) / ranks; }
  [[nodiscard]] double expected(Reference const& reference, Place, std::size_t index, Counts counts) const override {
    return reference.contribution(static_cast<int>(index / counts.send), index % counts.send);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    auto* const mine = recvs[static_cast<std::size_t>(place.rank)];
    for (std::size_t from = 0; from < sends.size(); ++from) {
      Share const part(elements, from, sends.size());
      sum_to_all({sends[from]}, {mine}, part.first, part.last, streaming);
    }
  }
};

/// Out of place, the root broadcasts its send buffer and the other ranks receive into their receive buffers. The root's
/// receive buffer is not used.
class Broadcast final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::broadcast; }
  [[nodiscard]] std::string name() const override { return "broadcast"; }
  [[nodiscard]] bool rooted() const override { return true; }
  [[nodiscard]] Counts counts(std::size_t elements, int) const override { return {elements, elements, elements}; }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place place,
                                  bool in_place) const override {
    auto const output = recv.slice(0, counts.recv);
    if (!place.is_root()) return {output.slice(0, 0), output};
    return in_place ? Operands{output, output} : Operands{send.slice(0, counts.send), output.slice(0, 0)};
  }
  [[nodiscard]] double bus_factor(int) const override { return 1; }
  [[nodiscard]] double expected(Reference const& reference, Place place, std::size_t index, Counts) const override {
    return reference.contribution(place.root, index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    if (place.is_root()) return;
    sum_to_all({sends[static_cast<std::size_t>(place.root)]}, {recvs[static_cast<std::size_t>(place.rank)]}, 0,
               elements, streaming);
  }
};

class AllToAll final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::all_to_all; }
  [[nodiscard]] std::string name() const override { return "alltoall"; }
  [[nodiscard]] Counts counts(std::size_t elements, int ranks) const override {
    auto const share = share_of(elements, ranks);
    auto const whole = share * static_cast<std::size_t>(ranks);
    return {whole, whole, share};
  }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place,
                                  bool in_place) const override {
    return {(in_place ? recv : send).slice(0, counts.send), recv.slice(0, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 1.0 * (ranks - 1) / ranks; }
  [[nodiscard]] double expected(Reference const& reference, Place place, std::size_t index,
                                Counts counts) const override {
    auto const share = counts.parameter;
    return reference.contribution(static_cast<int>(index / share),
                                  static_cast<std::size_t>(place.rank) * share + index % share);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    auto const rank = static_cast<std::size_t>(place.rank);
    Share const mine(elements, rank, sends.size());
    auto const length = mine.last - mine.first;
    for (std::size_t from = 0; from < sends.size(); ++from) {
      Share const target(elements, from, sends.size());
      auto const fits = length < target.last - target.first ? length : target.last - target.first;
      sum_to_all({sends[from] + mine.first}, {recvs[rank] + target.first}, 0, fits, streaming);
    }
  }
};

class Gather final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::gather; }
  [[nodiscard]] std::string name() const override { return "gather"; }
  [[nodiscard]] bool rooted() const override { return true; }
  [[nodiscard]] Counts counts(std::size_t elements, int ranks) const override {
    auto const share = share_of(elements, ranks);
    return {share, share * static_cast<std::size_t>(ranks), share};
  }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place place,
                                  bool in_place) const override {
    auto const part = recv.slice(static_cast<std::size_t>(place.rank) * counts.send, counts.send);
    return {in_place ? part : send.slice(0, counts.send), recv.slice(0, place.is_root() ? counts.recv : 0)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 1.0 * (ranks - 1) / ranks; }
  [[nodiscard]] double expected(Reference const& reference, Place, std::size_t index, Counts counts) const override {
    return reference.contribution(static_cast<int>(index / counts.send), index % counts.send);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    auto const rank = static_cast<std::size_t>(place.rank);
    Share const mine(elements, rank, sends.size());
    sum_to_all({sends[rank]}, {recvs[static_cast<std::size_t>(place.root)]}, mine.first, mine.last, streaming);
  }
};

class Scatter final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::scatter; }
  [[nodiscard]] std::string name() const override { return "scatter"; }
  [[nodiscard]] bool rooted() const override { return true; }
  [[nodiscard]] Counts counts(std::size_t elements, int ranks) const override {
    auto const share = share_of(elements, ranks);
    return {share * static_cast<std::size_t>(ranks), share, share};
  }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place place,
                                  bool in_place) const override {
    auto const input = (in_place ? recv : send).slice(0, place.is_root() ? counts.send : 0);
    auto const first = in_place ? static_cast<std::size_t>(place.rank) * counts.recv : 0;
    return {input, recv.slice(first, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 1.0 * (ranks - 1) / ranks; }
  [[nodiscard]] double expected(Reference const& reference, Place place, std::size_t index,
                                Counts counts) const override {
    return reference.contribution(place.root, static_cast<std::size_t>(place.rank) * counts.recv + index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    auto const rank = static_cast<std::size_t>(place.rank);
    Share const mine(elements, rank, sends.size());
    sum_to_all({sends[static_cast<std::size_t>(place.root)]}, {recvs[rank]}, mine.first, mine.last, streaming);
  }
};

}  // namespace

std::unique_ptr<Case> all_gather_case() {
  return std::make_unique<AllGather>();
}
std::unique_ptr<Case> broadcast_case() {
  return std::make_unique<Broadcast>();
}
std::unique_ptr<Case> all_to_all_case() {
  return std::make_unique<AllToAll>();
}
std::unique_ptr<Case> gather_case() {
  return std::make_unique<Gather>();
}
std::unique_ptr<Case> scatter_case() {
  return std::make_unique<Scatter>();
}

}  // namespace weft::perf
