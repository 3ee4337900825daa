#include "sharding/step_close.hpp"

#include <fmt/format.h>

#include "sharding/unit_tags.hpp"
#include "weft/error.hpp"

namespace weft {

void StepClose::announce(ShardGroups& groups, Stream const& gathers, Stream const& reductions, std::uint32_t tag) {
  auto const tell = [&](Communicator& to, Stream const& stream, char const* what) {
    announced_.push_back({&to, to.barrier({.stream = stream, .timeout = {}, .tag = tag}), what});
  };
  tell(groups.reductions, reductions, "gradients");
  if (groups.replicated) tell(*groups.replicated, reductions, "gradients");
  tell(groups.gathers, gathers, "units");
}

void StepClose::wait(UnitLayout const& layout, StepSettings const& settings) {
  for (Announced const& one : announced_) {
    try {
      one.work.wait();
    } catch (Error const& error) {
      settings.explain(error, *one.to, "FullySharded::step");
      throw Error(error.code(), fmt::format("no more {} in this step: {}", one.what, name_units(error.what(), layout)));
    }
  }
  announced_.clear();
}

}  // namespace weft
