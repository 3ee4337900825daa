#include "importers/kineto/edges.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include "importers/common/json_input.hpp"

namespace weft::kineto {

namespace {

class EdgeAdder {
 public:
  EdgeAdder(Events const& all, Forest const& forest, Operators const& operators, OpGraph& graph, ImportReport& report)
      : all_(all), forest_(forest), operators_(operators), graph_(graph), report_(report) {}

  void run() {
    order_lanes();
    find_streams();
    link_launches();
    link_titles();
    link_flows();
    link_syncs();
    order_collectives();
    for (auto& op : graph_.ops) {
      std::sort(op.after.begin(), op.after.end());
      op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
    }
  }

 private:
  void add(std::size_t earlier, std::size_t later, char const* what) {
    if (earlier == kNothing || later == kNothing || earlier == later) return;
    if (earlier > later) {
      report_.warn(std::string(what) + " to an operator that started before: left out");
      return;
    }
    graph_.ops[later].after.push_back(static_cast<OpId>(earlier));
  }

  [[nodiscard]] Event const& event_of(std::size_t op) const { return all_.events[operators_.list()[op].event]; }

  void order_lanes() {
    std::vector<std::size_t> last(all_.lanes.size(), kNothing);
    for (std::size_t op = 0; op < operators_.list().size(); ++op) {
      auto& before = last[event_of(op).lane];
      add(before, op, "order");
      before = op;
    }
  }

  void find_streams() {
    for (std::size_t op = 0; op < operators_.list().size(); ++op) {
      auto const& event = event_of(op);
      if (event.kind != EventKind::device || event.args == nullptr) continue;
      on_stream_[whole_in(*event.args, "stream", -1)].push_back(op);
    }
  }

  void link_launches() {
    for (std::size_t event = 0; event < all_.events.size(); ++event) {
      for (auto const launched : operators_.launched_by(event)) {
        add(operators_.of_event(event), operators_.of_event(launched), "launch");
      }
    }
  }

  void link_titles() {
    for (std::size_t event = 0; event < all_.events.size(); ++event) {
      auto const call = operators_.call_of(event);
      if (call != kNothing) add(operators_.of_event(call), operators_.of_event(event), "call");
    }
  }

  void link_flows() {
    std::unordered_map<std::string, std::size_t> begins;
    for (auto const& flow : all_.flows) {
      if (flow.begins) begins.emplace(flow.id, operator_at(flow));
    }
    for (auto const& flow : all_.flows) {
      if (flow.begins) continue;
      auto const begin = begins.find(flow.id);
      if (begin == begins.end()) {
        report_.warn("end of a flow without a beginning: left out");
      } else {
        add(begin->second, operator_at(flow), "flow");
      }
    }
  }

  [[nodiscard]] std::size_t operator_at(FlowEnd const& flow) const {
    auto const event = forest_.at(flow.lane, flow.at);
    return event == kNothing ? kNothing : operators_.of_event(event);
  }

  void link_syncs() {
    for (std::size_t i = 0; i < all_.events.size(); ++i) {
      auto const& event = all_.events[i];
      for (auto const earlier : operators_.waited_for(i)) {
        add(operators_.of_event(earlier), operators_.of_event(i), "synchronisation");
      }
      if (event.kind == EventKind::sync && event.args != nullptr) link_streams(event);
    }
  }

  /// "Stream Wait Event": what comes next on one stream waits for what was there on another.
  void link_streams(Event const& event) {
    auto const waiting = whole_in(*event.args, "stream", -1);
    auto const waited_for = whole_in(*event.args, "wait_on_stream", -1);
    if (waiting < 0 || waited_for < 0 || waiting == waited_for) return;
    auto const next = first_on(waiting, event.start);
    auto const last = last_on(waited_for, event.start);
    if (next != kNothing && last != kNothing) add(last, next, "stream wait");
  }

  [[nodiscard]] std::size_t first_after(double time) const {
    auto const& list = operators_.list();
    auto const found =
        std::lower_bound(list.begin(), list.end(), time, [](Operator const& op, double at) { return op.start < at; });
    return static_cast<std::size_t>(found - list.begin());
  }
  [[nodiscard]] std::size_t first_on(std::int64_t stream, double time) const {
    auto const found = on_stream_.find(stream);
    if (found == on_stream_.end()) return kNothing;
    auto const next = std::lower_bound(found->second.begin(), found->second.end(), first_after(time));
    return next == found->second.end() ? kNothing : *next;
  }
  [[nodiscard]] std::size_t last_on(std::int64_t stream, double time) const {
    auto const found = on_stream_.find(stream);
    if (found == on_stream_.end()) return kNothing;
    auto const next = std::lower_bound(found->second.begin(), found->second.end(), first_after(time));
    return next == found->second.begin() ? kNothing : *std::prev(next);
  }

  /// A collective's stream waits for what its thread had launched before: torch's ProcessGroupNCCL does so.
  void order_collectives() {
    std::vector<std::size_t> launches;
    for (std::size_t i = 0; i < all_.events.size(); ++i) {
      if (!operators_.launched_by(i).empty()) launches.push_back(i);
    }
    std::map<std::size_t, std::map<std::size_t, std::size_t>> last;  // by thread and stream
    for (auto const launch : launches) {
      auto& of_thread = last[all_.events[launch].lane];
      for (auto const event : operators_.launched_by(launch)) {
        auto const op = operators_.of_event(event);
        if (op == kNothing) continue;
        auto const lane = all_.events[event].lane;
        if (operators_.list()[op].is_collective) {
          for (auto const& [stream, earlier] : of_thread) {
            if (stream != lane) add(earlier, op, "what was launched before a collective");
          }
        }
        of_thread[lane] = op;
      }
    }
  }

  Events const& all_;
  Forest const& forest_;
  Operators const& operators_;
  OpGraph& graph_;
  ImportReport& report_;
  std::unordered_map<std::int64_t, std::vector<std::size_t>> on_stream_;  ///< by stream: its operators, by start
};

}  // namespace

void add_edges(Events const& all, Forest const& forest, Operators const& operators, OpGraph& graph,
               ImportReport& report) {
  EdgeAdder(all, forest, operators, graph, report).run();
}

}  // namespace weft::kineto
