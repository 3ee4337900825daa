#include "weft/data_parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "collectives/device_access.hpp"
#include "optim/overlap.hpp"
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

// A tensor given twice would be updated twice.
void check_apart(int rank, std::vector<BufferView> const& parameters) {
  auto const overlap = find_overlap(parameters);
  if (!overlap) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("rank {}: data parallel: parameters {} and {} share memory; pass a tensor once", rank,
                          overlap->first, overlap->second));
}

BucketerOptions whole(int rank, BucketerOptions options, std::vector<BufferView> const& parameters) {
  if (options.collective != BucketCollective::all_reduce) {
    throw Error(
        ErrorCode::invalid_argument,
        "data parallel: every rank needs whole gradients; ZeroOptimizer is for BucketCollective::reduce_scatter");
  }
  // Gradients are where their parameters are.
  if (!parameters.empty()) options.device = parameters.front().device;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].device == options.device) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("data parallel: parameter {} is on {}, parameter 0 on {}; use one device", i,
                            to_string(parameters[i].device), to_string(options.device)));
  }
  check_apart(rank, parameters);
  return options;
}

std::vector<BufferView> flat(std::vector<ParameterGroup> const& groups) {
  std::vector<BufferView> parameters;
  for (ParameterGroup const& group : groups) {
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  }
  return parameters;
}

}  // namespace

DataParallel::DataParallel(Communicator& communicator, std::vector<BufferView> parameters,
                           BucketerOptions const& options)
    : communicator_(&communicator),
      parameters_(std::move(parameters)),
      bucketer_(communicator, specs_of(parameters_), whole(communicator.rank(), options, parameters_)) {
  if (!parameters_.empty() && parameters_.front().device.type != DeviceType::cpu) {
    compute_ = options.compute ? *options.compute : DeviceAccess::backend(communicator)->default_stream();
  }
  broadcast_parameters(0);
}

void DataParallel::broadcast_parameters(int root) {
  for (BufferView const& parameter : parameters_) {
    if (parameter.count == 0) continue;
    Work const sent = communicator_->broadcast(parameter, root, {compute_, {}});
    if (!compute_) sent.wait();
  }
}

DataParallel::DataParallel(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                           BucketerOptions const& options)
    : DataParallel(communicator, flat(groups), options) {}

BufferView DataParallel::parameter(std::size_t index) const {
  if (index < parameters_.size()) return parameters_[index];
  throw Error(ErrorCode::invalid_argument,
              fmt::format("DataParallel::parameter: index {} of {} parameters", index, parameters_.size()));
}

void DataParallel::finish_and_update(Optimizer& optimizer, StepInputs const& inputs) {
  if (optimizer.parameter_count() != parameters_.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("data parallel: an optimizer of {} parameters cannot update {}",
                            optimizer.parameter_count(), parameters_.size()));
  }
  if (!bucketer_.sync()) return bucketer_.finish();
  bucketer_.finish_launching();
  optimizer.begin_step(inputs);
  // Gradients stay where they are until finish(), which may move them.
  for (Bucket const& bucket : bucketer_.plan().buckets) {
    for (BucketSlot const& slot : bucket.slots) {
      bucketer_.wait(slot.tensor);
      if (bucketer_.has_gradient(slot.tensor)) optimizer.update(slot.tensor, bucketer_.gradient(slot.tensor));
    }
  }
  bucketer_.finish();
}

void DataParallel::join(JoinOptions const& options, std::function<void()> const& steps,
                        std::function<void()> const& shadowed) {
  bucketer_.begin_join(options);
  struct End {
    Bucketer& bucketer;
    ~End() { bucketer.end_join(); }
  } const end{bucketer_};
  steps();
  while (bucketer_.shadow_step()) {
    if (shadowed) shadowed();
  }
  std::size_t const own_steps = bucketer_.end_join();
  if (!shadowed) level(own_steps);
}

// The lowest of the ranks that made the most steps sends its parameters. Where all made as many, all are equal.
void DataParallel::level(std::size_t own_steps) {
  std::vector<std::uint64_t> steps(static_cast<std::size_t>(communicator_->size()));
  std::uint64_t const mine = own_steps;
  communicator_->all_gather(std::span<std::uint64_t const>(&mine, 1), std::span<std::uint64_t>(steps)).wait();
  auto const [least, most] = std::minmax_element(steps.begin(), steps.end());
  if (*least == *most) return;
  broadcast_parameters(static_cast<int>(std::max_element(steps.begin(), steps.end()) - steps.begin()));
}

}  // namespace weft
