#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace weft::sim {

/// Stacks of one size with a guard page below each, kept for the next fiber: pages are taken when first touched, so
/// that thousands cost little more than what they use. Not thread-safe; outlives its fibers.
class StackPool {
 public:
  static constexpr std::size_t kStackBytes = std::size_t{64} << 10;

  /// Instrumented code has larger frames.
  explicit StackPool(std::size_t bytes = default_bytes());
  StackPool(StackPool const&) = delete;
  StackPool& operator=(StackPool const&) = delete;
  ~StackPool();

  /// @throws Error{out_of_memory}
  [[nodiscard]] boost::context::stack_context take();
  void give_back(boost::context::stack_context const& stack) { free_.push_back(stack); }

 private:
  [[nodiscard]] static std::size_t default_bytes() noexcept;
  std::size_t bytes_;
  std::vector<void*> mapped_;
  std::vector<boost::context::stack_context> free_;
};

/// A function that can be left in the middle and gone on with. `body` does not throw and has ended before this goes.
class Fiber {
 public:
  Fiber(StackPool& stacks, std::function<void()> body);

  /// From outside: goes on with the body until it calls leave() or ends.
  void enter();
  /// From inside.
  void leave();
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }

 private:
  /// What the C++ run-time library keeps for each thread of exceptions in flight, and a fiber needs of its own.
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };

  /// Sanitizers are told whenever the stack changes. `memory` is what they keep of the stack that is left.
  void begin_switch(void** memory, void const* bottom, std::size_t bytes) noexcept;
  void end_switch(void* memory) noexcept;
  void swap_exceptions() noexcept;

  std::function<void()> body_;
  boost::context::stack_context stack_;
  boost::context::fiber inside_;
  boost::context::fiber outside_;
  Exceptions exceptions_;
  bool ended_ = false;
  void* memory_inside_ = nullptr;
  void* memory_outside_ = nullptr;
  void const* bottom_outside_ = nullptr;
  std::size_t bytes_outside_ = 0;
};

}  // namespace weft::sim
