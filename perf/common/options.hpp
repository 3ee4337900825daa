#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/cases.hpp"
#include "common/measure.hpp"
#include "weft/communicator.hpp"

namespace weft::perf {

enum class MemoryKind { symmetric, private_memory };

[[nodiscard]] std::string to_string(MemoryKind kind);

/// The options of nccl-tests' command line, and those that Weft adds.
struct Options {
  std::size_t min_bytes = 32 << 20;
  std::size_t max_bytes = 32 << 20;
  std::size_t step_bytes = 1 << 20;
  std::size_t step_factor = 1;  ///< 1: steps of step_bytes
  int threads = 1;              ///< -t
  int gpus = 1;                 ///< -g; the number of local ranks is threads · gpus
  int warmup = 5;
  int aggregate = 1;
  int cycles = 1;    ///< how often the whole table is measured; 0: endlessly
  int checks = 1;    ///< number of calls per line whose results are checked
  int unalign = 0;   ///< the element at which buffers begin
  int blocking = 0;  ///< 1: a barrier after every call
  bool timestamps = false;
  bool cpu_time = false;
  bool memory_report = false;
  std::string output_file;  ///< -J; empty: none
  std::optional<std::chrono::milliseconds> timeout;
  std::vector<int> roots{0};  ///< empty: every rank in turn
  std::vector<DataType> dtypes{DataType::f32};
  std::vector<ReduceOp> ops{ReduceOp::sum};
  LoopSettings loop;

  DeviceType device = DeviceType::cpu;
  bool share_gpus = false;   ///< ranks may outnumber GPUs
  bool null_stream = false;  ///< -y, on a GPU
  MemoryKind memory = MemoryKind::symmetric;
  bool in_place = true;
  bool compare_mpi = false;
  bool compare_nccl = false;
  bool cost = false;
  bool limit = false;
  bool overlap = false;
  int rounds = 5;
  std::string json;   ///< file to append JSON lines to; empty: none
  std::string label;  ///< goes into every JSON line and -J's configuration
  std::optional<EmulatedLink> link;

  std::optional<double> min_bus_gbps;  ///< NCCL_TESTS_MIN_BW: the average that must be reached

  std::vector<std::string> notes;      ///< one line for each given option that has no effect here
  std::vector<std::string> arguments;  ///< the command line as given

  [[nodiscard]] int ranks() const noexcept { return threads * gpus; }
  /// The message sizes asked for, in bytes, ascending.
  [[nodiscard]] std::vector<std::size_t> sizes() const;
};

/// The result of parsing: run, or exit with a code (0 after --help; 2 after a bad argument, the reason for which has
/// been printed).
struct ParsedOptions {
  Options options;
  std::optional<int> exit_code;
};

[[nodiscard]] ParsedOptions parse_options(Case const& what, int argc, char const* const* argv);

}  // namespace weft::perf
