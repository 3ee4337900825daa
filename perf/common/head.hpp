#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/options.hpp"

namespace weft::perf {

/// Where a rank runs.
struct RankPlace {
  std::int64_t pid = 0;
  std::int64_t device = 0;  ///< the CPU or GPU
  std::string bus_id;       ///< "cpu 3", or as nccl-tests has it of a GPU
  std::string name;         ///< of the model
  std::string host;
};

/// Collective: every rank's place on the CPUs of its host, in rank order.
[[nodiscard]] std::vector<RankPlace> rank_places(Communicator& communicator);

/// nccl-tests' opening lines: the program, the options, and the devices (here: ranks and the CPUs they run on); then
/// notes on options that have no effect here and on what Weft adds.
[[nodiscard]] std::string head_text(Case const& what, Options const& options, std::vector<RankPlace> const& places);

/// The processor's name.
[[nodiscard]] std::string cpu_name();
[[nodiscard]] std::string host_name();

}  // namespace weft::perf
