#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "process_group.hpp"

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
  return c10::make_intrusive<ProcessGroupWeft>(group.store, group.group_rank, group.group_size, std::move(options));
}

}  // namespace
}  // namespace weft::torch_backend

PYBIND11_MODULE(_C, module) {
  using namespace weft::torch_backend;
  using Holder = c10::intrusive_ptr<ProcessGroupWeft>;
  py::module_::import("torch.distributed");  // registers the base classes
  py::class_<ProcessGroupWeft, Holder, c10d::Backend>(module, "ProcessGroupWeft");
  py::class_<ProcessGroupWeft::Options, c10::intrusive_ptr<ProcessGroupWeft::Options>, c10d::Backend::Options>(
      module, "Options");
  module.def("create", &create, py::call_guard<py::gil_scoped_release>(),
             "A process group for torch.distributed; collective over the group's ranks.");
  module.attr("torch_version") = WEFT_TORCH_VERSION;
}
