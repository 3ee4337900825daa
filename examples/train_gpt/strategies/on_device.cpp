#include <optional>
#include <utility>

#include <fmt/format.h>

#include <weft/convert.hpp>
#include <weft/cuda.hpp>
#include <weft/cuda_graph.hpp>
#include <weft/data_parallel.hpp>
#include <weft/error.hpp>
#include <weft/event.hpp>

#include "device/gpt_on_device.hpp"
#include "device/step_buffers.hpp"
#include "strategies/strategy.hpp"

namespace train_gpt {
namespace {

using weft::BufferView;

/// A replica's parameters, and gradients in DataParallel's buckets.
class ReplicaOnDevice final : public DeviceTensors {
 public:
  ReplicaOnDevice(std::vector<BufferView> parameters, weft::DataParallel& ddp)
      : parameters_(std::move(parameters)), ddp_(ddp) {}

  void set_accumulating(bool accumulating) noexcept { accumulating_ = accumulating; }

  [[nodiscard]] BufferView parameter(std::size_t index) override { return parameters_[index]; }
  [[nodiscard]] BufferView gradient(std::size_t index) override { return ddp_.gradient(index); }
  void gradient_done(std::size_t index) override { ddp_.mark_ready(index); }
  [[nodiscard]] float keep() const override { return accumulating_ ? 1.0F : 0.0F; }

 private:
  std::vector<BufferView> parameters_;
  weft::DataParallel& ddp_;
  bool accumulating_ = false;
};

/// Points of a step in the GPU's time.
class Marks {
 public:
  void begin(std::size_t passes) {
    events_.clear();
    events_.reserve(2 * passes + 2);
  }
  void add(weft::Stream const& stream) { events_.emplace_back().record(stream); }

  /// Forward and backward of each pass, then the update; from `start`, when the host began. All are reached.
  void read(StepTimes& times) const {
    for (std::size_t i = 0; i + 1 < events_.size(); ++i) {
      auto& part = i + 2 == events_.size() ? times.optimizer : i % 2 == 0 ? times.forward : times.backward;
      part.push_back({times.start + events_.front().elapsed_until(events_[i]),
                      times.start + events_.front().elapsed_until(events_[i + 1])});
    }
  }

 private:
  std::vector<weft::Event> events_;
};

/// Replicated (replicated.cpp) with everything on a GPU. A step only enqueues; then the host waits once, for the loss.
class ReplicatedOnDevice final : public Strategy {
 public:
  ReplicatedOnDevice(weft::Communicator communicator, Options const& options, GptParameters const& parameters,
                     weft::Stream stream)
      : Strategy(options, stream.device()),
        communicator_(std::move(communicator)),
        stream_(std::move(stream)),
        passes_(static_cast<std::size_t>(options.accumulate)),
        pass_batch_(options.batch / communicator_.size() / options.accumulate),
        records_(options.cuda_graph),
        model_(options.model, {pass_batch_, options.recompute, options.parameter_type()}, stream_),
        buffers_(passes_, static_cast<std::size_t>(pass_batch_ * options.model.seq),
                 static_cast<std::size_t>(options.model.seq), stream_.device().index),
        logits_(weft::cuda::allocate_pinned(GptConfig::kVocabulary, weft::DataType::f32)),
        memory_(start_values(options, parameters)),
        parameters_(views_of(memory_)),
        ddp_(communicator_, parameters_, bucketer(options)),
        optimizer_(parameters_, options.optimizer_options(), options.optimizer_settings()),
        tensors_(parameters_, ddp_) {}

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override { return {}; }
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) override;

  [[nodiscard]] std::int64_t applied_steps() const override { return applied_; }
  void set_applied_steps(std::int64_t steps) override {
    optimizer_.set_step_count(steps);
    applied_ = steps;
  }
  [[nodiscard]] std::size_t state_count() const override { return optimizer_.state_names(0).size(); }
  [[nodiscard]] std::vector<float> values(std::size_t index) override {
    std::vector<float> values(parameters_[index].count);
    weft::cuda::copy(BufferView(std::span(values)), optimizer_.master(index), stream_);
    stream_.synchronize();
    return values;
  }
  void set_values(std::size_t index, std::span<float const> values) override {
    weft::cuda::copy(optimizer_.master(index), values, stream_);
    stream_.synchronize();
    if (parameters_[index].dtype != weft::DataType::f32) {
      weft::convert(optimizer_.master(index), parameters_[index]);
    }
  }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) override {
    return optimizer_.state(index, which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    optimizer_.set_state(index, which, values);
  }

  void save(weft::CheckpointSaver&, std::span<weft::NamedParameter const>, weft::CheckpointInfo const&) override {
    refuse_folder();
  }
  void load(weft::Checkpoint const&, weft::Communicator&, std::span<weft::NamedParameter const>) override {
    refuse_folder();
  }

 private:
  [[nodiscard]] weft::BucketerOptions bucketer(Options const& options) const {
    weft::BucketerOptions bucketer = Strategy::bucketer(options);
    bucketer.compute = stream_;
    return bucketer;
  }
  [[nodiscard]] std::vector<weft::Buffer> start_values(Options const& options, GptParameters const& parameters);
  [[noreturn]] static void refuse_folder() {
    throw weft::Error(weft::ErrorCode::unsupported,
                      "--device cuda: a checkpoint's folder is for the CPU so far; take a file of --save");
  }

  void enqueue_step();
  void enqueue_update();
  void mark() {
    if (!recording_) marks_.add(stream_);
  }

  weft::Communicator communicator_;
  weft::Stream stream_;
  std::size_t passes_;
  int pass_batch_;
  bool records_;
  GptOnDevice model_;
  StepBuffers buffers_;
  weft::Buffer logits_;  ///< of one byte, for the host
  std::vector<weft::Buffer> memory_;
  std::vector<BufferView> parameters_;
  weft::DataParallel ddp_;
  weft::Optimizer optimizer_;
  ReplicaOnDevice tensors_;
  Marks marks_;
  bool recording_ = false;
  std::vector<BufferView> gradients_;  ///< where they are since generation_
  std::optional<weft::cuda::GradientList> list_;
  std::size_t generation_ = SIZE_MAX;
  std::optional<weft::cuda::Graph> graph_;
  std::int64_t steps_ = 0;  ///< made here
  std::int64_t applied_ = 0;
};

std::vector<weft::Buffer> ReplicatedOnDevice::start_values(Options const& options, GptParameters const& parameters) {
  std::vector<weft::Buffer> const host = LocalTensors(parameters, options.seed).take(options.parameter_type());
  weft::MemoryScope const scope(weft::MemoryKind::parameters);
  std::vector<weft::Buffer> values;
  for (weft::Buffer const& from : host) {
    values.push_back(weft::cuda::allocate(from.count(), from.dtype(), stream_.device().index));
    weft::cuda::copy(values.back().view(), from.view(), stream_);
  }
  stream_.synchronize();
  return values;
}

// The first step moves the gradients, so a graph is made of the second one.
StepTimes ReplicatedOnDevice::step(std::span<Batch const> batches, double lr) {
  StepTimes times;
  times.start = std::chrono::steady_clock::now();
  buffers_.write(batches, lr);
  if (records_ && steps_ > 0 && !graph_) {
    recording_ = true;
    graph_ = weft::cuda::Graph::record(stream_, [&] { enqueue_step(); });
  }
  if (graph_) {
    graph_->launch(stream_);
  } else {
    enqueue_step();
  }
  stream_.synchronize();
  times.end = std::chrono::steady_clock::now();
  if (graph_) {
    times.backward.push_back(times.step());  // a graph's parts are not told apart
  } else {
    marks_.read(times);
  }
  for (float const loss : buffers_.losses()) times.loss += loss / static_cast<float>(passes_);
  ++steps_;
  if (!buffers_.overflowed()) ++applied_;
  return times;
}

void ReplicatedOnDevice::enqueue_step() {
  float const share = 1.0F / static_cast<float>(passes_);
  auto const scale = control().scaler().scale_view();
  marks_.begin(passes_);
  buffers_.enqueue_upload(stream_);
  mark();
  for (std::size_t i = 0; i < passes_; ++i) {
    auto const pass = [&] {
      model_.forward(buffers_.batch(i), tensors_, buffers_.loss(i));
      mark();
      model_.backward(buffers_.batch(i), tensors_, share, scale);
      mark();
    };
    tensors_.set_accumulating(i > 0);
    i + 1 < passes_ ? ddp_.no_sync(pass) : pass();
  }
  ddp_.finish();
  enqueue_update();
  mark();
}

void ReplicatedOnDevice::enqueue_update() {
  bool const needs_norm = control().needs_norm();
  auto& scaler = control().scaler();
  if (generation_ != ddp_.generation()) {
    generation_ = ddp_.generation();
    gradients_.clear();
    for (std::size_t i = 0; i < parameters_.size(); ++i) gradients_.push_back(ddp_.gradient(i));
    if (needs_norm) list_.emplace(gradients_);
  }
  weft::StepInputs inputs;
  if (needs_norm) {
    inputs = scaler.inputs();
    list_->measure(
        {.inv_scale = inputs.inv_scale, .max_norm = control().max_norm(), .found_inf = scaler.found_inf_view()},
        stream_);
    inputs.clip = list_->clip();
  }
  inputs.lr = buffers_.lr();
  inputs.stream = &stream_;
  optimizer_.step(gradients_, inputs);
  buffers_.enqueue_download(scaler.found_inf_view(), stream_);
  if (needs_norm) scaler.update(&stream_);
}

std::span<float const> ReplicatedOnDevice::next_byte_logits(std::span<std::uint8_t const> text) {
  auto const logits = model_.logits(buffers_.upload_text(text, stream_), text.size(), tensors_);
  auto const* const last =
      static_cast<float const*>(logits.data) + (text.size() - 1) * std::size_t{GptConfig::kVocabulary};
  weft::cuda::copy(logits_.view(), {last, logits_.count(), weft::DataType::f32, logits.device}, stream_);
  stream_.synchronize();
  return logits_.as<float>();
}

}  // namespace

std::unique_ptr<Strategy> make_on_device(weft::Communicator communicator, Options const& options,
                                         GptParameters const& parameters) {
  int const devices = weft::cuda::device_count();
  if (devices == 0) {
    throw weft::Error(weft::ErrorCode::unsupported,
                      "--device cuda: this machine has no GPU that CUDA can use: no device, or no driver");
  }
  weft::Stream stream = weft::cuda::make_stream({.device = communicator.rank() % devices});
  return std::make_unique<ReplicatedOnDevice>(std::move(communicator), options, parameters, std::move(stream));
}

}  // namespace train_gpt
