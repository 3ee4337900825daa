#include <algorithm>
#include <chrono>

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "interpreter_exit.hpp"
#include "mpi_lifetime.hpp"
#include "overlap_recorder.hpp"
#include "planning_bindings.hpp"
#include "process_group.hpp"
#include "shared_heap.hpp"
#include "training_bindings.hpp"
#include "weft/config.hpp"
#include "weft/flight_recorder.hpp"

namespace py = pybind11;

namespace weft::torch_backend {
namespace {

c10::intrusive_ptr<c10d::Backend> create(c10d::DistributedBackendOptions const& group) {
  auto const limit = std::chrono::duration_cast<std::chrono::milliseconds>(group.timeout);
  auto options = c10::make_intrusive<ProcessGroupWeft::Options>(limit);
  options->group_name = group.group_id;
  for (auto const rank : group.global_ranks_in_group) {
    options->global_ranks_in_group.push_back(static_cast<std::uint64_t>(rank));
  }
  return ProcessGroupWeft::make(group.store, group.group_rank, group.group_size, std::move(options));
}

py::object heap_usage() {
  auto const heap = current_heap();
  if (heap == nullptr) return py::none();
  auto const usage = heap->usage();
  py::dict fields;
  fields["capacity"] = usage.capacity;
  fields["committed"] = usage.committed;
  fields["in_use"] = usage.in_use;
  fields["withheld"] = usage.withheld;
  return fields;
}

/// What no parser of sizes takes is an error of the caller's.
std::size_t heap_bytes(std::string const& text) {
  auto const bytes = parse_bytes(text);
  TORCH_CHECK_VALUE(bytes, "weft: \"", text, "\" is no size: give bytes, or a number with K, M or G such as \"4G\"");
  return *bytes;
}

py::list overlap_steps() {
  py::list steps;
  for (auto const& step : overlap_recorder().steps()) {
    auto const& report = step.report;
    py::list calls;
    for (std::size_t i = 0; i < report.buckets.size(); ++i) {
      auto const& bucket = report.buckets[i];
      py::dict call;
      call["operation"] = step.names[i];
      call["bytes"] = bucket.bytes;
      call["ready_ms"] = bucket.ready_ms;
      call["started_ms"] = bucket.started_ms;
      call["finished_ms"] = bucket.finished_ms;
      call["communication_ms"] = bucket.finished_ms - bucket.started_ms;
      call["exposed_ms"] = bucket.exposed_ms;
      call["hidden_ms"] = std::max(0.0, bucket.finished_ms - bucket.started_ms - bucket.exposed_ms);
      calls.append(call);
    }
    py::dict fields;
    fields["step_ms"] = report.step_ms;
    fields["compute_ms"] = report.compute_ms;
    fields["communication_ms"] = report.communication_ms;
    fields["hidden_ms"] = report.hidden_ms;
    fields["exposed_ms"] = report.exposed_ms;
    fields["idle_ms"] = report.idle_ms;
    fields["hideable_ms"] = report.hideable_ms;
    fields["bound_ms"] = report.bound_ms;
    fields["collectives"] = calls;
    steps.append(fields);
  }
  return steps;
}

std::string format_step(std::size_t index, std::string const& title) {
  auto const steps = overlap_recorder().steps();
  TORCH_CHECK_INDEX(index < steps.size(), "weft: no step ", index, " was recorded, only ", steps.size());
  return format_overlap_report(steps[index].report, title, steps[index].names);
}

}  // namespace
}  // namespace weft::torch_backend

PYBIND11_MODULE(_C, module) {
  using namespace weft::torch_backend;
  using Holder = c10::intrusive_ptr<ProcessGroupWeft>;
  py::module_::import("torch.distributed");  // registers the base classes
  py::class_<ProcessGroupWeft, Holder, c10d::Backend>(module, "ProcessGroupWeft")
      .def("_write_trace", &ProcessGroupWeft::write_trace, py::arg("path"), py::call_guard<py::gil_scoped_release>())
      .def("_drop_coalesced", &ProcessGroupWeft::drop_coalesced, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &ProcessGroupWeft::getBackendOptions)
      .def(
          "perform_nocolor_split", [](ProcessGroupWeft& /*self*/, py::object const& /*device*/) {}, py::arg("device"),
          "What torch calls where a group is made that this rank is not in: nothing, since its members meet by "
          "themselves.")
      .def("get_error", &ProcessGroupWeft::getError, py::call_guard<py::gil_scoped_release>());
  module.def("emulate_link", &emulate_link);
  py::class_<ProcessGroupWeft::Options, c10::intrusive_ptr<ProcessGroupWeft::Options>, c10d::Backend::Options>(
      module, "Options")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout"))
      // torch's split_group() gives the new group a copy of its parent's.
      .def("__deepcopy__", [](ProcessGroupWeft::Options const& self, py::dict const& /*memo*/) {
        return c10::make_intrusive<ProcessGroupWeft::Options>(self);
      });
  module.def("create", &create, py::call_guard<py::gil_scoped_release>(),
             "A process group for torch.distributed; collective over the group's ranks.");
  module.def(
      "finish_mpi", [] { mpi_lifetime().finish(); }, py::call_guard<py::gil_scoped_release>(),
      "At exit: shuts down the groups that are left and finalises MPI, if any group has used it.");
  module.def(
      "begin_exit", [] { interpreter_exit().begin(); }, py::call_guard<py::gil_scoped_release>(),
      "At exit: Weft's threads keep away from Python from now on.");
  py::class_<weft::FlightDumpSignal>(module, "FlightDumpSignal",
                                     "While one lives, SIGUSR2 writes this process's last calls.")
      .def(py::init<>(), py::call_guard<py::gil_scoped_release>());
  module.def("dump_flight_recorders", &weft::dump_flight_recorders, py::call_guard<py::gil_scoped_release>());
  module.def("install_heap", &install_heap, py::arg("bytes"));
  module.def("install_heap_from_environment", &install_heap_from_environment);
  module.def("heap_usage", &heap_usage, "The process's shared heap, or None.");
  module.def("parse_bytes", &heap_bytes, py::arg("text"));
  module.def("report_wanted", [] { return weft::Config::from_environment().report; });
  module.def("record_overlap", [] { overlap_recorder().start(); });
  module.def("end_step", [] { overlap_recorder().end_step(); });
  module.def("overlap_steps", &overlap_steps);
  module.def("format_step", &format_step, py::arg("index"), py::arg("title"));
  bind_training(module);
  bind_planning(module);
  module.attr("torch_version") = WEFT_TORCH_VERSION;
}
