#include "cuda/fake/fake_capture.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::test {

FakeGraphMemory::FakeGraphMemory(FakeGpu& gpu, std::size_t bytes)
    : gpu_(gpu), bytes_(bytes), address_(gpu.take_memory(bytes)) {}
FakeGraphMemory::~FakeGraphMemory() {
  gpu_.return_memory(address_);
}

void FakeGraphMemory::take() {
  if (taken_.exchange(true)) gpu_.violate("a graph ran again before it had freed its memory");
  std::memset(address_, 0xcd, bytes_);
}

void FakeGraphMemory::give_back() {
  if (!taken_.exchange(false)) gpu_.violate("a graph freed memory that it had not taken");
  std::memset(address_, 0xee, bytes_);
}

void FakeCapture::add(FakeGpu::Queue const* on, std::function<void()> task) {
  std::scoped_lock const lock(mutex_);
  graph_.tasks.push_back(std::move(task));
  seen_[on][on] = ++work_[on];
}

void* FakeCapture::allocate(FakeGpu::Queue const* on, std::size_t bytes) {
  auto const memory = std::make_shared<FakeGraphMemory>(gpu_, bytes);
  {
    std::scoped_lock const lock(mutex_);
    graph_.memory.push_back(memory);
  }
  add(on, [&memory = *memory] { memory.take(); });
  return memory->address();
}

bool FakeCapture::free(FakeGpu::Queue const* on, void const* address) {
  std::shared_ptr<FakeGraphMemory> memory;
  {
    std::scoped_lock const lock(mutex_);
    auto const found = std::find_if(graph_.memory.begin(), graph_.memory.end(),
                                    [&](auto const& one) { return one->address() == address; });
    if (found == graph_.memory.end()) return false;
    memory = *found;
  }
  add(on, [&memory = *memory] { memory.give_back(); });
  return true;
}

FakeCapture::Seen FakeCapture::seen_by(FakeGpu::Queue const* on) const {
  std::scoped_lock const lock(mutex_);
  auto const found = seen_.find(on);
  return found == seen_.end() ? Seen() : found->second;
}

void FakeCapture::follow(FakeGpu::Queue const* on, Seen const& point) {
  std::scoped_lock const lock(mutex_);
  for (auto const& [queue, count] : point) seen_[on][queue] = std::max(seen_[on][queue], count);
}

bool FakeCapture::is_joined() const {
  auto const seen = seen_by(origin_);
  std::scoped_lock const lock(mutex_);
  return std::all_of(work_.begin(), work_.end(), [&](auto const& one) {
    auto const known = seen.find(one.first);
    return known != seen.end() && known->second == one.second;
  });
}

FakeGpu::Graph FakeCapture::take() {
  std::scoped_lock const lock(mutex_);
  return std::exchange(graph_, {});
}

}  // namespace weft::test
