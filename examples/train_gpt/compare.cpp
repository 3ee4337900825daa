#include "compare.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "ddp_tensors.hpp"
#include "link.hpp"
#include "local_tensors.hpp"
#include "passes.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "sample.hpp"
#include "synchroniser.hpp"
#include "trainer.hpp"

namespace train_gpt {
namespace {

/// One way to communicate, with weights and optimizer state of its own.
struct Variant {
  Variant(GptParameters const& model, std::uint64_t seed) : weights(model, seed) {}

  RunRecord record;
  LocalTensors weights;
  std::unique_ptr<Synchroniser> synchroniser;
  std::unique_ptr<DdpTensors<Synchroniser>> tensors;
  std::unique_ptr<weft::Optimizer> optimizer;
};

class Comparison {
 public:
  Comparison(weft::Communicator& world, Options const& options, GptModel& model, BatchSampler const& sampler)
      : world_(world), options_(options), model_(model), sampler_(sampler) {}

  /// Adds a variant; `make` turns its parameters into its Synchroniser.
  template <typename Make>
  void add(std::string const& name, std::string const& link, Make const& make) {
    Variant variant(model_.parameters(), options_.seed);
    variant.record = {name, link, world_.size(), static_cast<double>(options_.batch) * options_.model.seq, {}, 0};
    std::vector<weft::BufferView> const& parameters = variant.weights.parameters();
    variant.synchroniser = make(parameters);
    variant.tensors =
        std::make_unique<DdpTensors<Synchroniser>>(model_.parameters(), parameters, *variant.synchroniser);
    variant.optimizer =
        std::make_unique<weft::Optimizer>(parameters, options_.optimizer_options(), options_.optimizer_settings());
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
  [[nodiscard]] GptModel& model() noexcept { return model_; }

 private:
  void take_step(Variant& variant, int step, weft::Trace* trace) {
    Batch const batch = sampler_.sample(step);
    variant.optimizer->set_lr(options_.schedule().at(step));
    world_.barrier();
    StepTimes times;
    times.start = std::chrono::steady_clock::now();
    ComputeClock clock;
    times.loss = run_pass(model_, batch, *variant.tensors, 1.0F, clock, times);
    update_as_averages_arrive(*variant.synchroniser, *variant.optimizer, variant.weights.parameters().size(), times);
    times.end = std::chrono::steady_clock::now();
    auto const buckets = variant.synchroniser->timings();
    Traffic const traffic[]{{"bucket", {buckets.begin(), buckets.end()}}};
    variant.record.steps.push_back({step, mean_over_ranks(world_, times.loss), overlap_of(times, traffic), false});
    if (trace != nullptr && !options_.trace.empty()) {
      add_to_trace(*trace, step, times, traffic);
    }
  }

  weft::Communicator& world_;
  Options const& options_;
  GptModel& model_;
  BatchSampler const& sampler_;
  std::vector<Variant> variants_;
};

bool same_losses(RunRecord const& a, RunRecord const& b) {
  return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                    [](StepRecord const& x, StepRecord const& y) { return x.loss == y.loss; });
}

void add_weft(Comparison& comparison, std::string const& name, weft::Communicator& world,
              std::optional<weft::EmulatedLink> const& link, weft::BucketerOptions const& bucketer) {
  comparison.add(name, describe_carrier(world, link), [&](std::vector<weft::BufferView> const& parameters) {
    return weft_synchroniser(connect(world, link), parameters, bucketer);
  });
}

void add_caps(Comparison& comparison, weft::Communicator& world, Options const& options,
              std::optional<weft::EmulatedLink> const& link) {
  for (double const cap : options.compare_caps) {
    Options capped = options;
    capped.bucket_policy = "caps";
    capped.bucket_mb = capped.first_bucket_mb = cap;
    capped.last_bucket_mb = std::min(cap, options.last_bucket_mb);
    add_weft(comparison, fmt::format("cap {:g} MiB", cap), world, link, capped.bucketer());
  }
}

void add_other_ways(Comparison& comparison, weft::Communicator& world, Options const& options,
                    std::optional<weft::EmulatedLink> const& link) {
  weft::BucketerOptions serial = options.bucketer();
  serial.overlap = false;
  add_weft(comparison, "no overlap", world, link, serial);
  weft::BucketerOptions single = options.bucketer();
  single.limits = {1, 1};  // smaller than any tensor: each has a bucket of its own
  single.policy = weft::BucketPolicy::caps;
  add_weft(comparison, "no bucketing", world, link, single);
  if (why_no_mpi().empty()) {
    comparison.add("MPI_Allreduce", "MPI, not emulated",
                   [](std::vector<weft::BufferView> const& parameters) { return mpi_synchroniser(parameters); });
  }
}

void add_variants(Comparison& comparison, weft::Communicator& world, Options const& options,
                  std::optional<weft::EmulatedLink> const& link) {
  add_weft(comparison, "weft", world, link, options.bucketer());
  if (options.compare_caps.empty()) {
    add_other_ways(comparison, world, options, link);
  } else {
    add_caps(comparison, world, options, link);
  }
  comparison.add("compute only", "none",
                 [](std::vector<weft::BufferView> const& parameters) { return no_synchroniser(parameters); });
}

void print(Options const& options, Comparison& comparison, std::vector<RunSummary> const& runs) {
  RunRecord const& weft_run = *runs.front().run;
  fmt::print("\nSame steps, same start, taking turns step by step: medians of {} steps, {} ranks\n{}",
             weft_run.counted().size(), weft_run.ranks, comparison_table(runs));
  double const hideable = weft_run.median(&weft::OverlapReport::hideable_ms);
  double const hidden = weft_run.median(&weft::OverlapReport::hidden_ms);
  fmt::print("weft hides {:.1f} % of what could be hidden\n", hideable > 0.0 ? 100.0 * hidden / hideable : 100.0);
  auto const& variants = comparison.variants();
  std::size_t const exact = options.compare_caps.empty() ? 3 : 1 + options.compare_caps.size();
  bool const identical = std::all_of(variants.begin() + 1, variants.begin() + static_cast<std::ptrdiff_t>(exact),
                                     [&](Variant const& variant) { return same_losses(weft_run, variant.record); });
  fmt::print("losses of {}: {}\n",
             options.compare_caps.empty() ? "weft, no overlap and no bucketing" : "weft and all caps",
             identical ? "bit-identical" : "DIFFERENT");
  if (std::string const why = why_no_mpi(); options.compare_caps.empty() && !why.empty()) {
    fmt::print("one blocking MPI_Allreduce per tensor is left out: {}\n", why);
  }
  fmt::print("\n{}", weft::format_overlap_report(weft_run.steps.back().overlap,
                                                 fmt::format("Last step of weft, rank 0, link: {}", weft_run.link)));
  if (!options.report_json.empty()) {
    write_report(options.report_json, options, comparison.model().parameters(), runs, nlohmann::json::array());
  }
  if (options.sample > 0) {
    fmt::print("\nSample:\n{}\n", printable(generate(
                                      [&](std::span<std::uint8_t const> text) {
                                        return comparison.model().next_byte_logits(text, *variants.front().tensors);
                                      },
                                      options)));
  }
}

}  // namespace

void compare(weft::Communicator& world, Options const& options, GptModel& model, BatchSampler const& sampler,
             std::optional<weft::EmulatedLink> const& link) {
  Comparison comparison(world, options, model, sampler);
  add_variants(comparison, world, options, link);
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
