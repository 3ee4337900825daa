#include "sharding/zero_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "weft/error.hpp"

namespace weft {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;  // names and values, of equal names on every rank

// FNV-1a.
std::uint64_t digest_of(std::string_view text) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (char const c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return digest;
}

struct Describe {
  std::string operator()(AdamOptions const& o) const { return adam("Adam", o); }
  std::string operator()(AdamWOptions const& o) const { return adam("AdamW", o); }
  std::string operator()(SgdOptions const& o) const {
    return fmt::format("SGD lr {} momentum {} dampening {} weight_decay {} nesterov {} maximize {}", o.lr, o.momentum,
                       o.dampening, o.weight_decay, o.nesterov, o.maximize);
  }
  std::string operator()(LambOptions const& o) const {
    return fmt::format("Lamb lr {} betas {} {} eps {} weight_decay {} maximize {}", o.lr, o.beta1, o.beta2, o.eps,
                       o.weight_decay, o.maximize);
  }
  std::string operator()(LionOptions const& o) const {
    return fmt::format("Lion lr {} betas {} {} weight_decay {} maximize {}", o.lr, o.beta1, o.beta2, o.weight_decay,
                       o.maximize);
  }
  std::string operator()(AdagradOptions const& o) const {
    return fmt::format("Adagrad lr {} lr_decay {} weight_decay {} initial {} eps {} maximize {}", o.lr, o.lr_decay,
                       o.weight_decay, o.initial_accumulator_value, o.eps, o.maximize);
  }
  template <typename Options>
  static std::string adam(char const* name, Options const& o) {
    return fmt::format("{} lr {} betas {} {} eps {} weight_decay {} amsgrad {} maximize {}", name, o.lr, o.beta1,
                       o.beta2, o.eps, o.weight_decay, o.amsgrad, o.maximize);
  }
};

// @throws Error{mismatch} at the first fact that differs from rank 0's. As many facts on every rank.
void compare(Communicator& communicator, Facts const& facts) {
  std::vector<std::uint64_t> mine;
  for (auto const& fact : facts) mine.push_back(digest_of(fact.second));
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::span<std::uint64_t const>(mine), std::span<std::uint64_t>(all)).wait();
  for (std::size_t i = facts.size(); i < all.size(); ++i) {
    std::size_t const which = i % facts.size();
    if (all[i] == all[which]) continue;
    throw Error(
        ErrorCode::mismatch,
        fmt::format("zero optimizer: rank {} differs from rank 0: {} (on rank {}: {}); build the same optimizer "
                    "on every rank",
                    i / facts.size(), facts[which].first, communicator.rank(), facts[which].second));
  }
}

}  // namespace

void check_groups(int rank, std::vector<ParameterGroup> const& groups, ZeroOptions const& options) {
  if (options.stage != ZeroStage::optimizer_states && options.stage != ZeroStage::gradients) {
    throw Error(ErrorCode::invalid_argument, fmt::format("zero optimizer: rank {}: stage {}; there are 1 and 2", rank,
                                                         static_cast<int>(options.stage)));
  }
  std::size_t index = 0;
  for (ParameterGroup const& group : groups) {
    check(group.options);
    for (BufferView const& parameter : group.parameters) {
      bool const known =
          parameter.dtype == DataType::f32 || parameter.dtype == DataType::bf16 || parameter.dtype == DataType::f16;
      if (!known || parameter.device.type != DeviceType::cpu) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("zero optimizer: rank {}: parameter {} is {} on {}; f32, bf16 and f16 on cpu can be "
                                "updated",
                                rank, index, to_string(parameter.dtype), to_string(parameter.device)));
      }
      if (parameter.data == nullptr && parameter.count != 0) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("zero optimizer: rank {}: parameter {} has {} elements but no memory", rank, index,
                                parameter.count));
      }
      ++index;
    }
  }
}

void check_agreement(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                     ZeroOptions const& options) {
  Facts facts{{"the stage", std::to_string(static_cast<int>(options.stage))},
              {"optimizer.master_weights", fmt::format("{}", options.optimizer.master_weights)},
              {"optimizer.zero_gradients", fmt::format("{}", options.optimizer.zero_gradients)},
              {"optimizer.state", std::to_string(static_cast<int>(options.optimizer.state))},
              {"the number of groups", std::to_string(groups.size())}};
  compare(communicator, facts);
  facts.clear();
  std::size_t first = 0;
  for (ParameterGroup const& group : groups) {
    // Of another number of parameters the Bucketer says which differ; here a boundary between groups may have moved.
    facts.emplace_back(
        fmt::format("group {}, from parameter {} on", facts.size(), first),
        fmt::format("{} parameters, {}", group.parameters.size(), std::visit(Describe{}, group.options)));
    first += group.parameters.size();
  }
  if (!facts.empty()) compare(communicator, facts);
}

}  // namespace weft
