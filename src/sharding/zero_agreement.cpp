#include "sharding/zero_agreement.hpp"

#include <fmt/format.h>

#include <string>

#include "optim/overlap.hpp"
#include "optim/rule.hpp"
#include "sharding/device_judge.hpp"
#include "sharding/facts.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

bool is_float(DataType dtype) {
  return dtype == DataType::f32 || dtype == DataType::bf16 || dtype == DataType::f16;
}

void check_apart(int rank, std::vector<ParameterGroup> const& groups) {
  std::vector<BufferView> all;
  for (ParameterGroup const& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  auto const overlap = find_overlap(all);
  if (!overlap) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("rank {}: zero optimizer: parameters {} and {} share memory; pass a tensor once", rank,
                          overlap->first, overlap->second));
}

std::string describe(GradScaler const* scaler) {
  return scaler == nullptr ? "none" : fmt::format("of scale {}", scaler->scale());
}

std::string describe_clipping(GradientPolicy const& policy) {
  return policy.max_norm ? fmt::format("{}, {} norm", *policy.max_norm, name_of(policy.norm_type)) : "none";
}

}  // namespace

Device device_of(std::vector<ParameterGroup> const& groups) {
  for (ParameterGroup const& group : groups) {
    if (!group.parameters.empty()) return group.parameters.front().device;
  }
  return {};
}

void check_groups(int rank, std::vector<ParameterGroup> const& groups, ZeroOptions const& options) {
  if (options.stage != ZeroStage::optimizer_states && options.stage != ZeroStage::gradients) {
    throw Error(ErrorCode::invalid_argument, fmt::format("rank {}: zero optimizer: stage {}; there are 1 and 2", rank,
                                                         static_cast<int>(options.stage)));
  }
  if (options.gradient_dtype && !is_float(*options.gradient_dtype)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("rank {}: zero optimizer: gradients of {}; f32, bf16 and f16 can be "
                            "used",
                            rank, to_string(*options.gradient_dtype)));
  }
  std::size_t index = 0;
  std::optional<DataType> first;
  Device const device = device_of(groups);
  for (ParameterGroup const& group : groups) {
    check(group.options);
    for (BufferView const& parameter : group.parameters) {
      if (!is_float(parameter.dtype) || parameter.device != device) {
        throw Error(
            ErrorCode::unsupported,
            fmt::format("rank {}: zero optimizer: parameter {} is {} on {}; f32, bf16 and f16 on {}, where "
                        "the first one is, can be updated",
                        rank, index, to_string(parameter.dtype), to_string(parameter.device), to_string(device)));
      }
      if (parameter.data == nullptr && parameter.count != 0) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("rank {}: zero optimizer: parameter {} has {} elements but no memory", rank, index,
                                parameter.count));
      }
      if (!first) first = parameter.dtype;
      if (options.gradient_dtype && parameter.dtype != *first) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("rank {}: zero optimizer: parameter {} is {} and parameter 0 {}; with gradient_dtype "
                                "all are of one type",
                                rank, index, to_string(parameter.dtype), to_string(*first)));
      }
      ++index;
    }
  }
  check_apart(rank, groups);
  DeviceJudge::check(options.gradients, device);
}

void check_agreement(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                     ZeroOptions const& options) {
  Facts facts{{"the stage", std::to_string(static_cast<int>(options.stage))},
              {"optimizer.master_weights", fmt::format("{}", options.optimizer.master_weights)},
              {"optimizer.zero_gradients", fmt::format("{}", options.optimizer.zero_gradients)},
              {"optimizer.state", name_of(options.optimizer.state)},
              {"gradient_dtype", options.gradient_dtype ? std::string(to_string(*options.gradient_dtype)) : "none"},
              {"gradients.scaler", describe(options.gradients.scaler)},
              {"gradients.max_norm", describe_clipping(options.gradients)},
              {"gradients.max_value", describe(options.gradients.max_value)},
              {"the number of groups", std::to_string(groups.size())}};
  compare(communicator, facts, "zero optimizer");
  facts.clear();
  std::size_t first = 0;
  for (ParameterGroup const& group : groups) {
    // Where the number of parameters differs the Bucketer says which differ; here a boundary between groups may have
    // moved.
    facts.emplace_back(fmt::format("group {}, from parameter {} on", facts.size(), first),
                       fmt::format("{} parameters, {}", group.parameters.size(), describe(group.options)));
    first += group.parameters.size();
  }
  if (!facts.empty()) compare(communicator, facts, "zero optimizer");
}

}  // namespace weft
