#include "common/cases.hpp"

#include <algorithm>

#include "common/limit.hpp"

namespace weft::perf {
namespace {

/// Rank `rank`'s share of `elements`, in whole cache lines.
struct Share {
  std::size_t first;
  std::size_t last;

  Share(std::size_t elements, std::size_t rank, std::size_t ranks) {
    constexpr std::size_t kLine = 16;  // floats
    auto const lines = elements / kLine;
    first = lines * rank / ranks * kLine;
    last = lines * (rank + 1) / ranks * kLine;
  }
};

class AllReduce final : public Case {
 public:
  [[nodiscard]] std::string name() const override { return "all_reduce"; }
  [[nodiscard]] bool reduces() const override { return true; }
  [[nodiscard]] Counts counts(std::size_t elements, int) const override { return {elements, elements, elements}; }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, int, bool in_place) const override {
    return {(in_place ? recv : send).slice(0, counts.send), recv.slice(0, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }

  void run(Communicator& communicator, Operands const& on, ReduceOp op, int) const override {
    communicator.all_reduce(on.send, on.recv, op).wait();
  }
  [[nodiscard]] double expected(Reference const& reference, int, std::size_t index, Counts, int) const override {
    return reference.reduced(index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, int rank, int,
             bool streaming) const override {
    Share const mine(elements, static_cast<std::size_t>(rank), sends.size());
    sum_to_all(sends, recvs, mine.first, mine.last, streaming);
  }
};

class ReduceScatter final : public Case {
 public:
  [[nodiscard]] std::string name() const override { return "reduce_scatter"; }
  [[nodiscard]] bool reduces() const override { return true; }
  [[nodiscard]] Counts counts(std::size_t elements, int ranks) const override {
    auto const share = elements / static_cast<std::size_t>(ranks);
    return {share * static_cast<std::size_t>(ranks), share, share};
  }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, int rank,
                                  bool in_place) const override {
    if (!in_place) return {send.slice(0, counts.send), recv.slice(0, counts.recv)};
    return {recv.slice(0, counts.send), recv.slice(static_cast<std::size_t>(rank) * counts.recv, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 1.0 * (ranks - 1) / ranks; }

  void run(Communicator& communicator, Operands const& on, ReduceOp op, int) const override {
    communicator.reduce_scatter(on.send, on.recv, op).wait();
  }
  [[nodiscard]] double expected(Reference const& reference, int rank, std::size_t index, Counts counts,
                                int) const override {
    return reference.reduced(static_cast<std::size_t>(rank) * counts.recv + index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, int rank, int,
             bool streaming) const override {
    Share const mine(elements, static_cast<std::size_t>(rank), sends.size());
    sum_to_all(sends, {recvs[static_cast<std::size_t>(rank)]}, mine.first, mine.last, streaming);
  }
};

class AllGather final : public Case {
 public:
  [[nodiscard]] std::string name() const override { return "all_gather"; }
  [[nodiscard]] Counts counts(std::size_t elements, int ranks) const override {
    auto const share = elements / static_cast<std::size_t>(ranks);
    return {share, share * static_cast<std::size_t>(ranks), share};
  }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, int rank,
                                  bool in_place) const override {
    if (!in_place) return {send.slice(0, counts.send), recv.slice(0, counts.recv)};
    return {recv.slice(static_cast<std::size_t>(rank) * counts.send, counts.send), recv.slice(0, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 1.0 * (ranks - 1) / ranks; }

  void run(Communicator& communicator, Operands const& on, ReduceOp, int) const override {
    communicator.all_gather(on.send, on.recv).wait();
  }
  [[nodiscard]] double expected(Reference const& reference, int, std::size_t index, Counts counts, int) const override {
    return reference.contribution(static_cast<int>(index / counts.send), index % counts.send);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, int rank, int,
             bool streaming) const override {
    for (std::size_t from = 0; from < sends.size(); ++from) {
      Share const part(elements, from, sends.size());
      sum_to_all({sends[from]}, {recvs[static_cast<std::size_t>(rank)]}, part.first, part.last, streaming);
    }
  }
};

class Broadcast final : public Case {
 public:
  [[nodiscard]] std::string name() const override { return "broadcast"; }
  [[nodiscard]] bool rooted() const override { return true; }
  [[nodiscard]] bool out_of_place() const override { return false; }
  [[nodiscard]] Counts counts(std::size_t elements, int) const override { return {elements, elements, elements}; }
  [[nodiscard]] Operands operands(BufferView, BufferView recv, Counts counts, int, bool) const override {
    return {recv.slice(0, counts.recv), recv.slice(0, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int) const override { return 1; }

  void run(Communicator& communicator, Operands const& on, ReduceOp, int root) const override {
    communicator.broadcast(on.recv, root).wait();
  }
  [[nodiscard]] double expected(Reference const& reference, int, std::size_t index, Counts, int root) const override {
    return reference.contribution(root, index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, int rank,
             int root, bool streaming) const override {
    if (rank == root) return;
    sum_to_all({sends[static_cast<std::size_t>(root)]}, {recvs[static_cast<std::size_t>(rank)]}, 0, elements,
               streaming);
  }
};

}  // namespace

std::unique_ptr<Case> all_reduce_case() {
  return std::make_unique<AllReduce>();
}
std::unique_ptr<Case> reduce_scatter_case() {
  return std::make_unique<ReduceScatter>();
}
std::unique_ptr<Case> all_gather_case() {
  return std::make_unique<AllGather>();
}
std::unique_ptr<Case> broadcast_case() {
  return std::make_unique<Broadcast>();
}

}  // namespace weft::perf
