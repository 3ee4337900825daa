#include "sharding_bindings.hpp"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoints.hpp"
#include "device.hpp"
#include "replicas.hpp"
#include "sharded_units.hpp"
#include "tuner.hpp"
#include "weft/memory.hpp"

namespace py = pybind11;

namespace weft::torch_backend {
namespace {

using release = py::call_guard<py::gil_scoped_release>;
using Group = c10::intrusive_ptr<ProcessGroupWeft>;
using ParametersTuple = std::tuple<std::string, py::dict, std::vector<at::Tensor>>;  ///< kind, options, parameters

std::vector<TensorGroup> groups_of(std::vector<ParametersTuple> const& from) {
  std::vector<TensorGroup> groups;
  for (auto const& [kind, options, tensors] : from) groups.push_back({options_of(kind, options), tensors});
  return groups;
}

void bind_memory(py::module_& module) {
  py::class_<MemoryAccount>(module, "MemoryAccount")
      .def(py::init([](std::optional<std::size_t> budget) {
             return MemoryAccount(budget.value_or(MemoryAccount::kUnlimited));
           }),
           py::arg("budget") = py::none())
      .def("usage", [](MemoryAccount const& self) {
        std::map<std::string, std::pair<std::size_t, std::size_t>> kinds;
        for (std::size_t i = 0; i < kMemoryKinds; ++i) {
          auto const kind = static_cast<MemoryKind>(i);
          auto const usage = self.usage(kind);
          kinds.emplace(to_string(kind), std::pair(usage.live, usage.peak));
        }
        auto const total = self.total();
        kinds.emplace("total", std::pair(total.live, total.peak));
        return kinds;
      });
  py::class_<MemoryCharge, std::unique_ptr<MemoryCharge>>(module, "MemoryCharge")
      .def(py::init([](MemoryAccount const& account, std::size_t bytes) {
        MemoryAccount::Binding const bound(account);
        return as_torch([&] { return std::make_unique<MemoryCharge>(MemoryKind::activations, bytes); });
      }))
      .def("set", [](MemoryCharge& self, std::ptrdiff_t bytes) { as_torch([&] { self.set(bytes); }); });
}

/// The bytes that a communicator of the group takes besides the data it moves.
std::size_t staging_bytes(ProcessGroupWeft& group) {
  MemoryAccount const account;
  MemoryAccount::Binding const bound(account);
  auto const communicator = group.duplicate();
  return account.total().live;
}

void bind_replicas(py::module_& module) {
  py::class_<Replicas, std::shared_ptr<Replicas>>(module, "Replicas")
      .def(py::init([](Group const& group, std::vector<at::Tensor> parameters, std::size_t first_bytes,
                       std::size_t bytes, bool find_unused, bool rebuild, MemoryAccount const& account) {
             return as_torch([&] {
               return made<Replicas>(*group, std::move(parameters),
                                     Replicas::Settings{first_bytes, bytes, find_unused, rebuild}, account);
             });
           }),
           py::arg("group"), py::arg("parameters"), py::arg("first_bytes"), py::arg("bytes"), py::arg("find_unused"),
           py::arg("rebuild"), py::arg("account"), release())
      .def("gradient", &Replicas::gradient)
      .def("generation", &Replicas::generation)
      .def("follow", &Replicas::follow)
      .def("has_gradient", &Replicas::has_gradient, release())
      .def("mark_ready", &Replicas::mark_ready, release())
      .def("finish", &Replicas::finish, release())
      .def("finish_launching", &Replicas::finish_launching, release())
      .def("wait", &Replicas::wait, release())
      .def("plan", &Replicas::plan)
      .def("set_sync", &Replicas::set_sync, release())
      .def("bytes", &Replicas::bytes);
}

void bind_sharded_model(py::module_& module) {
  py::class_<ShardedModel, std::shared_ptr<ShardedModel>>(module, "ShardedModel")
      .def("step", &ShardedModel::step, release())
      .def("set_options", [](ShardedModel& self, std::size_t group, std::string const& kind,
                             py::dict const& options) { self.set_options(group, options_of(kind, options)); })
      .def("norm", &ShardedModel::norm, release())
      .def("step_count", &ShardedModel::step_count, release())
      .def("set_step_count", &ShardedModel::set_step_count, release())
      .def("state", &ShardedModel::state, release())
      .def("set_state", &ShardedModel::set_state, release())
      .def("state_shard", &ShardedModel::state_shard, release())
      .def("set_state_shard", &ShardedModel::set_state_shard, release())
      .def("share", &ShardedModel::share, release())
      .def("layout", [](ShardedModel const& self, std::size_t index) { return self.layouts()[index]; })
      .def("state_bytes", &ShardedModel::state_bytes)
      .def("shard", [](ShardedModel& self, std::size_t index) {
        auto const mine = self.sharded().shard(index);
        return std::pair(mine.first, mine.count);
      });
}

void bind_sharded_replicas(py::module_& module) {
  py::class_<ShardedReplicas, ShardedModel, std::shared_ptr<ShardedReplicas>>(module, "ShardedReplicas")
      .def(py::init([](Group const& group, std::vector<ParametersTuple> const& from, int stage, std::size_t first_bytes,
                       std::size_t bytes, bool find_unused, bool master_weights, double max_norm, GradScaler* scaler,
                       MemoryAccount const& account) {
             auto const groups = groups_of(from);
             ShardedReplicas::Settings const settings{stage,          first_bytes, bytes, find_unused,
                                                      master_weights, max_norm,    scaler};
             py::gil_scoped_release const released;
             return made<ShardedReplicas>(*group, groups, settings, account);
           }),
           py::arg("group"), py::arg("groups"), py::arg("stage"), py::arg("first_bytes"), py::arg("bytes"),
           py::arg("find_unused"), py::arg("master_weights"), py::arg("max_norm"), py::arg("scaler"),
           py::arg("account"), py::keep_alive<1, 10>())
      .def("parameter", &ShardedReplicas::parameter)
      .def("gradient", &ShardedReplicas::gradient)
      .def("take_gradient", &ShardedReplicas::take_gradient, release())
      .def("generation", &ShardedReplicas::generation)
      .def("follow", &ShardedReplicas::follow)
      .def("mark_ready", &ShardedReplicas::mark_ready, release())
      .def("accumulate", &ShardedReplicas::accumulate, release())
      .def("wait_parameter", &ShardedReplicas::wait_parameter, release())
      .def("wait_parameters", &ShardedReplicas::wait_parameters, release());
}

FullyShardedOptions unit_options(py::dict const& from) {
  FullyShardedOptions options;
  options.prefetch = from["prefetch"].cast<std::size_t>();
  options.gather_cap = from["gather_cap"].cast<std::size_t>();
  options.gradient_cap = from["gradient_cap"].cast<std::size_t>();
  options.reshard_after_forward = from["reshard_after_forward"].cast<bool>();
  options.shard_size = from["shard_size"].cast<int>();
  options.hybrid_sum = from["by_group"].cast<bool>() ? HybridSum::by_group : HybridSum::rank_order;
  options.unused = from["find_unused"].cast<bool>() ? UnusedGradients::find : UnusedGradients::zero;
  options.optimizer.master_weights = from["master_weights"].cast<bool>();
  options.poison = from["poison"].cast<bool>();
  options.gradients.scaler = from["scaler"].cast<GradScaler*>();
  if (auto const norm = from["max_norm"].cast<double>(); norm > 0) options.gradients.max_norm = norm;
  return options;
}

void bind_sharded_units(py::module_& module) {
  using UnitTuple = std::tuple<std::string, std::vector<ParametersTuple>>;
  py::class_<ShardedUnits, ShardedModel, std::shared_ptr<ShardedUnits>>(module, "ShardedUnits")
      .def(py::init([](Group const& group, std::vector<UnitTuple> const& from, py::dict const& settings,
                       MemoryAccount const& account) {
             std::vector<ShardedUnits::Unit> units;
             for (auto const& [name, groups] : from) units.push_back({name, groups_of(groups)});
             auto const options = unit_options(settings);
             py::gil_scoped_release const released;
             return made<ShardedUnits>(*group, units, options, account);
           }),
           py::arg("group"), py::arg("units"), py::arg("settings"), py::arg("account"), py::keep_alive<1, 4>())
      .def("parameter", &ShardedUnits::parameter)
      .def("before_forward", &ShardedUnits::before_forward, release())
      .def("after_forward", &ShardedUnits::after_forward, release())
      .def("before_backward", &ShardedUnits::before_backward, release())
      .def("after_backward", &ShardedUnits::after_backward, release())
      .def("take_gradient", &ShardedUnits::take_gradient, release())
      .def("lend", &ShardedUnits::lend)
      .def("take_back", &ShardedUnits::take_back, release())
      .def("set_sync", &ShardedUnits::set_sync, release())
      .def("memory",
           [](ShardedUnits const& self) {
             auto const memory = self.memory();
             return std::map<std::string, std::size_t>{{"parameter_shards", memory.parameter_shards},
                                                       {"gradient_shards", memory.gradient_shards},
                                                       {"optimizer", memory.optimizer},
                                                       {"gathered", memory.gathered},
                                                       {"gradients", memory.gradients},
                                                       {"whole_gradients", memory.whole_gradients}};
           })
      .def("peak_gathered_bytes", &ShardedUnits::peak_gathered_bytes)
      .def("gather_count", &ShardedUnits::gather_count);
  module.def("absent_tensor", &absent_tensor);
}

template <typename Model>
std::unique_ptr<Tuner> tuner_of(std::shared_ptr<Model> model, MemoryAccount const& account, std::size_t steps,
                                std::string const& workload) {
  return std::make_unique<Tuner>(std::move(model), account, Tuner::Settings{steps, workload});
}

void bind_tuner(py::module_& module) {
  py::class_<Tuner, std::unique_ptr<Tuner>>(module, "Tuner")
      .def(py::init(&tuner_of<Replicas>), py::arg("model"), py::arg("account"), py::arg("steps"), py::arg("workload"),
           release())
      .def(py::init(&tuner_of<ShardedModel>), py::arg("model"), py::arg("account"), py::arg("steps"),
           py::arg("workload"), release())
      .def("end_step", &Tuner::end_step, py::arg("counts"), py::arg("seconds"), release())
      .def("candidates", &Tuner::candidates)
      .def("setting", &Tuner::setting)
      .def("outcome", [](Tuner const& self) -> py::object {
        if (!self.outcome()) return py::none();
        auto const& found = *self.outcome();
        py::dict outcome;
        outcome["setting"] = found.setting;
        outcome["seconds"] = found.seconds;
        outcome["standard"] = found.standard;
        outcome["standard_seconds"] = found.default_seconds;
        outcome["tried"] = found.candidates;
        outcome["steps"] = found.steps;
        outcome["from_cache"] = found.from_cache;
        return outcome;
      });
}

void bind_checkpoints(py::module_& module) {
  py::class_<Checkpoints, std::unique_ptr<Checkpoints>>(module, "Checkpoints")
      .def(py::init([](Group const& group, std::string const& folder) {
             return as_torch([&] { return std::make_unique<Checkpoints>(*group, folder); });
           }),
           release())
      .def("save_sharded", &Checkpoints::save_sharded, release())
      .def("wait", &Checkpoints::wait, release());
  module.def("load_sharded", &load_sharded, release());
}

}  // namespace

void bind_sharding(py::module_& module) {
  bind_memory(module);
  module.def("moves_gpu_tensors", &moves_gpu_tensors);
  module.def(
      "staging_bytes", [](Group const& group) { return as_torch([&] { return staging_bytes(*group); }); }, release());
  bind_replicas(module);
  bind_sharded_model(module);
  bind_sharded_replicas(module);
  bind_sharded_units(module);
  bind_tuner(module);
  bind_checkpoints(module);
}

}  // namespace weft::torch_backend
