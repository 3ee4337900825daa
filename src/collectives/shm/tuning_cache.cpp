#include "collectives/shm/tuning_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/log.hpp"

namespace weft::shm {
namespace {

using nlohmann::json;

constexpr char const* kFormat = "weft tuning 1";

/// What this process knows of the machine it runs on. It depends on nothing but the hardware, so that communicators may
/// share it and still know nothing of one another.
struct Memory {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, CostModel> models;  // by file and machine
  std::set<std::string> warned;                                     // files
};

Memory& memory() {
  static Memory instance;
  return instance;
}

void warn_once(std::string const& file, std::string const& reason) {
  std::lock_guard const lock(memory().mutex);
  if (!memory().warned.insert(file).second) return;
  log(LogLevel::warn,
      fmt::format("tuning cache {}: {}; algorithms are measured anew (WEFT_TUNING_CACHE names another file, 0 none)",
                  file, reason));
}

/// A time that some machine may have.
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

json to_json(CostModel const& model) {
  json result{{"synchronisation_ns", model.synchronisation_ns}};
  for (std::size_t c = 0; c < kCollectives; ++c) {
    for (std::size_t a = 0; a < kAlgorithms; ++a) {
      auto const& cost = model.costs[c][a];
      if (!cost.is_known()) continue;
      result[std::string(to_string(static_cast<Collective>(c)))][std::string(to_string(static_cast<Algorithm>(a)))] = {
          {"call", to_json(cost.call)}, {"loop", to_json(cost.loop)}};
    }
  }
  return result;
}

CostModel from_json(json const& stored) {
  CostModel model;
  model.synchronisation_ns = plausible(stored.at("synchronisation_ns"));
  for (std::size_t c = 0; c < kCollectives; ++c) {
    auto const collective = stored.find(std::string(to_string(static_cast<Collective>(c))));
    if (collective == stored.end()) continue;
    for (std::size_t a = 0; a < kAlgorithms; ++a) {
      auto const cost = collective->find(std::string(to_string(static_cast<Algorithm>(a))));
      if (cost == collective->end()) continue;
      model.costs[c][a] = {to_line(cost->at("call")), to_line(cost->at("loop"))};
    }
  }
  return model;
}

/// The file's content; nothing when there is none. @throws std::exception when it is not a cache.
std::optional<json> read(std::string const& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  std::ifstream stream(file);
  if (!stream) throw std::runtime_error(std::strerror(errno));
  auto content = json::parse(stream, nullptr, false);
  if (!content.is_object() || content.value("format", json()) != kFormat || !content["machines"].is_object())
    throw std::runtime_error("it is not one of this version and stays as it is, remove it");
  return content;
}

void write(std::string const& file, json const& content) {
  std::filesystem::path const path(file);
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  auto const temporary = fmt::format("{}.{}", file, ::getpid());
  {
    std::ofstream stream(temporary);
    stream << content.dump(2) << '\n';
    stream.close();
    if (!stream) throw std::runtime_error(fmt::format("cannot write {}: {}", temporary, std::strerror(errno)));
  }
  std::error_code failed;
  std::filesystem::rename(temporary, path, failed);
  if (!failed) return;
  std::filesystem::remove(temporary, failed);
  throw std::runtime_error("cannot replace it");
}

}  // namespace

std::optional<CostModel> TuningCache::find(std::string const& machine) const {
  {
    std::lock_guard const lock(memory().mutex);
    auto const known = memory().models.find({file_, machine});
    if (known != memory().models.end()) return known->second;
  }
  try {
    auto const content = read(file_);
    if (!content || !content->at("machines").contains(machine)) return std::nullopt;
    auto const model = from_json(content->at("machines").at(machine));
    std::lock_guard const lock(memory().mutex);
    memory().models[{file_, machine}] = model;
    return model;
  } catch (std::exception const& error) {
    warn_once(file_, error.what());
    return std::nullopt;
  }
}

void TuningCache::add(std::string const& machine, CostModel const& model) const {
  {
    std::lock_guard const lock(memory().mutex);
    memory().models[{file_, machine}] = model;
  }
  if (!model.is_measured()) return;
  try {
    auto content = read(file_).value_or(json{{"format", kFormat}, {"machines", json::object()}});
    content["machines"][machine] = to_json(model);
    write(file_, content);
  } catch (std::exception const& error) {
    warn_once(file_, error.what());
  }
}

}  // namespace weft::shm
