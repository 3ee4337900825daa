#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/buffer.hpp"
#include "weft/stream.hpp"

namespace weft {

/// A point in one stream's queue, left there by Event::record(). Thread-safe.
class EventMark {
 public:
  virtual ~EventMark() = default;
  [[nodiscard]] virtual bool reached() const noexcept = 0;
  /// Blocks the calling thread until reached.
  virtual void synchronize() const = 0;
  /// Makes work enqueued on `stream` from now on start after this mark, which may be reached already. `self` keeps the
  /// mark alive for as long as that takes.
  virtual void wait_on(Stream const& stream, std::shared_ptr<EventMark const> const& self) const = 0;
  /// Time from this mark to a later one, both reached. Only called with a mark of the same kind of device.
  /// @throws Error{invalid_argument}
  [[nodiscard]] virtual std::chrono::nanoseconds elapsed_until(EventMark const& later) const = 0;
};

/// Work that was promised to a stream but is not yet in its queue.
class DeferredWork {
 public:
  virtual ~DeferredWork() = default;
  /// Enqueues it. Called by any thread.
  virtual void launch() noexcept = 0;
};

/// What a device implements so that it has Streams.
class Stream::Impl : public std::enable_shared_from_this<Stream::Impl> {
 public:
  virtual ~Impl() = default;
  virtual void enqueue(std::function<void()> task) = 0;
  virtual void synchronize() = 0;
  /// As Stream::help_until(); devices whose tasks no other thread can run do nothing.
  virtual void help_until(std::function<bool()> const& /*enough*/) {}
  [[nodiscard]] virtual Device device() const noexcept = 0;
  /// True when the calling thread runs a task of this stream (so that it must not wait for itself).
  [[nodiscard]] virtual bool on_worker() const noexcept = 0;
  /// Marks the end of the queue. The default enqueues a task that stamps the time; devices with events of their own
  /// override it.
  [[nodiscard]] virtual std::shared_ptr<EventMark> mark();

  /// Copies `bytes` between two places that do not overlap, or sets each byte, in the stream's order. A null place has
  /// no bytes. The defaults are tasks on the host.
  virtual void copy(void* to, void const* from, std::size_t bytes);
  virtual void fill(void* at, std::uint8_t byte, std::size_t bytes);
  void zero(void* at, std::size_t bytes) { fill(at, 0, bytes); }

  /// Zero-filled memory in the stream's order, for what is enqueued from now on. The default is host memory.
  [[nodiscard]] virtual Buffer allocate(std::size_t count, DataType dtype);
  /// Gives back memory that allocate() of any stream of this device returned, once what was enqueued here so far is
  /// done.
  virtual void release(Buffer memory);

  /// Has `work` launched before anything else is enqueued on this stream.
  void defer(std::weak_ptr<DeferredWork> const& work);
  /// Launches deferred work, except for `except`. Called first by everything that uses the stream, and by its
  /// destructor.
  void launch_deferred(DeferredWork const* except = nullptr);

 private:
  std::atomic<bool> has_deferred_{false};
  std::mutex deferred_mutex_;
  std::vector<std::weak_ptr<DeferredWork>> deferred_;
};

}  // namespace weft
