#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/operands.hpp"
#include "common/reference.hpp"

namespace weft::perf {

/// The operations there is a program for.
enum class Op {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  send_recv,
  hypercube,
};

/// One operation as the framework sees it, independent of any library: its sizes, operands, expected results, and the
/// loads and stores that it cannot avoid. Stateless; counts are in elements.
class Case {
 public:
  virtual ~Case() = default;

  [[nodiscard]] virtual Op op() const = 0;
  /// As nccl-tests names its program: "all_reduce", "alltoall".
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool reduces() const { return false; }
  [[nodiscard]] virtual bool rooted() const { return false; }
  /// Whether results of the in-place form can be checked; nccl-tests prints N/A if not.
  [[nodiscard]] virtual bool checks_in_place() const { return true; }
  /// Whether `ranks` ranks can do it.
  [[nodiscard]] virtual bool supports(int ranks) const { return ranks > 0; }

  /// Counts for a message of about `elements` elements over `ranks` ranks.
  [[nodiscard]] virtual Counts counts(std::size_t elements, int ranks) const = 0;
  /// Elements that each of the buffers given to operands() must hold.
  [[nodiscard]] virtual std::size_t room(Counts counts) const;
  /// This rank's operands inside a send and a receive buffer of room(counts) elements each; in place both lie in
  /// `recv`.
  [[nodiscard]] virtual Operands operands(BufferView send, BufferView recv, Counts counts, Place place,
                                          bool in_place) const = 0;
  /// The ratio of nccl-tests' bus bandwidth to its algorithm bandwidth.
  [[nodiscard]] virtual double bus_factor(int ranks) const = 0;
  /// Elements that count for the algorithm bandwidth.
  [[nodiscard]] virtual std::size_t algorithm_elements(Counts counts, int ranks) const;

  /// The expected element `index` of this rank's output.
  [[nodiscard]] virtual double expected(Reference const& reference, Place place, std::size_t index,
                                        Counts counts) const = 0;

  /// Makes this rank's unavoidable loads and stores, on the f32 inputs and outputs of all ranks, which it can access.
  /// `elements` is max(counts.send, counts.recv). `streaming`: stores bypass the caches.
  virtual void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements,
                     Place place, bool streaming) const = 0;
};

[[nodiscard]] std::unique_ptr<Case> make_case(Op op);
/// By name(); null when there is none.
[[nodiscard]] std::unique_ptr<Case> make_case(std::string const& name);

// One per operation; make_case() chooses among them.
[[nodiscard]] std::unique_ptr<Case> all_reduce_case();
[[nodiscard]] std::unique_ptr<Case> all_gather_case();
[[nodiscard]] std::unique_ptr<Case> reduce_scatter_case();
[[nodiscard]] std::unique_ptr<Case> broadcast_case();
[[nodiscard]] std::unique_ptr<Case> reduce_case();
[[nodiscard]] std::unique_ptr<Case> all_to_all_case();
[[nodiscard]] std::unique_ptr<Case> gather_case();
[[nodiscard]] std::unique_ptr<Case> scatter_case();
[[nodiscard]] std::unique_ptr<Case> send_recv_case();
[[nodiscard]] std::unique_ptr<Case> hypercube_case();

}  // namespace weft::perf
