#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/fake/fake_gpu.hpp"

namespace weft::test {

/// Memory that a graph takes and gives back each time it runs, always at the same address.
class FakeGraphMemory {
 public:
  FakeGraphMemory(FakeGpu& gpu, std::size_t bytes);
  ~FakeGraphMemory();
  FakeGraphMemory(FakeGraphMemory const&) = delete;
  FakeGraphMemory& operator=(FakeGraphMemory const&) = delete;

  [[nodiscard]] void* address() const noexcept { return address_; }
  // When the graph comes to it.
  void take();
  void give_back();

 private:
  FakeGpu& gpu_;
  std::size_t bytes_;
  void* address_;
  std::atomic<bool> taken_{false};
};

/// What streams under one capture would do, in the order it was enqueued, and who of them knows of whose work. Any
/// thread.
class FakeCapture {
 public:
  /// How much of each stream's work comes before some point.
  using Seen = std::map<FakeGpu::Queue const*, std::size_t>;

  FakeCapture(FakeGpu& gpu, unsigned long long number, bool is_global, FakeGpu::Queue const* origin)
      : id(number), global(is_global), gpu_(gpu), origin_(origin) {}

  void add(FakeGpu::Queue const* on, std::function<void()> task);
  [[nodiscard]] void* allocate(FakeGpu::Queue const* on, std::size_t bytes);
  /// False: the memory is none of this graph's.
  bool free(FakeGpu::Queue const* on, void const* memory);

  [[nodiscard]] Seen seen_by(FakeGpu::Queue const* on) const;
  /// Work that `on` gets from now on comes after that.
  void follow(FakeGpu::Queue const* on, Seen const& point);
  /// The stream that the capture began on comes after all of it.
  [[nodiscard]] bool is_joined() const;

  /// What it was.
  [[nodiscard]] FakeGpu::Graph take();

  unsigned long long const id;
  bool const global;  ///< calls of any thread can break it

 private:
  FakeGpu& gpu_;
  FakeGpu::Queue const* const origin_;
  mutable std::mutex mutex_;
  FakeGpu::Graph graph_;
  Seen work_;                                   ///< all there is
  std::map<FakeGpu::Queue const*, Seen> seen_;  ///< by stream: what its next work comes after
};

}  // namespace weft::test
