#include "collectives/fusion.hpp"

#include <algorithm>
#include <utility>

namespace weft {

void Fusion::set(Stream const& stream, std::size_t bytes) {
  std::scoped_lock const lock(mutex_);
  flush();
  limits_.erase(
      std::remove_if(limits_.begin(), limits_.end(),
                     [&](Limit const& limit) { return limit.stream.expired() || limit.impl == &stream.impl(); }),
      limits_.end());
  if (bytes > 0) limits_.push_back({stream.impl().weak_from_this(), &stream.impl(), bytes});
}

std::size_t Fusion::limit(Stream const& stream) const {
  for (auto const& limit : limits_) {
    if (limit.impl == &stream.impl() && !limit.stream.expired()) return limit.bytes;
  }
  return 0;
}

bool Fusion::holds_back(Call const& call, Stream const& stream) const {
  switch (call.contract.operation) {
    // In these operations buffers have the same roles on every rank, so all ranks see the same dependencies.
    case Operation::all_reduce:
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::broadcast: break;
    default: return false;
  }
  if (!MergedCall::merges(call) || call.bytes() > limits_of_merging_.each) return false;
  std::scoped_lock const lock(mutex_);
  return call.bytes() < limit(stream);
}

std::size_t Fusion::sent(Call const& call) const noexcept {
  return call.bytes() * (shape_of(call.contract.operation).send_parts ? ranks_ : 1);
}

std::size_t Fusion::received(Call const& call) const noexcept {
  return call.bytes() * (shape_of(call.contract.operation).recv_parts ? ranks_ : 1);
}

bool Fusion::joins(Call const& call, Stream::Impl const& stream, std::size_t limit) const {
  return pending_->stream == &stream && pending_->calls.accepts(call) &&
         pending_->calls.bytes() + call.bytes() <= limit && !pending_->writes.touches(call.send, sent(call)) &&
         !pending_->writes.touches(call.recv, received(call)) && !pending_->reads.touches(call.recv, received(call));
}

void Fusion::note_ranges(Call const& call) {
  pending_->reads.add(call.send, sent(call));
  pending_->writes.add(call.recv, received(call));
}

Work Fusion::add(Call&& call, MergedCall::Run run, Stream const& stream) {
  stream.impl().launch_deferred(this);
  std::scoped_lock const lock(mutex_);
  auto const bytes_limit = limit(stream);
  if (pending_ && joins(call, stream.impl(), bytes_limit)) {
    pending_->calls.add(call);
  } else {
    flush();
    auto state = std::make_shared<Work::State>(weak_from_this());
    state->enqueue();
    stream.impl().defer(weak_from_this());
    pending_.emplace(
        Pending{MergedCall(Call(call), run, limits_of_merging_), &stream.impl(), std::move(state), {}, {}});
  }
  note_ranges(call);
  Work work{pending_->state};
  if (pending_->calls.bytes() >= bytes_limit) flush();
  return work;
}

void Fusion::flush() {
  if (!pending_) return;
  auto pending = std::move(*pending_);
  pending_.reset();
  pending.calls.close();
  launch_(std::move(pending.calls), *pending.stream, std::move(pending.state));
}

bool Fusion::launch(Work::State const& state) noexcept {
  std::scoped_lock const lock(mutex_);
  if (pending_ && pending_->state.get() == &state) flush();
  return true;
}

void Fusion::launch() noexcept {
  std::scoped_lock const lock(mutex_);
  flush();
}

}  // namespace weft
