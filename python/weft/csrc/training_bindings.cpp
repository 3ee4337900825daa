#include "training_bindings.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>

#include "device.hpp"
#include "gpu_gradients.hpp"
#include "gpu_optimizer.hpp"
#include "gradient_calls.hpp"
#include "layer_ops.hpp"
#include "parallel.hpp"
#include "sharding_bindings.hpp"
#include "state_memory.hpp"
#include "tensor_optimizer.hpp"
#include "weft/grad_scaler.hpp"
#include "weft/memory.hpp"

namespace py = pybind11;

namespace weft::torch_backend {
namespace {

template <typename Options>
Options decaying(py::dict const& from) {
  Options options;
  options.lr = from["lr"].cast<double>();
  options.weight_decay = from["weight_decay"].cast<double>();
  options.maximize = from["maximize"].cast<bool>();
  return options;
}

template <typename Options>
Options with_betas(py::dict const& from) {
  auto options = decaying<Options>(from);
  std::tie(options.beta1, options.beta2) = from["betas"].cast<std::pair<double, double>>();
  return options;
}

template <typename Options>
Options adam(py::dict const& from) {
  auto options = with_betas<Options>(from);
  options.eps = from["eps"].cast<double>();
  if constexpr (requires { options.amsgrad; }) options.amsgrad = from["amsgrad"].cast<bool>();
  return options;
}

}  // namespace

OptimizerOptions options_of(std::string const& kind, py::dict const& from) {
  if (kind == "AdamW") return adam<AdamWOptions>(from);
  if (kind == "Adam") return adam<AdamOptions>(from);
  if (kind == "Lamb") return adam<LambOptions>(from);
  if (kind == "Lion") return with_betas<LionOptions>(from);
  if (kind == "SGD") {
    auto options = decaying<SgdOptions>(from);
    options.momentum = from["momentum"].cast<double>();
    options.dampening = from["dampening"].cast<double>();
    options.nesterov = from["nesterov"].cast<bool>();
    return options;
  }
  TORCH_CHECK_VALUE(kind == "Adagrad", "weft: there is no optimizer ", kind);
  auto options = decaying<AdagradOptions>(from);
  options.lr_decay = from["lr_decay"].cast<double>();
  options.initial_accumulator_value = from["initial_accumulator_value"].cast<double>();
  options.eps = from["eps"].cast<double>();
  return options;
}

namespace {

using TensorTuple = std::tuple<at::Tensor, std::optional<at::Tensor>, std::vector<at::Tensor>>;
using GroupTuple = std::tuple<std::string, py::dict, std::vector<TensorTuple>>;

std::unique_ptr<TensorOptimizer> make_optimizer(std::vector<GroupTuple> const& from, bool master_weights,
                                                bool zero_gradients) {
  std::vector<TensorOptimizer::Group> groups;
  for (auto const& [kind, options, tensors] : from) {
    auto& group = groups.emplace_back(TensorOptimizer::Group{options_of(kind, options), {}});
    for (auto const& [parameter, master, states] : tensors) group.tensors.push_back({parameter, master, states});
  }
  return std::make_unique<TensorOptimizer>(groups, master_weights, zero_gradients);
}

NormType norm_type(std::string const& name) {
  TORCH_CHECK_VALUE(name == "l2" || name == "inf", "weft: norm type ", name, "; there are l2 and inf");
  return name == "l2" ? NormType::l2 : NormType::inf;
}

at::Device torch_device(Device const& where) {
  if (where.type == DeviceType::cpu) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(where.index)};
}

/// One f32 of the scaler's, as a tensor of no dimensions that keeps the scaler.
at::Tensor number(std::shared_ptr<GradScaler> const& scaler, float const* memory) {
  auto const device = torch_device(scaler->scale_view().device);
  return at::for_blob(const_cast<float*>(memory), {})
      .deleter([scaler](void*) {})
      .options(at::TensorOptions(at::kFloat).device(device))
      .target_device(device)
      .make_tensor();
}

void bind_scaler(py::module_& module) {
  py::class_<GradScaler, std::shared_ptr<GradScaler>>(module, "LossScale")
      .def(py::init([](double scale, double growth, double backoff, int interval, int hysteresis, bool enabled,
                       at::Device device) {
             return as_torch([&] {
               return made<GradScaler>(GradScalerOptions{scale, growth, backoff, interval, hysteresis, enabled},
                                       weft_device(device));
             });
           }),
           py::arg("init_scale"), py::arg("growth_factor"), py::arg("backoff_factor"), py::arg("growth_interval"),
           py::arg("hysteresis"), py::arg("enabled"), py::arg("device"), py::call_guard<py::gil_scoped_release>())
      .def("scale",
           [](std::shared_ptr<GradScaler> const& self) {
             return number(self, static_cast<float const*>(self->scale_view().data));
           })
      .def("inv_scale", [](std::shared_ptr<GradScaler> const& self) { return number(self, self->inputs().inv_scale); })
      .def("found_inf", [](std::shared_ptr<GradScaler> const& self) { return number(self, self->inputs().found_inf); })
      .def("update",
           [](GradScaler& self) {
             auto const where = self.scale_view().device;
             if (where.type == DeviceType::cpu) return self.update();
             auto const stream = current_stream(torch_device(where));
             self.update(&stream);
           })
      .def(
          "update_to", [](GradScaler& self, double scale) { as_torch([&] { self.update_to(scale); }); },
          py::arg("scale"), py::call_guard<py::gil_scoped_release>())
      .def(
          "state",
          [](GradScaler const& self) {
            auto const state = self.state();
            return std::make_tuple(state.scale, state.growth_tracker, state.hysteresis_left);
          },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "set_state",
          [](GradScaler& self, float scale, std::int64_t tracker, std::int64_t left) {
            as_torch([&] { self.set_state({scale, tracker, left}); });
          },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "set_options",
          [](GradScaler& self, double scale, double growth, double backoff, int interval, int hysteresis,
             bool enabled) {
            as_torch([&] { self.set_options({scale, growth, backoff, interval, hysteresis, enabled}); });
          },
          py::arg("init_scale"), py::arg("growth_factor"), py::arg("backoff_factor"), py::arg("growth_interval"),
          py::arg("hysteresis"), py::arg("enabled"));
}

#if WEFT_TORCH_CUDA_TRAINING
std::shared_ptr<GpuOptimizer> make_gpu_optimizer(std::string const& kind, py::dict const& options,
                                                 std::vector<TensorTuple> const& from, std::int64_t steps,
                                                 bool master_weights, bool zero_gradients) {
  std::vector<OptimizedTensor> tensors;
  for (auto const& [parameter, master, states] : from) tensors.push_back({parameter, master, states});
  auto const given = options_of(kind, options);
  py::gil_scoped_release const released;  // it waits for the GPU
  return as_torch([&] { return made<GpuOptimizer>(given, std::move(tensors), steps, master_weights, zero_gradients); });
}

void bind_gpu(py::module_& module) {
  using release = py::call_guard<py::gil_scoped_release>;
  py::class_<GpuOptimizer, std::shared_ptr<GpuOptimizer>>(module, "GpuOptimizer")
      .def(py::init(&make_gpu_optimizer), py::arg("kind"), py::arg("options"), py::arg("tensors"), py::arg("steps"),
           py::arg("master_weights"), py::arg("zero_gradients"))
      .def("set_options",
           [](GpuOptimizer& self, std::string const& kind, py::dict const& options) {
             as_torch([&] { self.set_options(options_of(kind, options)); });
           })
      .def(
          "step",
          [](GpuOptimizer& self, std::vector<at::Tensor> const& gradients, std::optional<at::Tensor> const& lr,
             std::optional<at::Tensor> const& inv_scale, std::optional<at::Tensor> const& clip,
             std::optional<at::Tensor> const& found_inf) {
            as_torch([&] { self.step(gradients, {lr, inv_scale, clip, found_inf}); });
          },
          py::arg("gradients"), py::arg("lr"), py::arg("inv_scale"), py::arg("clip"), py::arg("found_inf"), release());
  module.def(
      "state_memory_on_gpu",
      [](std::vector<std::int64_t> const& sizes, at::Device device, MemoryAccount const& account) {
        MemoryAccount::Binding const bound(account);
        return as_torch([&] { return state_memory_on_gpu(sizes, device); });
      },
      release());
  module.def(
      "measure_on_gpu",
      [](std::vector<at::Tensor> const& gradients, std::string const& type, std::optional<at::Tensor> const& inv_scale,
         double max_norm, at::Tensor const& found_inf, std::string const& call) {
        auto const measured = as_torch(
            [&] { return measure_on_gpu(gradients, norm_type(type), inv_scale, max_norm, found_inf, call.c_str()); });
        return std::make_pair(measured.norm, measured.clip);
      },
      release());
  module.def(
      "scale_on_gpu",
      [](std::vector<at::Tensor> const& gradients, at::Tensor const& factor, std::optional<at::Tensor> const& found_inf,
         std::string const& call) { as_torch([&] { scale_on_gpu(gradients, factor, found_inf, call.c_str()); }); },
      release());
}
#else
void bind_gpu(py::module_& /*module*/) {}
#endif

}  // namespace

void bind_training(py::module_& module) {
  using release = py::call_guard<py::gil_scoped_release>;
  py::class_<TensorOptimizer>(module, "TensorOptimizer")
      .def(py::init(&make_optimizer), py::arg("groups"), py::arg("master_weights"), py::arg("zero_gradients"))
      .def("set_options", [](TensorOptimizer& self, std::size_t group, std::string const& kind,
                             py::dict const& options) { self.set_options(group, options_of(kind, options)); })
      .def("step", &TensorOptimizer::step, release());
  module.def("threads_that_take_parts", &threads_that_take_parts, release());
  module.def("is_dense", [](at::Tensor const& one) { return one.is_non_overlapping_and_dense() && !one.is_neg(); });
  module.def(
      "state_memory",
      [](std::vector<std::int64_t> const& sizes, MemoryAccount const& account) {
        MemoryAccount::Binding const bound(account);
        MemoryScope const scope(MemoryKind::optimizer);
        return as_torch([&] { return state_memory(sizes); });
      },
      release());
  module.def(
      "measure_gradients",
      [](std::vector<at::Tensor> const& gradients, std::string const& type, float factor, std::string const& call) {
        return measure_gradients(gradients, norm_type(type), factor, call.c_str());
      },
      release());
  module.def(
      "scale_gradients",
      [](std::vector<at::Tensor> const& gradients, float factor, std::string const& call) {
        return scale_gradients(gradients, factor, call.c_str());
      },
      release());
  if (has_device_layers()) module.attr("device_layers") = true;
  bind_scaler(module);
  bind_gpu(module);
  bind_sharding(module);
}

}  // namespace weft::torch_backend
