#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/cache_line.hpp"

namespace weft::cuda {

/// Keeps things that take long to make, for use again once nobody holds them. They are default-made at first; whoever
/// takes one makes in it what it needs. No locks; any thread takes and gives back. Threads share no counter either: a
/// slot knows by itself whether its pool is gone, and then the last slot that comes back frees all of them.
template <typename Thing>
class SlotPool {
  struct Block;

 public:
  static constexpr std::size_t kSlots = 512;

  class alignas(kLine) Slot {
   public:
    Thing thing{};  ///< belongs to whoever has taken the slot

   private:
    friend class SlotPool;
    enum class State : std::uint8_t { free, taken, orphaned };
    std::atomic<State> state_{State::free};
    Block* home_ = nullptr;  ///< null: the slot is deleted when it comes back
  };

  SlotPool() : block_(new Block) {
    for (auto& slot : block_->slots) slot.home_ = block_;
  }
  ~SlotPool() {
    std::ptrdiff_t held = 0;
    for (auto& slot : block_->slots) {
      if (slot.state_.exchange(State::orphaned, std::memory_order_acq_rel) == State::taken) ++held;
    }
    block_->count_down(-held);
  }
  SlotPool(SlotPool const&) = delete;
  SlotPool& operator=(SlotPool const&) = delete;

  /// A slot that nobody else has. Where more than kSlots are held at once, further ones are made for as long as they
  /// are held. Never null.
  [[nodiscard]] Slot* take() {
    // Looks at the slots in turn, because the one that was taken longest ago is the most likely to be back. Where not
    // even that is back, there have to be more.
    auto const made = made_.load(std::memory_order_relaxed);
    auto const first = next_.load(std::memory_order_relaxed);
    for (std::size_t probe = 0; probe < std::min(kProbes, made); ++probe) {
      auto const index = first + probe < made ? first + probe : first + probe - made;
      if (!claim(index)) continue;
      auto const next = index + 1 < made ? index + 1 : 0;
      next_.store(next, std::memory_order_relaxed);
      // The thread that gave the next slot back may run on another core, from which fetching it takes time.
      prefetch_for_write(reinterpret_cast<std::byte const*>(&block_->slots[next]), sizeof(Slot));
      return &block_->slots[index];
    }
    if (made < kSlots) {
      made_.store(made + 1, std::memory_order_relaxed);  // if two threads do this at once, one finds the slot taken
      if (claim(made)) return &block_->slots[made];
    }
    next_.store(made == 0 ? 0 : (first + kProbes) % made, std::memory_order_relaxed);
    return new Slot;
  }

  static void give_back(Slot* slot) noexcept {
    if (slot->home_ == nullptr) {
      delete slot;
    } else if (slot->state_.exchange(State::free, std::memory_order_acq_rel) == State::orphaned) {
      slot->home_->count_down(1);
    }
  }

 private:
  using State = typename Slot::State;
  static constexpr std::size_t kProbes = 4;  ///< slots looked at before another one is used for the first time

  struct Block {
    std::array<Slot, kSlots> slots;
    std::atomic<std::ptrdiff_t> held{0};  ///< once the pool is gone; below 0 while that is found out

    void count_down(std::ptrdiff_t by) noexcept {
      if (held.fetch_sub(by, std::memory_order_acq_rel) == by) delete this;
    }
  };

  [[nodiscard]] bool claim(std::size_t index) noexcept {
    auto& state = block_->slots[index].state_;
    return state.load(std::memory_order_relaxed) == State::free &&
           state.exchange(State::taken, std::memory_order_acquire) == State::free;
  }

  Block* const block_;
  std::atomic<std::size_t> made_{0};  ///< slots below this number have been taken before
  std::atomic<std::size_t> next_{0};  ///< the slot to look at first
};

}  // namespace weft::cuda
