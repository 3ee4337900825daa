#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <weft/fixed_schedule.hpp>
#include <weft/gradients.hpp>
#include <weft/plan_executor.hpp>

#include "ddp_tensors.hpp"
#include "passes.hpp"
#include "strategies/whole_replica.hpp"

namespace train_gpt {
namespace {

using weft::OpId;

/// Where the executor keeps gradients, with the interface that DdpTensors asks for.
struct PlannedGradients {
  weft::PlanExecutor* executor = nullptr;
  std::vector<OpId> reduces;  ///< by tensor

  [[nodiscard]] weft::BufferView gradient(std::size_t index) const { return executor->buffer(reduces[index]); }
  void mark_ready(std::size_t) {}  // the plan knows
};

/// Of this host: what is computed is measured before it counts, the link too.
weft::Cluster assumed(int ranks) {
  return {.name = "this host",
          .ranks_per_host = ranks,
          .flops_per_s = 2e10,
          .memory_bytes_per_s = 5e9,
          .within = {1e9, 20e-6},
          .between = {1e9, 20e-6}};
}

weft::StepPlanner planner_of(Options const& options) {
  if (options.step_schedule == "weft") return {};
  if (options.step_schedule == "program") return weft::program_schedule;
  auto const bytes = static_cast<std::int64_t>(*options.schedule_bucket_mb() * 1e6);
  return [bytes](auto const& graph, auto const& model) { return weft::bucket_schedule(graph, model, bytes); };
}

/// Gradients are averaged, every rank updates everything, as a plan of the step says.
class Scheduled final : public WholeReplica {
 public:
  Scheduled(weft::Communicator communicator, Options const& options, GptModel& model, std::vector<weft::Buffer> start)
      : WholeReplica(std::move(communicator), options, model, std::move(start)),
        name_(options.step_schedule),
        passes_(static_cast<std::size_t>(options.accumulate)),
        share_(1.0F / static_cast<float>(passes_)),
        flops_(2000.0 * static_cast<double>(model.parameters().count())),
        tensors_(model.parameters(), parameters_, gradients_) {
    weft::OpGraph graph = build();
    executor_.emplace(communicator_, std::move(graph), std::move(bindings_),
                      weft::PlanExecutorOptions{.cluster = assumed(communicator_.size()),
                                                .planner = planner_of(options),
                                                .blocking = options.step_schedule == "program"});
    gradients_.executor = &*executor_;
  }

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override { return {{"collective", sent_}}; }
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) override {
    return model_.next_byte_logits(text, tensors_);
  }
  [[nodiscard]] std::string report() const override;

 private:
  enum class Phase : std::uint8_t { forward, backward, sending, updating };

  weft::OpGraph build();
  OpId add_pass_alone(weft::OpGraph& graph, std::size_t pass, OpId last);
  void add_updates(weft::OpGraph& graph, std::vector<OpId> const& backward,
                   std::vector<std::vector<OpId>> const& reduces);
  OpId add(weft::OpGraph& graph, Phase phase, weft::OpNode node, std::function<void()> run);
  void forward(std::size_t pass);
  void update_with_norm();
  [[nodiscard]] float loss_scale() { return share_ * control().loss_scale(); }
  void note(StepTimes& times);

  std::string name_;
  std::size_t passes_;
  float share_;   ///< of a pass in the step's loss
  double flops_;  ///< of a pass forward, until it was measured
  PlannedGradients gradients_;
  DdpTensors<PlannedGradients> tensors_;
  std::vector<weft::OpBinding> bindings_;  ///< until the executor has them
  std::optional<weft::PlanExecutor> executor_;
  std::vector<Phase> phases_;       ///< by operator
  std::span<Batch const> batches_;  ///< of the step under way
  float loss_ = 0;
  std::vector<weft::BucketTiming> sent_;
  std::vector<double> seconds_;  ///< of steps that ran the measured plan
};

OpId Scheduled::add(weft::OpGraph& graph, Phase phase, weft::OpNode node, std::function<void()> run) {
  bindings_.push_back({.run = std::move(run)});
  phases_.push_back(phase);
  return graph.add(std::move(node));
}

void Scheduled::forward(std::size_t pass) {
  tensors_.set_accumulating(pass > 0);
  loss_ += share_ * model_.forward(batches_[pass], tensors_);
}

/// A pass that sends nothing.
OpId Scheduled::add_pass_alone(weft::OpGraph& graph, std::size_t pass, OpId last) {
  std::vector<OpId> after;
  if (pass > 0) after.push_back(last);
  last = add(graph, Phase::forward, {.name = fmt::format("forward of pass {}", pass), .flops = flops_, .after = after},
             [this, pass] { forward(pass); });
  return add(graph, Phase::backward,
             {.name = fmt::format("backward of pass {}", pass), .flops = 2 * flops_, .after = {last}},
             [this, pass] { model_.backward(batches_[pass], tensors_, loss_scale()); });
}

/// Passes; of the last one forward, the parts of backward and an all_reduce for each tensor; updates.
weft::OpGraph Scheduled::build() {
  weft::OpGraph graph;
  graph.name = "train_gpt";
  weft::OpGroup everybody{"data", {{}}};
  for (int rank = 0; rank < communicator_.size(); ++rank) everybody.sets[0].push_back(rank);
  weft::GroupId const group = graph.add(std::move(everybody));
  OpId last = 0;
  std::size_t const sends = passes_ - 1;
  for (std::size_t pass = 0; pass < sends; ++pass) last = add_pass_alone(graph, pass, last);
  std::vector<OpId> first;
  if (sends > 0) first.push_back(last);
  last = add(graph, Phase::forward, {.name = "forward", .flops = flops_, .after = first},
             [this, sends] { forward(sends); });
  std::size_t const parts = model_.backward_parts();
  std::vector<OpId> backward(parts);
  std::vector<std::vector<OpId>> reduces(parts);
  gradients_.reduces.resize(parameters_.size());
  for (std::size_t part = 0; part < parts; ++part) {
    backward[part] = last = add(
        graph, Phase::backward,
        {.name = fmt::format("backward {}", part), .flops = 2 * flops_ / static_cast<double>(parts), .after = {last}},
        [this, sends, part] { model_.backward_part(part, batches_[sends], tensors_, loss_scale()); });
    for (std::size_t i = parameters_.size(); i-- > 0;) {
      if (model_.backward_part_of(i) != part) continue;
      weft::BufferView const& parameter = parameters_[i];
      auto const bytes = static_cast<std::int64_t>(parameter.bytes());
      gradients_.reduces[i] = add(graph, Phase::sending,
                                  {.name = model_.parameters().tensors()[i].name,
                                   .kind = weft::OpKind::collective,
                                   .collective = {weft::CollectiveKind::all_reduce, bytes, group},
                                   .after = {last}},
                                  {});
      bindings_.back() = {.run = {}, .count = parameter.count, .dtype = parameter.dtype, .op = weft::ReduceOp::avg};
      reduces[part].push_back(gradients_.reduces[i]);
    }
  }
  add_updates(graph, backward, reduces);
  return graph;
}

/// Of each part's tensors, as soon as they are there; of all of them at once where a norm is taken first.
void Scheduled::add_updates(weft::OpGraph& graph, std::vector<OpId> const& backward,
                            std::vector<std::vector<OpId>> const& reduces) {
  if (control().needs_norm()) {
    std::vector<OpId> after = gradients_.reduces;
    after.push_back(backward.back());
    add(graph, Phase::updating, {.name = "update", .kind = weft::OpKind::update, .flops = 1e6, .after = after},
        [this] { update_with_norm(); });
    return;
  }
  for (std::size_t part = 0; part < backward.size(); ++part) {
    std::vector<OpId> after = reduces[part];
    after.push_back(backward[part]);  // which is the last to read them
    add(graph, Phase::updating,
        {.name = fmt::format("update {}", part), .kind = weft::OpKind::update, .flops = 1e6, .after = after},
        [this, part] {
          for (std::size_t i = parameters_.size(); i-- > 0;) {
            if (model_.backward_part_of(i) == part) optimizer_.update(i, gradients_.gradient(i));
          }
        });
  }
}

void Scheduled::update_with_norm() {
  std::vector<weft::BufferView> gradients;
  for (std::size_t i = 0; i < parameters_.size(); ++i) gradients.push_back(gradients_.gradient(i));
  auto const norm = weft::gradient_norm(gradients, weft::NormType::l2, control().inv_scale());
  optimizer_.step(gradients, control().inputs(norm));
  control().end_step();
}

StepTimes Scheduled::step(std::span<Batch const> batches, double lr) {
  StepTimes times;
  bool const measured = executor_->is_measured();
  times.start = std::chrono::steady_clock::now();
  batches_ = batches;
  loss_ = 0;
  optimizer_.set_lr(lr);
  if (!control().needs_norm()) optimizer_.begin_step();
  executor_->step();
  times.end = std::chrono::steady_clock::now();
  times.loss = loss_;
  note(times);
  if (measured) seconds_.push_back(std::chrono::duration<double>(times.end - times.start).count());
  return times;
}

void Scheduled::note(StepTimes& times) {
  sent_.clear();
  auto const at = executor_->timings();
  auto const& graph = executor_->graph();
  for (weft::Launch const& launch : executor_->plan().launches) {
    auto const op = static_cast<std::size_t>(launch.ops.front());
    weft::Interval const interval{at[op].started, at[op].finished};
    if (launch.resource == weft::Resource::compute) {
      Phase const phase = phases_[op];
      auto& of = phase == Phase::updating ? times.optimizer : phase == Phase::forward ? times.forward : times.backward;
      of.push_back(interval);
      continue;
    }
    weft::BucketTiming timing{0, interval.start, interval.start, interval.end};
    for (OpId const each : launch.ops) {
      timing.bytes += static_cast<std::size_t>(graph.ops[static_cast<std::size_t>(each)].collective.bytes);
      timing.ready = at[static_cast<std::size_t>(graph.ops[static_cast<std::size_t>(each)].after.front())].finished;
    }
    sent_.push_back(timing);
  }
}

std::string Scheduled::report() const {
  auto const& plan = executor_->plan();
  if (seconds_.empty()) return fmt::format("schedule {}: too few steps to measure and plan by", name_);
  std::vector<double> sorted = seconds_;
  std::sort(sorted.begin(), sorted.end());
  return fmt::format(
      "schedule {}: {} collectives in {} launches; step predicted {:.1f} ms, measured {:.1f} ms (median "
      "of {}), bound {:.1f} ms",
      name_, gradients_.reduces.size(), sent_.size(), plan.makespan_s * 1e3, sorted[sorted.size() / 2] * 1e3,
      sorted.size(), plan.bound.best_s() * 1e3);
}

}  // namespace

std::unique_ptr<Strategy> make_scheduled(weft::Communicator communicator, Options const& options, GptModel& model,
                                         std::vector<weft::Buffer> start) {
  return std::make_unique<Scheduled>(std::move(communicator), options, model, std::move(start));
}

}  // namespace train_gpt
