#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/reference.hpp"
#include "weft/communicator.hpp"

namespace weft::perf {

/// How many elements one rank passes and receives.
struct Counts {
  std::size_t send = 0;
  std::size_t recv = 0;
  std::size_t parameter = 0;  ///< what the call's `count` argument is, nccl-tests' count column
};

/// The views of one call on one rank.
struct Operands {
  BufferView send;
  BufferView recv;
};

/// One collective as the framework sees it: sizes, the call, what must come out and the loads and stores it cannot
/// avoid. Stateless; counts are elements.
class Case {
 public:
  virtual ~Case() = default;

  [[nodiscard]] virtual std::string name() const = 0;  ///< "all_reduce"
  [[nodiscard]] virtual bool reduces() const { return false; }
  [[nodiscard]] virtual bool rooted() const { return false; }
  /// Whether there is a form with distinct input and output.
  [[nodiscard]] virtual bool out_of_place() const { return true; }

  /// Counts for a message of about `elements` elements over `ranks` ranks.
  [[nodiscard]] virtual Counts counts(std::size_t elements, int ranks) const = 0;
  /// The operands inside a send and a receive buffer of the counts above; in place both lie in `recv`.
  [[nodiscard]] virtual Operands operands(BufferView send, BufferView recv, Counts counts, int rank,
                                          bool in_place) const = 0;
  /// nccl-tests' bus bandwidth over algorithm bandwidth.
  [[nodiscard]] virtual double bus_factor(int ranks) const = 0;

  virtual void run(Communicator& communicator, Operands const& operands, ReduceOp op, int root) const = 0;
  /// Element `index` of rank `rank`'s output.
  [[nodiscard]] virtual double expected(Reference const& reference, int rank, std::size_t index, Counts counts,
                                        int root) const = 0;

  /// Rank `rank`'s unavoidable loads and stores, over f32 inputs and outputs that every rank can reach. `streaming`:
  /// stores pass the caches by.
  virtual void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, int rank,
                     int root, bool streaming) const = 0;
};

[[nodiscard]] std::unique_ptr<Case> all_reduce_case();
[[nodiscard]] std::unique_ptr<Case> reduce_scatter_case();
[[nodiscard]] std::unique_ptr<Case> all_gather_case();
[[nodiscard]] std::unique_ptr<Case> broadcast_case();

}  // namespace weft::perf
