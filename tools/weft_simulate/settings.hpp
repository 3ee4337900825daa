#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/p2p/algorithms.hpp"
#include "transport/sim/simulation.hpp"

namespace weft::simulate_tool {

/// A way to do an operation.
struct Candidate {
  p2p::Algorithm const* algorithm = nullptr;  ///< over all ranks; null: by hosts (collectives/hierarchical)

  [[nodiscard]] std::string_view name() const noexcept { return algorithm == nullptr ? kByHosts : algorithm->name; }
  static constexpr std::string_view kByHosts = "by_hosts";
};

/// A data-parallel training step.
struct TrainingStep {
  int layers = 1;
  std::size_t layer_bytes = 4;  ///< of a layer's gradients, f32
  double forward_s = 0;         ///< of one layer; backward_s likewise
  double backward_s = 0;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool overlap = true;
  bool by_hosts = false;  ///< reduces by hosts, as real jobs do if hosts have several ranks; else all ranks are alike
};

/// What the user asked for.
struct Settings {
  sim::Topology topology;
  std::string topology_name;  ///< preset or file
  Operation operation = Operation::all_reduce;
  std::vector<Candidate> candidates;
  std::vector<std::size_t> sizes;    ///< bytes of the whole buffer, as nccl-tests counts them
  std::optional<std::size_t> chunk;  ///< bytes of a pipeline's chunks; none: the best by its formula
  std::vector<sim::Straggler> stragglers;
  std::vector<sim::Loss> losses;
  double detection_s = 1e-3;  ///< the time until all ranks know about a lost one
  double jitter_s = 0;
  double reduction_bytes_per_s = 0;  ///< 0: reductions take no time
  std::uint64_t seed = 1;
  std::optional<TrainingStep> step;  ///< simulated instead of an operation
  std::string json;                  ///< file, - for standard output, empty for none
  std::string picture;               ///< PNG
};

struct Arguments {
  std::optional<Settings> settings;  ///< empty: the program ends with `exit_code`
  int exit_code = 0;
};

/// Reads the command line. Prints help, the version, or what is wrong with it.
[[nodiscard]] Arguments parse_arguments(int argc, char const* const* argv);

/// Reads "64K" (2^10; M, G likewise), "100", "1e6". @throws Error{invalid_argument} naming the text.
[[nodiscard]] std::size_t parse_bytes(std::string const& text);
/// Reads sizes: "8-128M" doubles from one to the other, "8,1K,1M" lists them. @throws Error{invalid_argument} naming
/// the bad part.
[[nodiscard]] std::vector<std::size_t> parse_sizes(std::string const& text);
/// Reads stragglers: "17:2" (rank 17 is twice as slow), "17@5ms" (it begins 5 ms late), "17:2@5ms" (both); several are
/// separated by commas.
[[nodiscard]] std::vector<sim::Straggler> parse_stragglers(std::string const& text);
/// Reads losses: "17@5ms" (rank 17 is lost at that time); several are separated by commas.
[[nodiscard]] std::vector<sim::Loss> parse_losses(std::string const& text);
/// Reads a step: "24x12M@8ms" means 24 layers, each with 12 MiB of gradients and 8 ms of backward; forward takes half
/// of that.
[[nodiscard]] TrainingStep parse_step(std::string const& text);
/// Reads "5us", "3ms", "20ns", "1s". @throws Error{invalid_argument} naming the text.
[[nodiscard]] double parse_seconds(std::string const& text);

}  // namespace weft::simulate_tool
