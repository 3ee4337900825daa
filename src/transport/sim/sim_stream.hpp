#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "runtime/stream_impl.hpp"

namespace weft::sim {

class World;

/// A Stream of the CPU in a simulation: an in-order queue whose tasks take virtual time, run by a strand of the rank
/// that made it.
///
/// Destruction waits for what is enqueued. Where one of its own tasks drops the last reference it does not wait; the
/// strand then ends after its queue has drained.
class SimStream final : public Stream::Impl {
 public:
  explicit SimStream(World& world);
  ~SimStream() override;
  SimStream(SimStream const&) = delete;
  SimStream& operator=(SimStream const&) = delete;

  void enqueue(std::function<void()> task) override;
  void synchronize() override;
  [[nodiscard]] Device device() const noexcept override { return {}; }
  [[nodiscard]] bool on_worker() const noexcept override;

 private:
  struct Queue {
    std::deque<std::function<void()>> tasks;
    std::uint64_t pushed = 0;
    std::uint64_t ran = 0;
    bool closed = false;
    bool ended = false;
  };
  static void run(World& world, Queue& queue) noexcept;

  World& world_;
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();  ///< shared with the strand, which may live longer
  std::uint32_t strand_;
};

}  // namespace weft::sim
