#include "scheduler/execute/profile.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "bucketing/bucket_sender.hpp"
#include "bucketing/transfer_cost.hpp"
#include "scheduler/execute/agree.hpp"
#include "weft/cost_model.hpp"

namespace weft {

StepProfile::StepProfile(OpGraph const& graph, int steps)
    : graph_(graph), steps_(static_cast<std::size_t>(steps)), seconds_(graph.ops.size() * steps_) {}

void StepProfile::add(std::span<OpTiming const> timings) noexcept {
  for (std::size_t op = 0; op < timings.size(); ++op) {
    if (graph_.ops[op].kind == OpKind::collective) continue;
    std::chrono::duration<double> const took = timings[op].finished - timings[op].started;
    seconds_[op * steps_ + taken_] = took.count();
  }
  ++taken_;
}

std::vector<double> StepProfile::medians() const {
  std::vector<double> medians(graph_.ops.size());
  for (std::size_t op = 0; op < medians.size(); ++op) {
    auto const begin = seconds_.begin() + static_cast<std::ptrdiff_t>(op * steps_);
    std::vector<double> of_steps(begin, begin + static_cast<std::ptrdiff_t>(taken_));
    auto const middle = of_steps.begin() + static_cast<std::ptrdiff_t>(taken_ / 2);
    std::nth_element(of_steps.begin(), middle, of_steps.end());
    medians[op] = *middle;
  }
  return medians;
}

namespace {

/// The link speed with which a ring's all_reduce of the group takes `latency_s` and `seconds_per_byte`.
LinkSpeed speed_for(double latency_s, double seconds_per_byte, LinkSpeed const& assumed, Cluster cluster,
                    OpGroup const& group, Resource link) {
  LinkSpeed const unit{1, 1};
  cluster.within = cluster.between = unit;
  if (link == Resource::between_hosts) cluster.within = {1e30, 0};
  CostModel const model(cluster);
  auto const cost = model.collective(CollectiveKind::all_reduce, 1, model.placement(group), CollectiveAlgorithm::ring);
  LinkSpeed speed = assumed;
  if (cost.latency_s > 0) speed.step_s = latency_s / cost.latency_s;
  if (cost.transfer_s > 0 && seconds_per_byte > 0) speed.bytes_per_s = cost.transfer_s / seconds_per_byte;
  return speed;
}

}  // namespace

Cluster measure_links(Communicator& world, std::span<Communicator* const> groups, OpGraph const& graph,
                      Cluster const& assumed, std::span<Stream const> streams) {
  Cluster measured = assumed;
  CostModel const model(assumed);
  for (Resource const link : {Resource::within_host, Resource::between_hosts}) {
    std::optional<GroupId> group;
    std::size_t bytes = 0;
    for (OpNode const& op : graph.ops) {
      if (op.kind != OpKind::collective) continue;
      auto const placement = model.placement(graph.groups[static_cast<std::size_t>(op.collective.group)]);
      if (model.resource(op, placement) != link) continue;
      if (!group) group = op.collective.group;
      bytes += static_cast<std::size_t>(op.collective.bytes);
    }
    if (!group) continue;
    Communicator& communicator = *groups[static_cast<std::size_t>(*group)];
    BucketSender sender(communicator, {.stream = streams[static_cast<std::size_t>(link)]});
    TransferCost const here = measure_transfer_cost(communicator, sender, DataType::f32, bytes);
    auto const cost = medians_of_ranks(world, std::array{here.seconds, here.seconds_per_byte});
    bool const within = link == Resource::within_host;
    LinkSpeed& speed = within ? measured.within : measured.between;
    speed = speed_for(cost[0], cost[1], speed, assumed, graph.groups[static_cast<std::size_t>(*group)], link);
  }
  return measured;
}

}  // namespace weft
