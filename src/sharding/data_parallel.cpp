#include "weft/data_parallel.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft {
namespace {

std::vector<TensorSpec> specs_of(std::vector<BufferView> const& parameters) {
  std::vector<TensorSpec> specs;
  specs.reserve(parameters.size());
  for (BufferView const& parameter : parameters) {
    if (parameter.data == nullptr && parameter.count != 0) {
      throw Error(ErrorCode::invalid_argument, fmt::format("data parallel: parameter {} has {} elements but no memory",
                                                           specs.size(), parameter.count));
    }
    specs.push_back({parameter.count, parameter.dtype});
  }
  return specs;
}

}  // namespace

DataParallel::DataParallel(Communicator& communicator, std::vector<BufferView> parameters,
                           BucketerOptions const& options)
    : parameters_(std::move(parameters)), bucketer_(communicator, specs_of(parameters_), options) {
  for (BufferView const& parameter : parameters_) {
    if (parameter.count != 0) communicator.broadcast(parameter, 0).wait();
  }
}

}  // namespace weft
