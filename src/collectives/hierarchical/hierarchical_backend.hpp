#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/backend.hpp"
#include "collectives/explainer.hpp"
#include "collectives/hierarchical/flat_limits.hpp"
#include "collectives/hierarchical/own_work.hpp"
#include "collectives/host_layout.hpp"
#include "collectives/host_order.hpp"
#include "transport/transport.hpp"
#include "weft/bootstrap.hpp"
#include "weft/buffer.hpp"

namespace weft::hierarchical {

struct PartArrays;

/// Gives out the messages between all ranks, for use within a call that the level between hosts has announced.
using Between = std::function<Transport&(Call const& announced)>;

/// What a HierarchicalBackend is made of.
struct Levels {
  std::unique_ptr<Backend> intra;  ///< the ranks of layout.locals(), in that order
  std::unique_ptr<Backend> inter;  ///< all ranks; reduces in the hierarchy's order
  Between between{};               ///< inter's messages; empty where it does not give them out
  OwnWork work{};
};

/// Runs calls over several hosts with two back ends: one of the ranks of each host (`intra`) and one of all ranks
/// (`inter`).
///
/// Data goes through `intra` between ranks of a host, and through `inter` between hosts, with all ranks of a host at
/// work. Data for every rank crosses to each host once and is shared there. Where Reproducibility allows it, or the
/// result is exact in any order, a host's ranks combine their contributions first, and only partial results cross.
/// Otherwise all contributions to a part come together at one rank, which combines them in rank order: the bits are
/// those of a single host, however ranks are placed. f32 sums and means cross in the format `wire`, combined inside
/// hosts first.
///
/// Every call begins with its announcement on `inter`, so that all ranks of all hosts agree. Small calls, scans, and
/// operations whose parts only some ranks know run on `inter` alone. A failure of one level is told to the other.
class HierarchicalBackend final : public Backend {
 public:
  /// `order`: of reductions; levels.inter must use the same.
  HierarchicalBackend(Levels levels, HostLayout layout, HostOrder order, WireFormat wire,
                      std::unique_ptr<Explainer> explainer);
  /// To be called before the first call: measures up to which sizes one exchange between all ranks is faster than going
  /// by hosts. Nothing is measured where the process remembers the figures for such a `network`, or where rank 0's
  /// `measures` is false. Collective.
  void find_level_costs(Bootstrap& bootstrap, std::string const& network, bool measures,
                        std::chrono::milliseconds timeout);
  [[nodiscard]] LevelCosts const& level_costs() const noexcept { return costs_; }
  /// Sets costs that are known from elsewhere, the same on all ranks.
  void set_level_costs(LevelCosts const& costs) noexcept {
    costs_ = costs;
    limits_ = limits_of(costs, ranks());
  }

  void all_reduce(Call const& call) override;
  void reduce_scatter(Call const& call) override;
  void all_gather(Call const& call) override;
  void broadcast(Call const& call) override;
  void reduce(Call const& call) override;
  void gather(Call const& call) override;
  void scatter(Call const& call) override;
  void all_to_all(Call const& call) override;
  void scan(Call const& call) override;
  void barrier(Call const& call) override;
  void merged(MergedCall const& calls) override;
  /// Up to these sizes, copying a call costs less than a message of its own.
  [[nodiscard]] MergeLimits merge_limits() const noexcept override {
    return {std::size_t{32} << 10, std::size_t{1} << 20};
  }
  void transfer(Call const& call, std::span<Message const> messages) override;
  std::unique_ptr<Transit> begin(Call const& call, Message const& message) override;
  void await(Call const& call, std::function<bool()> const& ready) override;
  void throw_if_failed() override;
  [[nodiscard]] PeerState peer_state(int rank) override;
  std::shared_ptr<void> allocate(Call const& call) override;
  void abort(std::string const& reason) noexcept override;
  void fail(ErrorCode code, std::string const& reason) noexcept override;

 private:
  using Operation = void (Backend::*)(Call const&);
  using Runner = void (HierarchicalBackend::*)(Call const&, Operation);
  /// Elements [first, first + count) of a buffer, for every rank.
  struct Range {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  using Ranges = std::vector<Range>;
  class Rounded;

  [[nodiscard]] int rank() const noexcept { return layout_.rank(); }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(layout_.size()); }
  /// Ranges of equal counts, one after the other.
  [[nodiscard]] Ranges equal_parts(std::size_t count) const;
  /// The call's elements divided between all ranks as evenly as whole cache lines allow.
  [[nodiscard]] Ranges even_split(Call const& call) const;
  [[nodiscard]] Ranges parts_of(Call const& call, Parts const& parts) const;
  /// Block k of every part: its elements [k · block, (k + 1) · block).
  [[nodiscard]] static Ranges block_of(Ranges const& parts, std::size_t k, std::size_t block);

  /// Memory for `count` elements. Where there is none, all ranks fail, since the others wait for this one.
  [[nodiscard]] Buffer workspace(std::size_t count, DataType dtype);

  /// Up to how many bytes of all parts together a call like this one is one exchange between all ranks.
  [[nodiscard]] std::size_t flat_limit(Call const& call) const noexcept;
  /// Whether this call is one exchange between all ranks. Equal on all ranks.
  [[nodiscard]] bool is_flat(Call const& call) const noexcept;
  [[nodiscard]] LevelCosts measure_levels(std::chrono::milliseconds timeout);
  /// Measures, in seconds, a call with buffers of so many elements of `dtype`; limits_ decide which way it goes.
  [[nodiscard]] double time_example(Pattern pattern, std::size_t elements, DataType dtype,
                                    std::chrono::milliseconds timeout);
  /// Runs a call on `inter` alone.
  void run_flat(Call const& call, Operation operation);
  void run_inter(Call const& given, Operation operation);
  void run_intra(Call const& given, Operation operation);
  /// Announces the call to all ranks; `way`: how it goes, for explanations. @throws Error{mismatch} on every rank.
  void enter(Call const& call, char const* way = "inside hosts and between them");

  /// An all_to_all of unequal parts by `runner`: run_intra, with a part for each of locals(), or run_inter, for all
  /// ranks.
  void exchange(Call const& call, void const* send, PartArrays const& given, void* recv, PartArrays const& got,
                Runner runner);
  /// Sends gives[r] of `send` to rank r, and receives gets[r] of `recv` from it; all ranks agree on the lengths.
  void move(Call const& call, void const* send, Ranges const& gives, void* recv, Ranges const& gets);
  /// Messages between hosts that go on while work is done inside them.
  class Crossing;
  /// Begins to bring each part to one rank of every other host.
  void bring_in(Crossing& crossing, void* recv, Ranges const& parts);
  /// Brings parts[r] of `recv` from rank r to all ranks; this rank's part must be in place.
  void share(Call const& call, void* recv, Ranges const& parts);
  /// The half of share() inside the host: its ranks share their own parts and those that they brought in.
  void share_inside(Call const& call, void* recv, Ranges const& parts);
  /// Every rank's factor for a premul_sum.
  [[nodiscard]] std::vector<double> share_scales(Call const& call);
  /// Whether a reduction's contributions are rounded to the wire format where they cross hosts.
  [[nodiscard]] bool is_rounded(Call const& call) const noexcept;
  /// How an all_reduce or reduce_scatter goes, for explanations.
  [[nodiscard]] char const* way_of(Call const& call) const noexcept;
  /// Whether the ranks of a host combine their contributions first.
  [[nodiscard]] bool combines_by_host(Call const& call) const noexcept;
  /// Combines the contributions of this host's ranks to all `parts`, of up to `block` elements each. Of every round of
  /// layout_.rounds() this rank gets the result of one part, in the round's block of `partials`.
  void combine_inside(Call const& call, void const* send, Ranges const& parts, std::size_t block, void* partials);
  /// Begins to bring the other hosts' partial results of this rank's part together in `arrived`, which has a block for
  /// each host; that of this host stays unused.
  void exchange_partials(Crossing& crossing, Ranges const& parts, std::size_t block, void const* partials,
                         void* arrived);
  /// result = the reduction, over all ranks r, of parts[rank()] of rank r's `send`; may be in place.
  void combine(Call const& call, void const* send, Ranges const& parts, void* result);
  void combine_by_host(Call const& call, void const* send, Ranges const& parts, void* result);
  void combine_in_rank_order(Call const& call, void const* send, Ranges const& parts, void* result);

  // all_reduce_by_chunks.cpp
  struct Slices;
  class ResultExchange;
  [[nodiscard]] bool goes_by_chunks(Call const& call) const noexcept;
  void all_reduce_by_chunks(Call const& call);
  /// Combines the host's contributions to chunk k of this rank's slice, into the chunk's place in `partials`.
  void combine_chunk(Call const& call, Slices const& slices, std::size_t k, void* partials);
  /// Brings chunk k of each slice, which is in place at the slice's rank, to all ranks of the host.
  void share_chunk(Call const& call, Slices const& slices, std::size_t k);

  std::unique_ptr<Backend> intra_;
  std::unique_ptr<Backend> inter_;
  Between between_;
  OwnWork work_;
  HostLayout layout_;
  HostOrder order_;
  WireFormat wire_;
  std::unique_ptr<Explainer> explainer_;  // on rank 0, where asked for
  LevelCosts costs_{};
  FlatLimits limits_ = limits_of(LevelCosts(), 1);  // the assumed limits
  std::uint64_t intra_calls_ = 0;
  std::uint64_t inter_calls_ = 0;
  std::vector<std::byte> flat_;  // scratch memory of merged calls
};

}  // namespace weft::hierarchical
