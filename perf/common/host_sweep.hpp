#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/head.hpp"
#include "common/limit.hpp"
#include "common/mpi_peer.hpp"
#include "common/overlap.hpp"
#include "common/rounds.hpp"
#include "common/sweep.hpp"

namespace weft::perf {

/// A Sweep on host memory. With `--compare mpi` it also makes MPI's own calls, in the same rounds.
class HostSweep final : public Sweep {
 public:
  /// Collective. `peer` is null if nothing is compared. All arguments must outlive the sweep.
  HostSweep(Case const& what, Options const& options, MpiPeer const* peer, Communicator& communicator);

 private:
  /// What is measured at one size: indices of sides.
  struct Entry {
    Counts counts;
    int iterations = 0;  // of each timed loop
    std::size_t out_of_place = 0;
    std::optional<std::size_t> in_place;
    std::optional<std::size_t> peer;
  };

  [[nodiscard]] std::vector<RankPlace> places() override { return rank_places(communicator_); }
  void allocate(DataType dtype) override;
  void run_choice(Choice const& choice) override;
  [[nodiscard]] std::string means() const override;
  [[nodiscard]] std::string memory_usage() override;

  [[nodiscard]] Memory allocate_memory(std::size_t elements, DataType dtype, bool symmetric);
  [[nodiscard]] std::function<void()> weft_call(Operands const& on, Choice const& choice);
  [[nodiscard]] Side weft_side(Counts counts, Choice const& choice, bool in_place);
  /// MPI's side; none if MPI does not have the call.
  [[nodiscard]] std::optional<Side> peer_side(Counts counts, Choice const& choice);
  [[nodiscard]] SizeRounds sides_of(std::size_t bytes, Choice const& choice, Entry& entry);

  [[nodiscard]] Timing side_timing(SizeRounds const& rounds, std::size_t side, Entry const& entry, Quiet const& quiet,
                                   Choice const& choice, bool checked);
  [[nodiscard]] Detail detail_of(SizeRounds const& rounds, Entry const& entry, Quiet const& quiet,
                                 Choice const& choice);
  [[nodiscard]] double overlap_of(Side const& side, Choice const& choice, std::size_t bytes);
  void finish_line(SizeRounds const& rounds, Entry const& entry, Quiet const& quiet, Choice const& choice);

  MpiPeer const* peer_;
  bool peer_lacks_some_ = false;
  Memory own_;
  Memory peers_;
  std::optional<PhysicalLimit> limit_;
  std::optional<OverlapMeter> overlap_;
  std::vector<double> limit_ratios_;
  std::vector<double> call_ratios_;
  std::vector<double> cost_ratios_;
};

}  // namespace weft::perf
