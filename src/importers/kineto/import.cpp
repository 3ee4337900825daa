#include <fmt/format.h>

#include <algorithm>
#include <istream>

#include "importers/common/json_input.hpp"
#include "importers/common/process_groups.hpp"
#include "importers/common/unique_name.hpp"
#include "importers/kineto/edges.hpp"
#include "importers/kineto/events.hpp"
#include "importers/kineto/forest.hpp"
#include "importers/kineto/message.hpp"
#include "importers/kineto/operators.hpp"
#include "weft/error.hpp"
#include "weft/import_kineto.hpp"

namespace weft {

namespace {

using namespace kineto;
using Json = nlohmann::json;

constexpr double kSecond = 1e-6;  ///< seconds of a microsecond
constexpr double kMostBytes = 0x1p60;

class KinetoImporter {
 public:
  KinetoImporter(Json const& json, std::string const& source) : source_(source) {
    trace_.graph.name = trace_.report.source = source;
    if (json.contains("distributedInfo") && json["distributedInfo"].is_object()) {
      auto const& info = json["distributedInfo"];
      if (info.contains("pg_config")) groups_.add(info["pg_config"]);
      groups_.set_world(whole_in(info, "world_size", 0));
    }
    all_ = read_events(json["traceEvents"], source, trace_.report);
  }

  ImportedTrace run() {
    Forest const forest(all_);
    Operators const operators(all_, forest);
    for (std::size_t event = 0; event < all_.events.size(); ++event) {
      auto const op = operators.of_event(event);
      if (op == kNothing) {
        ++trace_.report.free_entries;
      } else if (operators.list()[op].event != event) {
        ++trace_.report.within_others;
      }
    }
    for (auto const& op : operators.list()) add(op, forest);
    for (auto const& lane : all_.lanes) trace_.streams.push_back(lane.name);
    add_edges(all_, forest, operators, trace_.graph, trace_.report);
    warn_of_unused_results();
    trace_.report.operators = static_cast<std::int64_t>(trace_.graph.ops.size());
    check_graph(trace_.graph);
    return std::move(trace_);
  }

 private:
  void add(Operator const& op, Forest const& forest) {
    auto const& event = all_.events[op.event];
    if (trace_.starts.empty()) begin_ = op.start;
    trace_.starts.push_back((op.start - begin_) * kSecond);
    trace_.lanes.push_back(static_cast<int>(event.lane));
    OpNode node{.name = names_.next(event.name), .seconds = op.time * kSecond};
    if (op.is_update) node.kind = OpKind::update;
    if (event.category == "gpu_memcpy") node.kind = OpKind::copy;
    if (op.is_collective) set_collective(node, op, forest);
    trace_.graph.add(std::move(node));
  }

  void set_collective(OpNode& node, Operator const& op, Forest const& forest) {
    auto const& event = all_.events[op.event];
    auto const own = message_of(event, source_);
    auto const note = note_of(op.call, forest);
    auto kind = event.collective->kind;
    if (!kind && own) kind = own->kind;
    if (!kind && note) kind = note->kind;
    if (!kind) trace_.report.warn("collective of an unknown kind, taken for an all_reduce");
    node.collective.kind = kind.value_or(CollectiveKind::all_reduce);

    GroupFacts facts = own ? own->group : GroupFacts{};
    if (facts.ranks.empty() && facts.size == 0 && facts.name.empty() && note) facts = note->group;
    node.collective.group = groups_.group_of(facts, trace_.graph);
    if (node.collective.group == kNone) {
      trace_.report.warn("collective without a group, taken for one of two ranks");
      node.collective.group = groups_.group_of({.size = 2}, trace_.graph);
    }
    auto const& told = own && own->bytes > 0 ? own : note;
    if (!told || told->bytes <= 0) trace_.report.warn("collective whose bytes are not told, taken for 0");
    if (told && !told->unknown_type.empty()) {
      trace_.report.warn(fmt::format("collective of elements of type \"{}\", taken for {} bytes", told->unknown_type,
                                     Message::kWidestElement));
    }
    double bytes = told ? told->bytes : 0;
    if (told && told->only_input && node.collective.kind == CollectiveKind::all_gather) {
      auto const& group = trace_.graph.groups[static_cast<std::size_t>(node.collective.group)];
      bytes *= static_cast<double>(group.sets.front().size());
    }
    if (!(bytes <= kMostBytes)) {
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: event ({}): {} bytes", source_, event.name, bytes));
    }
    node.collective.bytes = static_cast<std::int64_t>(bytes);
    node.kind = OpKind::collective;
    ++trace_.report.collectives;
    trace_.report.collective_bytes += bytes;
  }

  /// What "record_param_comms", or the call itself, says of the arguments. The note lies around what launched a kernel,
  /// or within a call on a thread.
  [[nodiscard]] std::optional<Message> note_of(std::size_t call, Forest const& forest) {
    for (auto around = call; around != kNothing; around = forest.parent(around)) {
      auto const& event = all_.events[around];
      if (!event.collective) continue;
      for (auto inner = around; inner < all_.events.size() && all_.events[inner].start <= event.end; ++inner) {
        auto const& each = all_.events[inner];
        bool const is_note = each.collective && each.collective->evidence == CollectiveEvidence::params;
        if (is_note && each.lane == event.lane) return message_of(each, source_);
      }
      if (auto message = message_of(event, source_)) return message;
    }
    return std::nullopt;
  }

  /// Operators on other lanes wait for a collective only where the trace says so; this warns of collectives whose
  /// results nothing waits for.
  void warn_of_unused_results() {
    std::vector<bool> is_used(trace_.graph.ops.size(), false);
    for (std::size_t op = 0; op < trace_.graph.ops.size(); ++op) {
      for (OpId const earlier : trace_.graph.ops[op].after) {
        auto const before = static_cast<std::size_t>(earlier);
        if (trace_.lanes[before] != trace_.lanes[op]) is_used[before] = true;
      }
    }
    for (std::size_t op = 0; op < trace_.graph.ops.size(); ++op) {
      if (trace_.graph.ops[op].kind != OpKind::collective || is_used[op]) continue;
      bool const asynchronous = is_apart_from_threads(op);
      if (asynchronous) trace_.report.warn("collective of which the trace does not say who waits for it");
    }
  }

  /// Whether a collective runs apart from threads. One that its own caller carries out is waited for by what comes
  /// next.
  [[nodiscard]] bool is_apart_from_threads(std::size_t op) const {
    auto const lane = static_cast<std::size_t>(trace_.lanes[op]);
    if (all_.lanes[lane].is_device) return true;
    return std::any_of(trace_.graph.ops[op].after.begin(), trace_.graph.ops[op].after.end(), [&](OpId earlier) {
      return trace_.lanes[static_cast<std::size_t>(earlier)] != trace_.lanes[op];
    });
  }

  std::string const& source_;
  ImportedTrace trace_;
  Events all_;
  ProcessGroups groups_;
  UniqueNames names_;
  double begin_ = 0;
};

}  // namespace

ImportedTrace import_kineto(std::istream& in, std::string const& source) {
  Json const json = read_json_list(in, source, "traceEvents");
  return KinetoImporter(json, source).run();
}

}  // namespace weft
