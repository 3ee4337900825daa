#include "compare.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "link.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "sample.hpp"
#include "synchroniser.hpp"
#include "trainer.hpp"

namespace train_gpt {
namespace {

/// One way to communicate, with weights and optimizer state of its own.
struct Variant {
  RunRecord record;
  std::unique_ptr<GptModel> model;
  std::unique_ptr<Synchroniser> synchroniser;
  std::unique_ptr<weft::Optimizer> optimizer;
};

class Comparison {
 public:
  Comparison(weft::Communicator& world, Options const& options, BatchSampler const& sampler,
             std::shared_ptr<Workspace> workspace)
      : world_(world), options_(options), sampler_(sampler), workspace_(std::move(workspace)) {}

  /// Adds a variant that starts from `weights`; `make` turns its parameters into its Synchroniser.
  template <typename Make>
  void add(char const* name, std::string const& link, GptModel const& weights, Make const& make) {
    Variant variant;
    variant.record = {name, link, world_.size(), static_cast<double>(options_.batch) * options_.model.seq, {}};
    variant.model = std::make_unique<GptModel>(options_.model, options_.batch / world_.size(), workspace_);
    std::vector<weft::BufferView> const parameters = variant.model->parameters();
    std::vector<weft::BufferView> const source = weights.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::copy_n(static_cast<float const*>(source[i].data), source[i].count, static_cast<float*>(parameters[i].data));
    }
    variant.synchroniser = make(parameters);
    variant.optimizer = std::make_unique<weft::Optimizer>(parameters, weft::AdamWOptions{.lr = options_.lr});
    variants_.push_back(std::move(variant));
  }

  void run(weft::Trace& trace) {
    Progress progress(0, options_.steps);
    for (int step = 0; step < options_.steps; ++step) {
      for (std::size_t turn = 0; turn < variants_.size(); ++turn) {
        std::size_t const index =
            (turn + static_cast<std::size_t>(step)) % variants_.size();  // nobody always follows the same one
        take_step(variants_[index], step, index == 0 ? &trace : nullptr);
      }
      if (world_.rank() == 0) {
        progress.show(variants_.front().record.steps.back(), variants_.front().record.tokens_per_step);
      }
    }
    if (world_.rank() == 0) {
      progress.done();
    }
  }

  [[nodiscard]] std::vector<Variant> const& variants() const noexcept { return variants_; }

 private:
  void take_step(Variant& variant, int step, weft::Trace* trace) {
    Batch const batch = sampler_.sample(step);
    variant.optimizer->set_lr(learning_rate(options_.lr, step));
    world_.barrier();
    StepTimes const times = train_step(*variant.model, *variant.synchroniser, *variant.optimizer, batch);
    auto const buckets = variant.synchroniser->timings();
    Traffic const traffic[]{{"bucket", {buckets.begin(), buckets.end()}}};
    variant.record.steps.push_back({step, mean_over_ranks(world_, times.loss), overlap_of(times, traffic)});
    if (trace != nullptr && !options_.trace.empty()) {
      add_to_trace(*trace, step, times, traffic);
    }
  }

  weft::Communicator& world_;
  Options const& options_;
  BatchSampler const& sampler_;
  std::shared_ptr<Workspace> workspace_;
  std::vector<Variant> variants_;
};

bool same_losses(RunRecord const& a, RunRecord const& b) {
  return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                    [](StepRecord const& x, StepRecord const& y) { return x.loss == y.loss; });
}

void add_variants(Comparison& comparison, weft::Communicator& world, Options const& options, GptModel const& weights,
                  std::optional<weft::EmulatedLink> const& link) {
  using Parameters = std::vector<weft::BufferView>;
  auto const weft_variant = [&](char const* name, weft::BucketerOptions const& bucketer) {
    comparison.add(name, describe(link), weights, [&](Parameters const& parameters) {
      return weft_synchroniser(connect(world, link), parameters, bucketer);
    });
  };
  weft_variant("weft", options.bucketer());
  weft::BucketerOptions serial = options.bucketer();
  serial.overlap = false;
  weft_variant("no overlap", serial);
  weft::BucketerOptions single = options.bucketer();
  single.limits = {1, 1};  // smaller than any tensor: each has a bucket of its own
  weft_variant("no bucketing", single);
  if (why_no_mpi().empty()) {
    comparison.add("MPI_Allreduce", "MPI, not emulated", weights,
                   [](Parameters const& parameters) { return mpi_synchroniser(parameters); });
  }
  comparison.add("compute only", "none", weights,
                 [](Parameters const& parameters) { return no_synchroniser(parameters); });
}

void print(Options const& options, Comparison const& comparison, std::vector<RunSummary> const& runs) {
  RunRecord const& weft_run = *runs.front().run;
  fmt::print("\nSame steps, same start, taking turns step by step: medians of {} steps, {} ranks\n{}",
             weft_run.counted().size(), weft_run.ranks, comparison_table(runs));
  double const hideable = weft_run.median(&weft::OverlapReport::hideable_ms);
  double const hidden = weft_run.median(&weft::OverlapReport::hidden_ms);
  fmt::print("weft hides {:.1f} % of what could be hidden\n", hideable > 0.0 ? 100.0 * hidden / hideable : 100.0);
  auto const& variants = comparison.variants();
  bool const identical = same_losses(weft_run, variants[1].record) && same_losses(weft_run, variants[2].record);
  fmt::print("losses of weft, no overlap and no bucketing: {}\n", identical ? "bit-identical" : "DIFFERENT");
  if (std::string const why = why_no_mpi(); !why.empty()) {
    fmt::print("one blocking MPI_Allreduce per tensor is left out: {}\n", why);
  }
  fmt::print("\n{}", weft::format_overlap_report(weft_run.steps.back().overlap,
                                                 fmt::format("Last step of weft, rank 0, link: {}", weft_run.link)));
  if (!options.report_json.empty()) {
    write_report(options.report_json, options, *variants.front().model, runs);
  }
  if (options.sample > 0) {
    fmt::print("\nSample:\n{}\n",
               printable(generate(*variants.front().model, options.prompt, options.sample, options.seed)));
  }
}

}  // namespace

void compare(weft::Communicator& world, Options const& options, GptModel const& model, BatchSampler const& sampler,
             std::optional<weft::EmulatedLink> const& link, std::shared_ptr<Workspace> const& workspace) {
  Comparison comparison(world, options, sampler, workspace);
  add_variants(comparison, world, options, model, link);
  weft::Trace trace;
  comparison.run(trace);
  if (!options.trace.empty()) {
    trace.write(world, options.trace);
  }
  std::vector<RunSummary> runs;
  for (Variant const& variant : comparison.variants()) {
    runs.push_back(
        summarise(variant.record, &comparison.variants().back().record, comparison.variants().front().record));
  }
  if (world.rank() == 0) {
    print(options, comparison, runs);
  }
}

}  // namespace train_gpt
