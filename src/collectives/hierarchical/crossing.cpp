#include "collectives/hierarchical/crossing.hpp"

#include <span>

#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/partition.hpp"
#include "weft/error.hpp"

namespace weft::hierarchical {

HierarchicalBackend::Crossing::Crossing(HierarchicalBackend& owner, Call const& call) : owner_(owner), call_(call) {
  if (!owner_.between_) return;
  call_ = step_of(call, owner_.inter_calls_);
  between_ = &owner_.between_(call_);
}

HierarchicalBackend::Crossing::~Crossing() {
  try {
    for (auto& step : under_way_) wait_for(step);
  } catch (Error const&) {  // the others know of it already, and nothing is under way any more
  }
}

HierarchicalBackend::Crossing::Step HierarchicalBackend::Crossing::start(Transport& between, void const* send,
                                                                         PartArrays const& given, void* recv,
                                                                         PartArrays const& got) const {
  Step step;
  auto const element = size_of(call_.contract.dtype);
  auto const size = between.size();
  for (int distance = 1; distance < size; ++distance) {  // so that not all send to the same rank first
    auto const to = (between.rank() + distance) % size;
    auto const from = (between.rank() - distance + size) % size;
    auto const sent = static_cast<std::size_t>(to);
    auto const received = static_cast<std::size_t>(from);
    if (given.counts[sent] > 0) {
      auto const* const data = static_cast<std::byte const*>(at(send, given.offsets[sent] * element));
      step.push_back(between.start_send(to, {data, given.counts[sent] * element}));
    }
    if (got.counts[received] > 0) {
      auto* const data = static_cast<std::byte*>(at(recv, got.offsets[received] * element));
      step.push_back(between.start_recv(from, {data, got.counts[received] * element}));
    }
  }
  return step;
}

void HierarchicalBackend::Crossing::begin(void const* send, PartArrays const& given, void* recv,
                                          PartArrays const& got) {
  if (between_ == nullptr) {
    owner_.exchange(call_, send, given, recv, got, &HierarchicalBackend::run_inter);
    return;
  }
  try {
    under_way_.push_back(start(*between_, send, given, recv, got));
  } catch (Error const& error) {
    owner_.intra_->fail(error.code(), error.what());
    throw;
  }
}

void HierarchicalBackend::Crossing::wait_for(Step& step) {
  for (auto& each : step) between_->wait(each);
  step.clear();
}

void HierarchicalBackend::Crossing::wait() {
  if (under_way_.empty()) return;
  try {
    wait_for(under_way_.front());
  } catch (Error const& error) {
    owner_.intra_->fail(error.code(), error.what());
    throw;
  }
  under_way_.pop_front();
}

}  // namespace weft::hierarchical
