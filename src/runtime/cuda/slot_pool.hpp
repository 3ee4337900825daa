#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/cache_line.hpp"

namespace weft::cuda {

/// Things that take long to make, and are used again once nobody holds them: default-made ones at first, of which
/// whoever takes one makes what it needs. No locks; any thread takes and gives back. There is no count that all share
/// either: a slot knows by itself whether its pool is gone, and the last one that then comes back ends all of them.
template <typename Thing>
class SlotPool {
  struct Block;

 public:
  static constexpr std::size_t kSlots = 512;

  class alignas(kLine) Slot {
   public:
    Thing thing{};  ///< of whoever has taken the slot

   private:
    friend class SlotPool;
    enum class State : std::uint8_t { free, taken, orphaned };
    std::atomic<State> state_{State::free};
    Block* home_ = nullptr;  ///< null: goes when it comes back
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

  /// A slot that nobody else has; more than kSlots at once are made for the time they are held. Never null.
  [[nodiscard]] Slot* take() {
    // Round and round among those there are: the one that was taken longest ago is the most likely to be back. Where
    // not even that is, there have to be more.
    auto const made = made_.load(std::memory_order_relaxed);
    auto const first = next_.load(std::memory_order_relaxed);
    for (std::size_t probe = 0; probe < std::min(kProbes, made); ++probe) {
      auto const index = first + probe < made ? first + probe : first + probe - made;
      if (!claim(index)) continue;
      auto const next = index + 1 < made ? index + 1 : 0;
      next_.store(next, std::memory_order_relaxed);
      // Whoever gave it back may run on another core, from which it takes its time to come.
      prefetch_for_write(reinterpret_cast<std::byte const*>(&block_->slots[next]), sizeof(Slot));
      return &block_->slots[index];
    }
    if (made < kSlots) {
      made_.store(made + 1, std::memory_order_relaxed);  // where two threads do this at once, one finds the slot taken
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
  static constexpr std::size_t kProbes = 4;  ///< slots looked at before another one is made

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
  std::atomic<std::size_t> made_{0};  ///< slots below have been taken
  std::atomic<std::size_t> next_{0};  ///< the slot to look at first
};

}  // namespace weft::cuda
