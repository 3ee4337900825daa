#include "trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include <weft/autotuner.hpp>
#include <weft/trace.hpp>

#include "agreement.hpp"
#include "compare.hpp"
#include "fits.hpp"
#include "folder_checkpoint.hpp"
#include "link.hpp"
#include "memory_use.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "sample.hpp"
#include "strategies/strategy.hpp"

namespace train_gpt {
namespace {

/// "hsdp in 2 groups of 3".
std::string described_strategy(Options const& options, int ranks) {
  if (options.strategy != "hsdp") return options.strategy;
  int const size = options.group_size(ranks);
  return fmt::format("hsdp in {} group{} of {}", ranks / size, ranks == size ? "" : "s", size);
}

void print_start(Inputs const& inputs, GptParameters const& parameters, int ranks, std::string const& carrier) {
  Options const& options = inputs.options;
  fmt::print(
      "GPT with {:.1f} M parameters ({} layers of width {}), {} bytes of {}, {} ranks, {}, batch {} x {} bytes, "
      "link: {}\n",
      static_cast<double>(parameters.count()) / 1e6, options.model.layers, options.model.width,
      inputs.text.bytes.size(), inputs.text.source, ranks, described_strategy(options, ranks), options.batch,
      options.model.seq, carrier);
  std::fflush(stdout);
}

/// Rank 0's words after training.
void print_end(Inputs const& inputs, GptParameters const& parameters, RunRecord const& run,
               weft::MemoryAccount const& memory, nlohmann::json const& of_ranks, weft::TuningOutcome const* tuned) {
  Options const& options = inputs.options;
  fmt::print("\n{}", weft::format_overlap_report(run.steps.back().overlap,
                                                 fmt::format("Last step, rank 0, link: {}", run.link)));
  RunSummary const summary = summarise(run, nullptr, run);
  fmt::print("\nMedians of {} steps\n{}", run.counted().size(), comparison_table(std::span(&summary, 1)));
  if (run.skipped_steps > 0) {
    fmt::print("{} of these steps overflowed and were skipped\n", run.skipped_steps);
  }
  fmt::print("\nRank 0\n{}", weft::format_memory_report(memory));
  if (!options.report_json.empty()) {
    write_report(options.report_json, options, parameters, std::span(&summary, 1), of_ranks, tuned);
  }
  std::fflush(stdout);
}

/// @throws std::runtime_error
void check_finite(float loss, int step) {
  if (std::isfinite(loss)) {
    return;
  }
  throw std::runtime_error(
      fmt::format("step {}: the loss is {}: the training has diverged; take a smaller --lr, or --clip", step + 1,
                  std::isnan(loss) ? "not a number" : "infinite"));
}

/// Settled within the options' share of the steps that are left.
std::optional<weft::Autotuner> autotuner(weft::Communicator& world, Options const& options, int first,
                                         std::string const& link, Strategy& strategy) {
  if (!options.autotune) return std::nullopt;
  weft::AutotunerOptions tuning;
  tuning.training_steps = static_cast<std::size_t>(std::max(options.steps - first, 0));
  tuning.most_share = options.autotune_share;
  tuning.workload = fmt::format("{}, batch {} x {} in {} passes, {} heads, {}{}{}, link: {}", options.strategy,
                                options.batch, options.model.seq, options.accumulate, options.model.heads,
                                options.precision, options.compress == "none" ? "" : ", sent as " + options.compress,
                                options.recompute ? ", recomputed" : "", link);
  return std::optional<weft::Autotuner>(std::in_place, world, strategy.tuning_space(), tuning);
}

/// The training loop.
void train(weft::Communicator& world, Inputs const& inputs, GptParameters const& parameters, Strategy& strategy,
           BatchSampler const& sampler, std::string const& link, weft::MemoryAccount const& memory) {
  Options const& options = inputs.options;
  if (inputs.checkpoint && inputs.is_folder) {
    restore_folder(world, options.resume, *inputs.checkpoint, parameters, strategy);
  } else if (inputs.checkpoint) {
    restore(*inputs.checkpoint, parameters, strategy);
  }
  FolderCheckpoints checkpoints(world, options, inputs.text_fingerprint, parameters);
  int const first = inputs.checkpoint ? inputs.checkpoint->step : 0;
  RunRecord run{options.strategy == "ddp" ? "weft" : options.strategy,  link, world.size(),
                static_cast<double>(options.batch) * options.model.seq, {},   0};
  Progress progress(first, options.steps);
  weft::Trace trace;
  std::optional<weft::Autotuner> tuner = autotuner(world, options, first, link, strategy);

  for (int step = first; step < options.steps; ++step) {
    std::int64_t const applied = strategy.applied_steps();
    StepTimes const times = strategy.step(sampler.sample(step, options.accumulate), options.schedule().at(applied));
    std::vector<Traffic> const traffic = strategy.traffic();
    bool const skipped = strategy.applied_steps() == applied;
    if (skipped) ++run.skipped_steps;
    run.steps.push_back({step, mean_over_ranks(world, times.loss), overlap_of(times, traffic), skipped});
    check_finite(run.steps.back().loss, step);
    bool const saved = checkpoints.after_step(step, strategy);
    if (!options.trace.empty()) {
      add_to_trace(trace, step, times, traffic);
    }
    if (world.rank() == 0) {
      progress.show(run.steps.back(), run.tokens_per_step);
    }
    if (tuner) tuner->end_step(times.end - times.start, !saved && !skipped);
  }
  if (world.rank() == 0) {
    progress.done();
  }
  if (!options.save.empty()) {  // first: nothing that goes wrong below may cost the training
    Checkpoint const checkpoint = capture(options, inputs.text_fingerprint, options.steps, parameters, strategy);
    alike(world, [&] {
      if (world.rank() == 0) save_checkpoint(options.save, checkpoint);
    });
  }
  checkpoints.finish();
  if (!options.trace.empty()) {
    alike(world, [&] { trace.write(world, options.trace); });
  }
  nlohmann::json const of_ranks = memory_of_ranks(world, memory);
  weft::TuningOutcome const* const tuned = tuner && tuner->outcome() ? &*tuner->outcome() : nullptr;
  alike(world, [&] {
    if (world.rank() == 0) print_end(inputs, parameters, run, memory, of_ranks, tuned);
    if (world.rank() == 0 && !strategy.report().empty()) fmt::print("\n{}\n", strategy.report());
  });
  if (options.sample > 0) {
    std::string const sample = generate([&](auto text) { return strategy.next_byte_logits(text); }, options);
    if (world.rank() == 0) {
      fmt::print("\nSample:\n{}\n", printable(sample));
      std::fflush(stdout);
    }
  }
}

#ifdef WEFT_WITH_CUDA
void train_on_device(weft::Communicator& world, Inputs const& inputs, BatchSampler const& sampler,
                     weft::MemoryAccount const& memory) {
  GptParameters const parameters(inputs.options.model);
  std::unique_ptr<Strategy> const strategy = make_on_device(connect(world, std::nullopt), inputs.options, parameters);
  if (world.rank() == 0) print_start(inputs, parameters, world.size(), "NCCL");
  train(world, inputs, parameters, *strategy, sampler, "NCCL", memory);
}
#endif

}  // namespace

float mean_over_ranks(weft::Communicator& world, float value) {
  std::array<float, 1> mean{value};
  world.all_reduce(std::span<float>(mean), std::span<float>(mean), weft::ReduceOp::avg);
  return mean[0];
}

void run_rank(weft::Communicator& world, Inputs const& inputs, weft::MemoryAccount const& memory) {
  Options const& options = inputs.options;
  use_one_blas_thread();
  check_batch(options, world.size());
  check_groups(options, world.size());
  check_same_everywhere(world, inputs);
  BatchSampler const sampler(inputs.text, options.model.seq, options.batch, options.seed, world.rank(), world.size());
#ifdef WEFT_WITH_CUDA
  if (options.device == "cuda") return train_on_device(world, inputs, sampler, memory);
#endif
  check_fits(options, world.size(), available_memory());
  int const pass_batch = options.batch / world.size() / options.accumulate;
  GptModel model(options.model, {.max_batch = pass_batch, .recompute = options.recompute});
  std::optional<weft::EmulatedLink> const link = choose_link(world, options, model, sampler);
  std::string const carrier = describe_carrier(world, link);
  if (world.rank() == 0) print_start(inputs, model.parameters(), world.size(), carrier);
  if (options.compare) {
    compare(world, options, model, sampler, link);
  } else {
    std::unique_ptr<Strategy> const strategy = make_strategy(connect(world, link), options, model);
    train(world, inputs, model.parameters(), *strategy, sampler, carrier, memory);
  }
}

}  // namespace train_gpt
