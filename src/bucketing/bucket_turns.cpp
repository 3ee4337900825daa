#include "bucketing/bucket_turns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bucketing/release_pages.hpp"
#include "weft/error.hpp"

namespace weft {

BucketTurns::BucketTurns(Communicator& communicator, BucketPlan const& plan)
    : plan_(plan), places_(plan.buckets.size()) {
  MemoryScope const scope(MemoryKind::communication);
  for (Bucket const& bucket : plan_.buckets) {
    Memory& memory = memories_.emplace_back();
    memory.absent = MemoryCharge(MemoryKind::communication, 0);
    if (bucket.count == 0) continue;
    memory.buffer = communicator.allocate(bucket.count, bucket.dtype);
    set_resident(memory, false);
  }
}

void BucketTurns::set_resident(Memory& memory, bool resident) {
  memory.absent.set(resident ? 0 : -static_cast<std::ptrdiff_t>(memory.buffer.view().bytes()));
  memory.resident = resident;
}

// Takes the smallest memory left that is large enough.
std::optional<std::size_t> BucketTurns::left_for(std::size_t bytes) {
  auto best = left_.end();
  for (auto one = left_.begin(); one != left_.end(); ++one) {
    std::size_t const room = memories_[*one].buffer.view().bytes();
    if (room >= bytes && (best == left_.end() || room < memories_[*best].buffer.view().bytes())) best = one;
  }
  if (best == left_.end()) return std::nullopt;
  std::size_t const found = *best;
  left_.erase(best);
  return found;
}

void BucketTurns::zero_padding(std::size_t index, BufferView const& whole) const {
  std::size_t end = 0;
  auto const zero_to = [&](std::size_t offset) {
    BufferView const gap = whole.slice(end, offset - end);
    std::memset(gap.data, 0, gap.bytes());
  };
  for (BucketSlot const& slot : plan_.buckets[index].slots) {
    if (slot.count == 0) continue;
    zero_to(slot.offset);
    end = slot.offset + slot.count;
  }
  zero_to(whole.count);
}

Buffer BucketTurns::take(std::size_t index) {
  std::lock_guard const lock(mutex_);
  Bucket const& bucket = plan_.buckets[index];
  Place& place = places_[index];
  if (place.turn == Turn::sent) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("bucketer: gradients of bucket {} of {} are sent, and their memory is another bucket's until "
                    "the step has ended",
                    index, places_.size()));
  }
  bool const comes = place.turn == Turn::to_come;
  if (comes) {
    place.memory = left_for(bucket.bytes()).value_or(index);
    if (!memories_[place.memory].resident) set_resident(memories_[place.memory], true);
    place.turn = Turn::here;
  }
  Buffer taken(memories_[place.memory].buffer.owner(), bucket.count, bucket.dtype, Device{});
  if (comes) zero_padding(index, taken.view());
  return taken;
}

void BucketTurns::send(std::size_t index) {
  std::lock_guard const lock(mutex_);
  places_[index].turn = Turn::sent;
}

void BucketTurns::leave(std::size_t index) {
  std::lock_guard const lock(mutex_);
  left_.push_back(places_[index].memory);
}

void BucketTurns::end_step() {
  std::lock_guard const lock(mutex_);
  left_.clear();
  for (Place& place : places_) place.turn = Turn::to_come;
  std::vector<Memory*> resident;
  for (Memory& memory : memories_) {
    if (memory.resident) resident.push_back(&memory);
  }
  std::stable_sort(resident.begin(), resident.end(), [](Memory const* a, Memory const* b) {
    return a->buffer.view().bytes() > b->buffer.view().bytes();
  });
  for (std::size_t i = kKept; i < resident.size(); ++i) {
    BufferView const whole = resident[i]->buffer.view();
    release_outside(whole, whole.slice(whole.count, 0));
    set_resident(*resident[i], false);
  }
}

}  // namespace weft
