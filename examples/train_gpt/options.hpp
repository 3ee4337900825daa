#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <weft/bucketer.hpp>
#include <weft/communicator.hpp>
#include <weft/gradient_compression.hpp>
#include <weft/lr_schedule.hpp>
#include <weft/memory.hpp>
#include <weft/optimizer.hpp>

#include "gpt_config.hpp"

namespace train_gpt {

/// The command line.
struct Options {
  GptConfig model;
  std::string device = "cpu";  ///< or cuda: the model, its gradients and its optimizer are on a rank's GPU
  bool cuda_graph = false;     ///< a step is one CUDA graph
  int ranks = 1;               ///< to fork; mpirun's number counts under mpirun
  int batch = 8;               ///< sequences per step over all ranks
  int steps = 60;              ///< in all, those before --resume included
  float lr = 1e-3F;
  std::uint64_t seed = 1;
  std::optional<std::string> data;

  std::optional<weft::EmulatedLink> link;
  bool auto_link = false;  ///< --link auto: communication of about half the compute time
  // A model of 10 M parameters in some forty buckets: each lasts fifty times a slow link's latency.
  double bucket_mb = 1.0;
  double first_bucket_mb = 1.0;
  double last_bucket_mb = 0.25;
  std::string bucket_policy = "caps";  ///< optimal: planned from measured times, the caps hold for the first step
  /// How a step is planned: weft, program, buckets=MB; empty: gradients leave as a Bucketer has it.
  std::string step_schedule;
  std::string compress = "none";  ///< what f32 gradients travel as: bf16 or fp16
  bool error_feedback = false;
  bool compare = false;
  std::vector<double> compare_caps;  ///< --compare runs buckets of these caps, in MiB, instead of other ways
  /// What is sharded: ddp: nothing; zero1, zero2: weft::ZeroOptimizer's stages; zero3, hsdp: weft::FullySharded over
  /// all ranks, and within groups.
  std::string strategy = "ddp";
  // Of zero3 and hsdp.
  int prefetch = 1;          ///< units
  double gather_cap_mb = 0;  ///< 0: what prefetch takes
  bool keep_gathered = false;
  int shard_size = 0;         ///< ranks in a group of hsdp; 0: half of all, or the only one
  bool sum_by_group = false;  ///< hsdp

  std::string precision = "fp32";  ///< parameters and gradients; bf16 and fp16 have f32 originals, arithmetic is f32
  double loss_scale = 65536;       ///< of fp16, at the start
  int growth_interval = 2000;      ///< steps without overflow after which it doubles
  std::string optimizer = "adamw";
  std::optional<double> weight_decay;  ///< absent: the optimizer's default
  std::string state = "fp32";          ///< of the optimizer, or 8bit
  int accumulate = 1;                  ///< passes whose gradients add up before they are sent
  double clip = 0;                     ///< largest norm of a step's gradients; 0: any
  bool recompute = false;
  int warmup = 10;
  std::string decay = "constant";  ///< of the learning rate

  bool autotune = false;
  double autotune_share = 0.1;  ///< of --steps, at most

  std::size_t memory_budget = weft::MemoryAccount::kUnlimited;  ///< bytes of a rank

  std::string trace;
  std::string report_json;
  std::string save;
  std::string resume;      ///< a --save's file or a --checkpoint's folder
  std::string checkpoint;  ///< a folder
  bool overwrite_checkpoint = false;
  int checkpoint_every = 0;
  int sample = 160;  ///< bytes to generate at the end
  std::string prompt = "The ";

  std::set<std::string> given;  ///< names of the options that were on the command line, as "--width"

  /// Of gradients, where --compress asks for one.
  [[nodiscard]] std::optional<weft::GradientCompressor> compressor() const;
  /// With a compressor of its own.
  [[nodiscard]] weft::BucketerOptions bucketer() const;
  /// The MB of --schedule buckets=MB, where that is what it says.
  [[nodiscard]] std::optional<double> schedule_bucket_mb() const;
  [[nodiscard]] weft::DataType parameter_type() const;
  [[nodiscard]] weft::OptimizerOptions optimizer_options() const;
  [[nodiscard]] weft::OptimizerSettings optimizer_settings() const;
  [[nodiscard]] weft::LrSchedule schedule() const;
  /// Ranks in a group of hsdp.
  [[nodiscard]] int group_size(int of_ranks) const noexcept;
  /// The optimizer's own where none was given.
  [[nodiscard]] double effective_weight_decay() const;
};

/// Parses and checks what can be checked without ranks, and without a checkpoint. Prints help (returns nothing, exit
/// code 0) or one line on stderr (exit code 2).
[[nodiscard]] std::optional<Options> parse_options(int argc, char const* const* argv, int& exit_code);

/// @throws weft::Error{unsupported} for what is not there on a GPU, or for a GPU in a build without CUDA.
void check_device(Options const& options);
/// Model, schedule and batch of a run, which of a resumed one are known after adopt().
/// @throws weft::Error{invalid_argument} for what does not go together.
void check_run(Options const& options);
/// @throws weft::Error{invalid_argument} when ranks and passes cannot share the batch equally.
void check_batch(Options const& options, int ranks);
/// @throws weft::Error{invalid_argument} when hsdp cannot split the ranks into equal groups.
void check_groups(Options const& options, int ranks);

}  // namespace train_gpt
