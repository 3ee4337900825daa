#include <optional>

#include <weft/convert.hpp>
#include <weft/cuda.hpp>
#include <weft/data_parallel.hpp>

#include "device/device_replica.hpp"
#include "local_tensors.hpp"

namespace train_gpt {
namespace {

using weft::BufferView;

class DdpReplica final : public DeviceReplica {
 public:
  explicit DdpReplica(ReplicaSetup const& setup)
      : DeviceReplica(setup.compressor),
        control_(setup.control),
        communicator_(setup.communicator),
        stream_(setup.stream),
        clock_(setup.clock),
        memory_(start_on_device(setup)),
        parameters_(views_of(memory_)),
        ddp_(setup.communicator, parameters_, setup.buckets),
        optimizer_(parameters_, setup.options.optimizer_options(), setup.options.optimizer_settings()) {}

  [[nodiscard]] BufferView parameter(std::size_t index) override { return parameters_[index]; }
  [[nodiscard]] BufferView gradient(std::size_t index) override { return ddp_.gradient(index); }
  void gradient_done(std::size_t index) override { ddp_.mark_ready(index); }
  void without_sending(std::function<void()> const& pass) override { ddp_.no_sync(pass); }
  void enqueue_update(float const* lr) override;
  [[nodiscard]] std::vector<Traffic> traffic(weft::Event const& origin, weft::TimePoint at) const override {
    return {{"bucket", ddp_.bucketer().timings_since(origin, at)}};
  }

  void set_applied_steps(std::int64_t steps) override { optimizer_.set_step_count(steps); }
  [[nodiscard]] std::size_t state_count() const override { return optimizer_.state_names(0).size(); }
  [[nodiscard]] std::vector<float> values(std::size_t index) override {
    std::vector<float> values(parameters_[index].count);
    weft::convert(optimizer_.master(index), BufferView(std::span(values)));
    return values;
  }
  void set_values(std::size_t index, std::span<float const> values) override {
    weft::convert(values, optimizer_.master(index));
    if (parameters_[index].dtype != weft::DataType::f32) weft::convert(values, parameters_[index]);
  }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) override {
    return optimizer_.state(index, which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    optimizer_.set_state(index, which, values);
  }
  void save(weft::CheckpointSaver& saver, std::span<weft::NamedParameter const> parameters,
            weft::CheckpointInfo const& info) override {
    weft::save(saver, communicator_, optimizer_, parameters, info, compressor());
  }
  void load(weft::Checkpoint const& checkpoint, weft::Communicator& world,
            std::span<weft::NamedParameter const> parameters) override {
    weft::load(checkpoint, world, optimizer_, parameters, compressor());
  }

 private:
  /// The first step moves the gradients.
  void look_where_gradients_are();

  StepControl& control_;
  weft::Communicator& communicator_;
  weft::Stream stream_;
  DeviceClock& clock_;
  std::vector<weft::Buffer> memory_;
  std::vector<BufferView> parameters_;
  weft::DataParallel ddp_;
  weft::Optimizer optimizer_;
  std::vector<BufferView> gradients_;  ///< where they are since generation_
  std::optional<weft::cuda::GradientList> list_;
  std::size_t generation_ = SIZE_MAX;
};

void DdpReplica::look_where_gradients_are() {
  if (generation_ == ddp_.generation()) return;
  generation_ = ddp_.generation();
  gradients_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) gradients_.push_back(ddp_.gradient(i));
  if (control_.needs_norm()) list_.emplace(gradients_);
}

void DdpReplica::enqueue_update(float const* lr) {
  ddp_.finish();
  clock_.start(&StepTimes::optimizer);
  look_where_gradients_are();
  weft::StepInputs inputs;
  if (control_.needs_norm()) {
    inputs = control_.scaler().inputs();
    list_->measure({.inv_scale = inputs.inv_scale,
                    .max_norm = control_.max_norm(),
                    .found_inf = control_.scaler().found_inf_view()},
                   stream_);
    inputs.clip = list_->clip();
  }
  inputs.lr = lr;
  inputs.stream = &stream_;
  optimizer_.step(gradients_, inputs);
}

}  // namespace

std::unique_ptr<DeviceReplica> make_ddp_replica(ReplicaSetup const& setup) {
  return std::make_unique<DdpReplica>(setup);
}

std::vector<weft::Buffer> start_on_device(ReplicaSetup const& setup) {
  weft::Stream stream = setup.stream;
  auto const host = LocalTensors(setup.parameters, setup.options.seed).take(setup.options.parameter_type());
  weft::MemoryScope const scope(weft::MemoryKind::parameters);
  std::vector<weft::Buffer> values;
  for (weft::Buffer const& from : host) {
    values.push_back(weft::cuda::allocate(from.count(), from.dtype(), stream.device().index));
    weft::cuda::copy(values.back().view(), from.view(), stream);
  }
  stream.synchronize();
  return values;
}

}  // namespace train_gpt
