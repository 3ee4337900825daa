#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "runtime/stream_impl.hpp"

namespace weft::sim {

class World;

/// An in-order queue whose tasks take virtual time: a strand of the rank that made it.
///
/// Destruction waits for what is enqueued. When the last reference is dropped by one of its own tasks it does not, and
/// the strand ends after its queue has drained.
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
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();  ///< shared with the strand, which may outlive this
  std::uint32_t strand_;
};

}  // namespace weft::sim
