#include "scheduler/tune/tuned_settings.hpp"

#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace weft {
namespace {

constexpr CacheFile::Kind kKind{"weft autotune 1", "trainings", "autotuner's cache",
                                "settings are measured anew (WEFT_AUTOTUNE_CACHE names another file, 0 none)"};

double step_time(nlohmann::json const& stored) {
  auto const seconds = stored.get<double>();
  if (!std::isfinite(seconds) || seconds <= 0) throw std::runtime_error("it has impossible times");
  return seconds;
}

}  // namespace

TunedSettings::TunedSettings(std::string path) : file_(std::move(path), kKind) {}

std::optional<TunedSetting> TunedSettings::find(std::string const& training) const {
  auto const stored = file_.find(training);
  if (!stored) return std::nullopt;
  try {
    return TunedSetting{stored->at("setting").get<std::string>(), step_time(stored->at("seconds")),
                        stored->at("default").get<std::string>(), step_time(stored->at("default_seconds")),
                        stored->at("candidates").get<std::size_t>()};
  } catch (std::exception const& error) {
    file_.warn_once(error.what());
    return std::nullopt;
  }
}

void TunedSettings::add(std::string const& training, TunedSetting const& found) const {
  file_.add(training, {{"setting", found.name},
                       {"seconds", found.seconds},
                       {"default", found.default_name},
                       {"default_seconds", found.default_seconds},
                       {"candidates", found.candidates}});
}

}  // namespace weft
