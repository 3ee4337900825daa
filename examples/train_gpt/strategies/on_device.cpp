#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <weft/cuda.hpp>
#include <weft/cuda_graph.hpp>
#include <weft/error.hpp>
#include <weft/event.hpp>

#include "device/device_replica.hpp"
#include "device/gpt_on_device.hpp"
#include "device/step_buffers.hpp"
#include "strategies/strategy.hpp"

namespace train_gpt {
namespace {

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

std::unique_ptr<DeviceReplica> make_replica(ReplicaSetup const& setup) {
  std::string const& strategy = setup.options.strategy;
  if (strategy == "zero3" || strategy == "hsdp") return make_fully_sharded_replica(setup);
  return strategy == "ddp" ? make_ddp_replica(setup) : make_zero_replica(setup);
}

/// Everything on a GPU. A step only enqueues; then the host waits once, for the loss.
class OnDevice final : public Strategy {
 public:
  OnDevice(weft::Communicator communicator, Options const& options, GptParameters const& parameters,
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
        replica_(
            make_replica({communicator_, options, parameters, buckets(options), control(), stream_, compressor()})) {}

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override { return {}; }
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) override;

  [[nodiscard]] std::int64_t applied_steps() const override { return applied_; }
  void set_applied_steps(std::int64_t steps) override {
    replica_->set_applied_steps(steps);
    applied_ = steps;
  }
  [[nodiscard]] std::size_t state_count() const override { return replica_->state_count(); }
  [[nodiscard]] std::vector<float> values(std::size_t index) override { return replica_->values(index); }
  void set_values(std::size_t index, std::span<float const> values) override { replica_->set_values(index, values); }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) override {
    return replica_->state(index, which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    replica_->set_state(index, which, values);
  }

  void save(weft::CheckpointSaver& saver, std::span<weft::NamedParameter const> parameters,
            weft::CheckpointInfo const& info) override {
    replica_->save(saver, parameters, info);
  }
  void load(weft::Checkpoint const& checkpoint, weft::Communicator& world,
            std::span<weft::NamedParameter const> parameters) override {
    replica_->load(checkpoint, world, parameters);
    applied_ = checkpoint.info().step;
  }

 private:
  [[nodiscard]] weft::BucketerOptions buckets(Options const& options) const {
    weft::BucketerOptions buckets = bucketer(options);
    buckets.compute = stream_;
    return buckets;
  }
  void record_graph();
  void enqueue_step();
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
  std::unique_ptr<DeviceReplica> replica_;
  Marks marks_;
  bool recording_ = false;
  std::optional<weft::cuda::Graph> graph_;
  bool after_step_ = false;  ///< what ran last was a step, which left things as the next one finds them
  std::int64_t applied_ = 0;
};

// The first step moves the gradients, so a graph is made of the second one.
StepTimes OnDevice::step(std::span<Batch const> batches, double lr) {
  StepTimes times;
  times.start = std::chrono::steady_clock::now();
  buffers_.write(batches, lr);
  if (records_ && after_step_ && !graph_) record_graph();
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
  after_step_ = true;
  if (!buffers_.overflowed()) ++applied_;
  return times;
}

void OnDevice::record_graph() {
  replica_->join();  // what was enqueued outside of a graph cannot be waited for inside
  recording_ = true;
  graph_ = weft::cuda::Graph::record(stream_, [&] {
    enqueue_step();
    replica_->join();
  });
  recording_ = false;
}

void OnDevice::enqueue_step() {
  float const share = 1.0F / static_cast<float>(passes_);
  auto& scaler = control().scaler();
  marks_.begin(passes_);
  buffers_.enqueue_upload(stream_);
  mark();
  for (std::size_t i = 0; i < passes_; ++i) {
    auto const pass = [&] {
      model_.forward(buffers_.batch(i), *replica_, buffers_.loss(i));
      mark();
      model_.backward(buffers_.batch(i), *replica_, share, scaler.scale_view());
      mark();
    };
    replica_->set_accumulating(i > 0);
    i + 1 < passes_ ? replica_->without_sending(pass) : pass();
  }
  replica_->enqueue_update(buffers_.lr());
  buffers_.enqueue_download(scaler.found_inf_view(), stream_);
  if (control().needs_norm()) scaler.update(&stream_);
  mark();
}

std::span<float const> OnDevice::next_byte_logits(std::span<std::uint8_t const> text) {
  graph_.reset();  // this pass may leave other units here than a step does
  after_step_ = false;
  auto const logits = model_.logits(buffers_.upload_text(text, stream_), text.size(), *replica_);
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
  return std::make_unique<OnDevice>(std::move(communicator), options, parameters, std::move(stream));
}

}  // namespace train_gpt
