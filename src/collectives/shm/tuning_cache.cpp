#include "collectives/shm/tuning_cache.hpp"

#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "core/cache_file.hpp"

namespace weft::shm {
namespace {

using nlohmann::json;

constexpr CacheFile::Kind kKind{"weft tuning 1", "machines", "tuning cache",
                                "algorithms are measured anew (WEFT_TUNING_CACHE names another file, 0 none)"};

constexpr char const* kPollsAtOnce = "polls_unfenced";  // "polls_at_once" was decided otherwise
constexpr char const* kStreamingBytes = "streaming_bytes";
constexpr char const* kTakeBytes = "take_bytes";
/// The names under which each place's costs are stored; those in symmetric memory have none and stand beside the rest.
constexpr std::array<char const*, kPlaces> kPlaceNames{nullptr, "in_place", "symmetric_long", "private_long"};

/// What this process knows of the machine it runs on. It depends on nothing but the hardware, so that communicators may
/// share it and still know nothing of one another.
struct Memory {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, CostModel> models;  // by file and machine
};

Memory& memory() {
  static Memory instance;
  return instance;
}

/// Reads a time. Throws if no machine may have it.
double plausible(json const& value) {
  auto const number = value.get<double>();
  if (!std::isfinite(number) || number < 0 || number > 1e12) throw std::runtime_error("it has impossible times");
  return number;
}

json to_json(Line const& line) {
  return {{"fixed_ns", line.fixed_ns}, {"ns_per_byte", line.ns_per_byte}};
}

Line to_line(json const& stored) {
  return {plausible(stored.at("fixed_ns")), plausible(stored.at("ns_per_byte"))};
}

void add_costs(CostModel const& model, Place place, json& result) {
  for (std::size_t c = 0; c < kCollectives; ++c) {
    for (std::size_t a = 0; a < kAlgorithms; ++a) {
      auto const& cost = model.of(static_cast<Collective>(c), static_cast<Algorithm>(a), place);
      if (!cost.is_known()) continue;
      result[std::string(to_string(static_cast<Collective>(c)))][std::string(to_string(static_cast<Algorithm>(a)))] = {
          {"call", to_json(cost.call)}, {"loop", to_json(cost.loop)}};
    }
  }
}

json to_json(CostModel const& model) {
  json result{{"synchronisation_ns", model.synchronisation_ns},
              {kPollsAtOnce, model.polls_at_once},
              {kStreamingBytes, model.streaming_bytes},
              {kTakeBytes, model.take_bytes}};
  for (std::size_t place = 0; place < kPlaces; ++place)
    add_costs(model, static_cast<Place>(place), kPlaceNames[place] == nullptr ? result : result[kPlaceNames[place]]);
  return result;
}

void read_costs(json const& stored, Place place, CostModel& model) {
  for (std::size_t c = 0; c < kCollectives; ++c) {
    auto const collective = stored.find(std::string(to_string(static_cast<Collective>(c))));
    if (collective == stored.end()) continue;
    for (std::size_t a = 0; a < kAlgorithms; ++a) {
      auto const cost = collective->find(std::string(to_string(static_cast<Algorithm>(a))));
      if (cost == collective->end()) continue;
      model.of(static_cast<Collective>(c), static_cast<Algorithm>(a), place) = {to_line(cost->at("call")),
                                                                                to_line(cost->at("loop"))};
    }
  }
}

CostModel from_json(json const& stored) {
  CostModel model;
  model.synchronisation_ns = plausible(stored.at("synchronisation_ns"));
  model.polls_at_once = stored.at(kPollsAtOnce).get<bool>();
  model.streaming_bytes = stored.at(kStreamingBytes).get<std::size_t>();
  model.take_bytes = stored.at(kTakeBytes).get<std::size_t>();
  for (std::size_t place = 0; place < kPlaces; ++place)
    read_costs(kPlaceNames[place] == nullptr ? stored : stored.at(kPlaceNames[place]), static_cast<Place>(place),
               model);
  return model;
}

}  // namespace

std::optional<CostModel> TuningCache::find(std::string const& machine) const {
  {
    std::lock_guard const lock(memory().mutex);
    auto const known = memory().models.find({file_, machine});
    if (known != memory().models.end()) return known->second;
  }
  CacheFile const file(file_, kKind);
  auto const stored = file.find(machine);
  if (!stored) return std::nullopt;
  auto const has = [&](char const* name) { return stored->contains(name); };
  if (stored->is_object() && !(has(kPollsAtOnce) && has(kStreamingBytes) && has(kTakeBytes) && has(kPlaceNames.back())))
    return std::nullopt;  // measured before these were
  try {
    auto const model = from_json(*stored);
    std::lock_guard const lock(memory().mutex);
    memory().models[{file_, machine}] = model;
    return model;
  } catch (std::exception const& error) {
    file.warn_once(error.what());
    return std::nullopt;
  }
}

void TuningCache::add(std::string const& machine, CostModel const& model) const {
  {
    std::lock_guard const lock(memory().mutex);
    memory().models[{file_, machine}] = model;
  }
  if (model.is_measured()) CacheFile(file_, kKind).add(machine, to_json(model));
}

}  // namespace weft::shm
