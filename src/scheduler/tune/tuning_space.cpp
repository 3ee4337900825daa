#include <fmt/format.h>

#include <array>

#include "scheduler/tune/bucket_candidates.hpp"
#include "weft/autotuner.hpp"
#include "weft/data_parallel.hpp"
#include "weft/fully_sharded.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft {
namespace {

std::string describe(GatherSettings const& settings) {
  return fmt::format("prefetch {}{}{}", settings.prefetch,
                     settings.gather_cap == 0 ? "" : fmt::format(" within {} bytes", settings.gather_cap),
                     settings.reshard_after_forward ? "" : ", units kept from forward to backward");
}

TuningSpace only_as_it_is(std::string model) {
  return {std::move(model), {{"as it is", [] {}}}};
}

}  // namespace

TuningSpace tuning_space(DataParallel& ddp) {
  Bucketer& bucketer = ddp.bucketer();
  std::string model = fmt::format("DataParallel of {}", fingerprint(bucketer.plan()));
  bool const on_gpu = ddp.parameter_count() > 0 && ddp.parameter(0).device.type != DeviceType::cpu;
  if (on_gpu) return only_as_it_is(std::move(model));
  return {std::move(model),
          bucket_candidates(bucketer.settings(), bucketer.plan(), {.shards = 1, .replans = true},
                            [&bucketer](BucketSettings const& settings) { bucketer.reconfigure(settings); })};
}

TuningSpace tuning_space(ZeroOptimizer& zero) {
  std::string model = fmt::format("ZeroOptimizer of {}", fingerprint(zero.plan()));
  bool const on_gpu = zero.parameter_count() > 0 && zero.parameter(0).device.type != DeviceType::cpu;
  if (on_gpu) return only_as_it_is(std::move(model));
  return {std::move(model),
          bucket_candidates(zero.bucket_settings(), zero.plan(), {.shards = 1, .moves = zero.may_move_shards()},
                            [&zero](BucketSettings const& settings) { zero.reconfigure(settings); })};
}

TuningSpace tuning_space(FullySharded& model, std::size_t most_gathered_bytes) {
  constexpr std::array<std::size_t, 6> kPrefetch{2, 4, 1, 3, 6, 8};
  GatherSettings const now = model.gather_settings();
  std::size_t elements = 0;
  for (std::size_t index = 0; index < model.parameter_count(); ++index) elements += model.element_count(index);
  std::string name = fmt::format("FullySharded of {} parameters, {} elements, in {} units", model.parameter_count(),
                                 elements, model.unit_count());
  if (model.is_on_gpu()) return only_as_it_is(std::move(name));
  std::size_t const most = most_gathered_bytes != 0 ? most_gathered_bytes : 2 * model.memory().gathered;
  TuningSpace space{std::move(name), {}};
  auto const add = [&](GatherSettings const& settings) {
    space.candidates.push_back({describe(settings), [&model, settings] { model.reconfigure(settings); }});
  };
  add(now);
  for (bool const reshards : {now.reshard_after_forward, !now.reshard_after_forward}) {
    for (std::size_t const prefetch : kPrefetch) {
      GatherSettings const settings{prefetch, now.gather_cap, reshards};
      bool const fits = now.gather_cap != 0 || model.gathered_bytes_under(settings) <= most;
      if (settings != now && prefetch < model.unit_count() && fits) add(settings);
    }
  }
  return space;
}

}  // namespace weft
