#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace weft::sim {

/// Stacks of one size with a guard page below each, which are kept for later fibers. Pages are taken when first
/// touched, so thousands of stacks cost little more than what they use. Not thread-safe; must outlive its fibers.
class StackPool {
 public:
  static constexpr std::size_t kStackBytes = std::size_t{64} << 10;

  /// `bytes`: of each stack; the default is larger in builds with sanitizers, whose frames are larger.
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

/// A function that can be left in the middle and resumed later. `body` must not throw, and must have ended before the
/// Fiber is destroyed.
class Fiber {
 public:
  Fiber(StackPool& stacks, std::function<void()> body);

  /// For callers outside: resumes the body until it calls leave() or ends.
  void enter();
  /// For the body: returns to the caller of enter().
  void leave();
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }

 private:
  /// What the C++ run-time library keeps per thread about exceptions in flight; each fiber needs its own.
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };

  /// Tells sanitizers that the stack changes. `memory`: where they keep what they need of the stack that is left.
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
