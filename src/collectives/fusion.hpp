#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/address_ranges.hpp"
#include "collectives/merged_call.hpp"
#include "runtime/stream_impl.hpp"
#include "runtime/work_state.hpp"
#include "weft/stream.hpp"
#include "weft/work.hpp"

namespace weft {

/// Merges consecutive small calls on the streams that a communicator fuses. It holds calls back until one of these
/// launches them: enough bytes; a call of another kind, size or stream; a call that depends on them; a look at one of
/// their Works; other work on their stream. All of these depend only on the program, so every rank merges alike.
///
/// Any thread may look at the Works of calls that were launched. Works of calls that are held back are for the thread
/// that issues calls alone: a look by another thread would make merging depend on timing.
class Fusion final : public WorkLauncher, public DeferredWork, public std::enable_shared_from_this<Fusion> {
 public:
  /// Puts the merged calls on the stream; `state` completes with them.
  using Launch = std::function<void(MergedCall&& calls, Stream::Impl& stream, std::shared_ptr<Work::State> state)>;

  Fusion(int ranks, MergeLimits const& limits, Launch launch)
      : ranks_(static_cast<std::size_t>(ranks)), limits_of_merging_(limits), launch_(std::move(launch)) {}

  /// From now on calls on `stream` merge up to `bytes` in all; 0: they merge no longer.
  void set(Stream const& stream, std::size_t bytes);
  /// Whether `call` is held back on `stream`. Calls that cannot merge are not.
  [[nodiscard]] bool holds_back(Call const& call, Stream const& stream) const;
  /// Holds back a call for which holds_back() is true.
  Work add(Call&& call, MergedCall::Run run, Stream const& stream);

  /// Launches what is pending, then calls `next` before another call can be added.
  template <typename Next>
  auto flush_then(Next&& next) {
    std::scoped_lock const lock(mutex_);
    flush();
    return next();
  }

  bool launch(Work::State const& state) noexcept override;
  void launch() noexcept override;

 private:
  struct Pending {
    MergedCall calls;
    Stream::Impl* stream;  // valid: the stream launches what is pending before it ends
    std::shared_ptr<Work::State> state;
    AddressRanges reads;
    AddressRanges writes;
  };
  struct Limit {
    std::weak_ptr<Stream::Impl> stream;  // never locked: the caller must drop the last copy, which drains the stream
    Stream::Impl const* impl;            // the same stream, while it lives
    std::size_t bytes;
  };

  void flush();
  /// The limit of `stream`; 0: not fused.
  [[nodiscard]] std::size_t limit(Stream const& stream) const;
  [[nodiscard]] bool joins(Call const& call, Stream::Impl const& stream, std::size_t limit) const;
  void note_ranges(Call const& call);
  [[nodiscard]] std::size_t sent(Call const& call) const noexcept;
  [[nodiscard]] std::size_t received(Call const& call) const noexcept;

  std::size_t const ranks_;
  MergeLimits const limits_of_merging_;
  Launch const launch_;
  mutable std::mutex mutex_;
  std::vector<Limit> limits_;  // few
  std::optional<Pending> pending_;
};

}  // namespace weft
