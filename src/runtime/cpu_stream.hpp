#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "core/process_number.hpp"
#include "runtime/stream_impl.hpp"

namespace weft {

/// A worker thread that runs tasks in order and sleeps while there are none.
///
/// Destruction runs what is enqueued, then joins. When the last reference is dropped by one of its own tasks the worker
/// cannot join itself: it is detached, and ends after its queue has drained.
class CpuStream final : public Stream::Impl {
 public:
  explicit CpuStream(StreamOptions const& options);
  ~CpuStream() override;
  CpuStream(CpuStream const&) = delete;
  CpuStream& operator=(CpuStream const&) = delete;

  void enqueue(std::function<void()> task) override;
  void synchronize() override;
  void help_until(std::function<bool()> const& enough) override;
  [[nodiscard]] Device device() const noexcept override { return {}; }
  [[nodiscard]] bool on_worker() const noexcept override;

 private:
  class Queue;

  std::uint32_t const process_ = process_number();
  std::shared_ptr<Queue> queue_;  ///< shared with the worker, which may outlive this
  std::thread worker_;
};

}  // namespace weft
