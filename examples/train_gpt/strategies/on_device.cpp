#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <weft/cuda.hpp>
#include <weft/cuda_graph.hpp>
#include <weft/error.hpp>

#include "device/device_clock.hpp"
#include "device/device_replica.hpp"
#include "device/gpt_on_device.hpp"
#include "device/step_buffers.hpp"
#include "strategies/strategy.hpp"

namespace train_gpt {
namespace {

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
        eager_steps_(options.bucket_policy == "optimal" ? 2 : 1),
        model_(options.model, {pass_batch_, options.recompute, options.parameter_type()}, stream_),
        buffers_(passes_, static_cast<std::size_t>(pass_batch_ * options.model.seq),
                 static_cast<std::size_t>(options.model.seq), stream_.device().index),
        logits_(weft::cuda::allocate_pinned(GptConfig::kVocabulary, weft::DataType::f32)),
        clock_(stream_),
        replica_(make_replica(
            {communicator_, options, parameters, buckets(options), control(), stream_, clock_, compressor()})) {}

  [[nodiscard]] StepTimes step(std::span<Batch const> batches, double lr) override;
  [[nodiscard]] std::vector<Traffic> traffic() const override { return traffic_; }
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
    buckets.timed = !records_;
    return buckets;
  }
  void record_graph();
  void enqueue_step();

  weft::Communicator communicator_;
  weft::Stream stream_;
  std::size_t passes_;
  int pass_batch_;
  bool records_;
  int eager_steps_;  ///< still to come before one is recorded
  GptOnDevice model_;
  StepBuffers buffers_;
  weft::Buffer logits_;  ///< of one byte, for the host
  DeviceClock clock_;
  std::unique_ptr<DeviceReplica> replica_;
  std::vector<Traffic> traffic_;  ///< of the last step
  std::optional<weft::cuda::Graph> graph_;
  bool after_step_ = false;  ///< what ran last was a step, which left things as the next one finds them
  std::int64_t applied_ = 0;
};

// The first step moves the gradients, so a graph is made of the second one; where it made larger buckets of them, of
// the third, for what sends them takes memory in the second.
StepTimes OnDevice::step(std::span<Batch const> batches, double lr) {
  StepTimes times;
  times.start = std::chrono::steady_clock::now();
  buffers_.write(batches, lr);
  if (records_ && after_step_ && eager_steps_ <= 0 && !graph_) record_graph();
  if (graph_) {
    graph_->launch(stream_);
  } else {
    enqueue_step();
    --eager_steps_;
  }
  stream_.synchronize();
  times.end = std::chrono::steady_clock::now();
  if (graph_) {
    times.backward.push_back(times.step());  // a graph's parts are not told apart
    traffic_.clear();
  } else {
    clock_.read(times);
    auto const at = clock_.origin_time(times);
    traffic_ = replica_->traffic(clock_.origin(), at);
    for (Traffic& one : traffic_) one.buckets = since(times.start, one.buckets);  // some were sent by the step before
    auto const updates = replica_->updates(clock_.origin(), at);
    times.optimizer.insert(times.optimizer.begin(), updates.begin(), updates.end());
  }
  for (float const loss : buffers_.losses()) times.loss += loss / static_cast<float>(passes_);
  after_step_ = true;
  if (!buffers_.overflowed()) ++applied_;
  return times;
}

void OnDevice::record_graph() {
  replica_->join();  // what was enqueued outside of a graph cannot be waited for inside
  clock_.set_running(false);
  graph_ = weft::cuda::Graph::record(stream_, [&] {
    enqueue_step();
    replica_->join();
  });
  clock_.set_running(true);
}

void OnDevice::enqueue_step() {
  float const share = 1.0F / static_cast<float>(passes_);
  auto& scaler = control().scaler();
  clock_.begin_step();
  buffers_.enqueue_upload(stream_);
  for (std::size_t i = 0; i < passes_; ++i) {
    auto const pass = [&] {
      clock_.start(&StepTimes::forward);
      model_.forward(buffers_.batch(i), *replica_, buffers_.loss(i));
      clock_.stop();
      clock_.start(&StepTimes::backward);
      model_.backward(buffers_.batch(i), *replica_, share, scaler.scale_view());
      clock_.stop();
    };
    replica_->set_accumulating(i > 0);
    i + 1 < passes_ ? replica_->without_sending(pass) : pass();
  }
  replica_->enqueue_update(buffers_.lr());
  buffers_.enqueue_download(scaler.found_inf_view(), stream_);
  if (control().needs_norm()) scaler.update(&stream_);
  clock_.stop();
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
