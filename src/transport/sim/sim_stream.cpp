#include "transport/sim/sim_stream.hpp"

#include <utility>

#include "transport/sim/world.hpp"

namespace weft::sim {
namespace {

constexpr auto kForEver = Timeline::TimePoint::max();

}  // namespace

SimStream::SimStream(World& world)
    : world_(world), strand_(world.start_strand([&world, queue = queue_] { run(world, *queue); })) {}

SimStream::~SimStream() {
  launch_deferred();
  queue_->closed = true;
  world_.wake(&queue_->pushed);
  if (on_worker()) return;
  while (!queue_->ended) world_.wait(&queue_->ran, kForEver);
}

void SimStream::run(World& world, Queue& queue) noexcept {
  for (;;) {
    while (queue.tasks.empty() && !queue.closed) world.wait(&queue.pushed, kForEver);
    if (queue.tasks.empty()) break;
    auto task = std::move(queue.tasks.front());
    queue.tasks.pop_front();
    task();
    task = nullptr;  // what it captured is destroyed before synchronize() returns
    ++queue.ran;
    world.wake(&queue.ran);
  }
  queue.ended = true;
  world.wake(&queue.ran);
}

void SimStream::enqueue(std::function<void()> task) {
  queue_->tasks.push_back(std::move(task));
  ++queue_->pushed;
  world_.wake(&queue_->pushed);
}

void SimStream::synchronize() {
  auto const queue = queue_;
  auto const target = queue->pushed;
  while (queue->ran < target) world_.wait(&queue->ran, kForEver);
}

bool SimStream::on_worker() const noexcept {
  return world_.is_running(strand_);
}

}  // namespace weft::sim
