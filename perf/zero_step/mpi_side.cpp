#include "zero_step/sides.hpp"

#ifdef WEFT_WITH_MPI
#include <mpi.h>

#include <bit>
#include <cmath>
#endif

namespace weft::perf {

#ifdef WEFT_WITH_MPI
namespace {

struct Scalars {
  float factor, decay, beta1, beta2, step_size, inv_sqrt_bias2, eps;
};

std::uint16_t to_bf16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

// One element at a time, rounded to bf16 in the same loop.
#if defined(__clang__)
#define WEFT_PERF_SCALAR_LOOP _Pragma("clang loop vectorize(disable) interleave(disable)")
#define WEFT_PERF_SCALAR
#else
#define WEFT_PERF_SCALAR_LOOP
#define WEFT_PERF_SCALAR __attribute__((optimize("no-tree-vectorize")))
#endif
WEFT_PERF_SCALAR void scalar_adamw(Scalars const& s, std::span<float const> gradients, float* master, float* m,
                                   float* v, std::uint16_t* parameters) {
  WEFT_PERF_SCALAR_LOOP
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    float const g = gradients[i] * s.factor;
    m[i] += (1 - s.beta1) * (g - m[i]);
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
    master[i] = master[i] * s.decay - s.step_size * (m[i] / (std::sqrt(v[i]) * s.inv_sqrt_bias2 + s.eps));
    parameters[i] = to_bf16(master[i]);
  }
}

class MpiSide : public Side {
 public:
  MpiSide(Communicator& world, Workload const& workload, std::shared_ptr<FlatModel> model)
      : world_(world),
        workload_(workload),
        model_(std::move(model)),
        reduced_(Buffer::host(model_->master.count(), DataType::f32)),
        exp_avg_(Buffer::host(model_->master.count(), DataType::f32)),
        exp_avg_sq_(Buffer::host(model_->master.count(), DataType::f32)) {}

  void phase() override {
    parts_.clear();
    int const mine = static_cast<int>(reduced_.count());
    timed("MPI_Reduce_scatter", [&] {
      MPI_Reduce_scatter_block(model_->gradients.data(), reduced_.data(), mine, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    timed("scalar AdamW", [&] { update(); });
    timed("MPI_Allgather", [&] {
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_UINT16_T, model_->parameters.data(), mine, MPI_UINT16_T, MPI_COMM_WORLD);
    });
  }

  [[nodiscard]] std::vector<float> masters() override { return model_->whole_master(world_); }

 private:
  void update() {
    AdamWOptions const& o = workload_.adamw;
    ++step_;
    double const bias1 = 1 - std::pow(o.beta1, step_);
    double const bias2 = 1 - std::pow(o.beta2, step_);
    auto const f = [](double value) { return static_cast<float>(value); };
    Scalars const scalars{f(1 / (static_cast<double>(workload_.loss_scale) * world_.size())),
                          f(1 - o.lr * o.weight_decay),
                          f(o.beta1),
                          f(o.beta2),
                          f(o.lr / bias1),
                          f(1 / std::sqrt(bias2)),
                          f(o.eps)};
    scalar_adamw(scalars, reduced_.as<float>(), model_->master.as<float>().data(), exp_avg_.as<float>().data(),
                 exp_avg_sq_.as<float>().data(), static_cast<std::uint16_t*>(model_->parameter_shard().data));
  }
  [[nodiscard]] std::vector<BufferView> gradients() const override { return {model_->gradients.view()}; }
  [[nodiscard]] std::vector<BufferView> parameters() const override { return {model_->parameters.view()}; }

  Communicator& world_;
  Workload workload_;
  std::shared_ptr<FlatModel> model_;
  Buffer reduced_, exp_avg_, exp_avg_sq_;
  int step_ = 0;
};

bool started_by_mpirun(int ranks) {
  int initialized = 0;
  int size = 0;
  if (MPI_Initialized(&initialized) != MPI_SUCCESS || initialized == 0) return false;
  return MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS && size == ranks;
}

}  // namespace

std::unique_ptr<Side> mpi_side(Communicator& world, Workload const& workload, std::shared_ptr<FlatModel> model) {
  if (!started_by_mpirun(world.size())) return nullptr;
  return std::make_unique<MpiSide>(world, workload, std::move(model));
}

#else

std::unique_ptr<Side> mpi_side(Communicator&, Workload const&, std::shared_ptr<FlatModel>) {
  return nullptr;
}

#endif

}  // namespace weft::perf
