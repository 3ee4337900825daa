#include "sharding/step_close.hpp"

#include <fmt/format.h>

#include "sharding/unit_tags.hpp"
#include "weft/error.hpp"

namespace weft {

void StepClose::announce(ShardGroups& groups, Stream const& gathers, Stream const& reductions, std::uint32_t tag) {
  groups_ = &groups;
  auto const tell = [&](Communicator& to, Stream const& stream, char const* what) {
    announced_.push_back({&to, to.barrier({.stream = stream, .timeout = {}, .tag = tag}), what});
  };
  tell(groups.reductions, reductions, "gradients");
  if (groups.replicated) tell(*groups.replicated, reductions, "gradients");
  tell(groups.gathers, gathers, "units");
}

// A rank that differs does so on several communicators, and the other ranks of one do not know of the rest. It answers
// on each of them, in an order that all ranks share, before it throws and thereby ends them.
std::optional<std::string> StepClose::difference(StepSettings const& settings) const {
  std::vector<Communicator*> unequal;
  for (Announced const& one : announced_) {
    try {
      one.work.wait();
    } catch (Error const& error) {
      if (StepSettings::is_reason_of(error)) unequal.push_back(one.to);
    }
  }
  std::optional<std::string> first;
  for (Communicator* const to : unequal) {
    auto const what = settings.difference(*to, groups_->world_ranks(*to));
    if (!first) first = what;
  }
  return first;
}

void StepClose::wait(UnitLayout const& layout, StepSettings const& settings) {
  for (Announced const& one : announced_) {
    try {
      one.work.wait();
    } catch (Error const& error) {
      if (StepSettings::is_reason_of(error)) {
        if (auto const what = difference(settings)) throw StepSettings::error_of("FullySharded::step", *what);
      }
      throw Error(error.code(), fmt::format("no more {} in this step: {}", one.what, name_units(error.what(), layout)));
    }
  }
  announced_.clear();
}

}  // namespace weft
