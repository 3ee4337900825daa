#include "importers/kineto/events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "importers/common/json_input.hpp"
#include "weft/error.hpp"

namespace weft::kineto {

namespace {

using Json = nlohmann::json;

constexpr double kLatest = 1e18;  // µs: 30,000 years

enum class Known : std::uint8_t { kind, ignored, no };

std::pair<Known, EventKind> kind_of(std::string const& category) {
  using enum EventKind;
  constexpr std::array<std::pair<char const*, EventKind>, 10> kKinds = {{
      {"cpu_op", call},
      {"user_annotation", annotation},
      {"cuda_runtime", runtime},
      {"cuda_driver", runtime},
      {"xpu_runtime", runtime},
      {"privateuse1_runtime", runtime},
      {"kernel", device},
      {"gpu_memcpy", device},
      {"gpu_memset", device},
      {"cuda_sync", sync},
  }};
  for (auto const& [name, kind] : kKinds) {
    if (category == name) return {Known::kind, kind};
  }
  // Ignored: what other events show on a device, what Python ran, and the profiler itself.
  for (char const* const name :
       {"gpu_user_annotation", "python_function", "Trace", "overhead", "cuda_profiler_range"}) {
    if (category == name) return {Known::ignored, call};
  }
  return {Known::no, call};
}

class EventReader {
 public:
  EventReader(std::string const& source, ImportReport& report) : source_(source), report_(report) {}

  Events read(Json const& list) {
    for (index_ = 0; index_ < list.size(); ++index_) {
      Json const& json = list[index_];
      if (!json.is_object()) refuse(json, "no JSON object");
      ++report_.entries;
      auto const phase = text_in(json, "ph");
      if (phase == "X") {
        add_event(json);
      } else if (phase == "s" || phase == "f" || phase == "t") {
        add_flow(json, phase == "s");
      } else if (phase.empty()) {
        refuse(json, "\"ph\" is missing");
      } else {
        ++report_.free_entries;
      }
    }
    sort();
    part_from_threads();
    return std::move(all_);
  }

 private:
  [[noreturn]] void refuse(Json const& json, std::string const& why) const {
    auto const name = text_in(json, "name");
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: event {}{}: {}", source_, index_,
                                                         name.empty() ? "" : fmt::format(" ({})", name), why));
  }

  void sort() {
    std::stable_sort(all_.events.begin(), all_.events.end(), [](Event const& a, Event const& b) {
      return std::make_tuple(a.start, -a.end) < std::make_tuple(b.start, -b.end);
    });
  }

  /// A back end may title its work from the time of a thread's call, as Weft's does, to the work's end. Where that end
  /// comes after the call has returned, the thread does other things meanwhile. Such work gets a lane of its own, in
  /// which each piece begins when the one before has ended, as a back end takes its calls one by one.
  void part_from_threads() {
    std::vector<double> returned(all_.lanes.size(), -1);  // by thread: when its last call returned
    struct Behind {
      std::size_t lane;
      double until;
    };
    std::map<std::size_t, Behind> behind;  // by thread
    for (auto& event : all_.events) {
      if (!event.collective || event.kind == EventKind::device) continue;
      double& call_end = returned[event.lane];
      if (event.collective->evidence == CollectiveEvidence::call) call_end = event.end;
      bool const is_title =
          event.collective->evidence == CollectiveEvidence::title && event.name.rfind("nccl:", 0) != 0;
      if (!is_title || event.start > call_end || event.end <= call_end + kTolerance) continue;
      auto const [found, is_new] = behind.try_emplace(event.lane, Behind{all_.lanes.size(), 0});
      if (is_new) all_.lanes.push_back({.name = all_.lanes[event.lane].name + ", its collectives"});
      auto& [lane, until] = found->second;
      event.lane = lane;
      event.start = std::min(std::max(event.start, until), event.end);
      until = std::max(until, event.end);
    }
    if (!behind.empty()) sort();
  }

  double microseconds(Json const& json, char const* key) const {
    if (!json.contains(key)) refuse(json, fmt::format("\"{}\" is missing", key));
    if (!json[key].is_number()) refuse(json, fmt::format("\"{}\" is no number", key));
    auto const value = json[key].get<double>();
    if (!(value >= 0 && value <= kLatest)) refuse(json, fmt::format("\"{}\" is {}", key, value));
    return value;
  }

  void add_event(Json const& json) {
    Event event{.name = text_in(json, "name"), .category = text_in(json, "cat")};
    auto const [known, kind] = kind_of(event.category);
    if (known == Known::ignored) {
      ++report_.free_entries;
      return;
    }
    if (known == Known::no) {
      report_.warn(fmt::format("unknown category \"{}\", taken for a call of an operator", event.category));
    }
    if (event.name.empty()) {
      event.name = "unnamed";
      report_.warn(fmt::format("event of category \"{}\" without a name, called \"unnamed\"", event.category));
    }
    event.kind = kind;
    event.start = microseconds(json, "ts");
    event.end = event.start + microseconds(json, "dur");
    event.lane = lane_of(json, kind == EventKind::device || kind == EventKind::sync);
    if (json.contains("args") && json["args"].is_object()) event.args = &json["args"];
    event.collective = collective_named(event.name);
    all_.events.push_back(std::move(event));
  }

  void add_flow(Json const& json, bool begins) {
    ++report_.free_entries;
    if (!json.contains("id")) refuse(json, "\"id\" is missing");
    all_.flows.push_back({.id = text_in(json, "cat") + json["id"].dump(),
                          .lane = lane_of(json, false),
                          .at = microseconds(json, "ts"),
                          .begins = begins});
  }

  std::size_t lane_of(Json const& json, bool is_device) {
    auto const part = [&](char const* key) { return json.contains(key) ? plain(json[key]) : std::string("?"); };
    auto const [entry, is_new] = lanes_.try_emplace({part("pid"), part("tid")}, all_.lanes.size());
    if (is_new) all_.lanes.push_back({.name = "thread " + part("tid")});
    Lane& lane = all_.lanes[entry->second];
    if (is_device && !lane.is_device) lane = {fmt::format("stream {} of device {}", part("tid"), part("pid")), true};
    return entry->second;
  }

  static std::string plain(Json const& value) {
    return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  }

  std::string const& source_;
  ImportReport& report_;
  std::size_t index_ = 0;
  Events all_;
  std::map<std::pair<std::string, std::string>, std::size_t> lanes_;
};

}  // namespace

Events read_events(Json const& list, std::string const& source, ImportReport& report) {
  return EventReader(source, report).read(list);
}

}  // namespace weft::kineto
