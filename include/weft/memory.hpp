#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// What memory is for.
enum class MemoryKind : std::uint8_t { parameters, gradients, optimizer, communication, activations, other };
inline constexpr std::size_t kMemoryKinds = 6;

[[nodiscard]] std::string_view to_string(MemoryKind kind) noexcept;

struct MemoryUsage {
  std::size_t live = 0;  ///< bytes
  std::size_t peak = 0;  ///< the most there ever were
};

/// One rank's account of what Weft allocates: buffers, symmetric memory (this rank's part of it), communicators'
/// staging memory, optimizer states; and of what the program registers with a MemoryCharge. Copies are the same
/// account. Thread-safe.
///
///   weft::MemoryAccount account(std::size_t{2} << 30);
///   weft::MemoryAccount::Binding const bound(account);
///   …everything that this thread creates from here on…
///   std::cout << weft::format_memory_report(account);
class MemoryAccount {
 public:
  static constexpr std::size_t kUnlimited = SIZE_MAX;

  /// Allocations that would take the account above `budget` bytes throw Error{out_of_memory}, naming what did not fit,
  /// and what the memory is used for.
  explicit MemoryAccount(std::size_t budget = kUnlimited);

  [[nodiscard]] MemoryUsage usage(MemoryKind kind) const;
  /// Of all kinds; its peak is that of the sum.
  [[nodiscard]] MemoryUsage total() const;
  [[nodiscard]] std::size_t budget() const noexcept;

  /// While it lives, what the thread that made it allocates is charged to the account, for as long as the memory lasts.
  /// Streams' threads allocate nothing that counts.
  class Binding {
   public:
    explicit Binding(MemoryAccount const& account);
    ~Binding();
    Binding(Binding const&) = delete;
    Binding& operator=(Binding const&) = delete;

   private:
    MemoryAccount const* previous_;
  };

 private:
  friend class MemoryCharge;
  class State;
  std::shared_ptr<State> state_;
};

/// While it lives, buffers that this thread allocates are of `kind`. Without one they are `other`, and symmetric memory
/// `communication`. The innermost counts.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind) noexcept;
  ~MemoryScope();
  MemoryScope(MemoryScope const&) = delete;
  MemoryScope& operator=(MemoryScope const&) = delete;

  /// The calling thread's.
  [[nodiscard]] static MemoryKind current(MemoryKind otherwise = MemoryKind::other) noexcept;

 private:
  std::uint8_t previous_;
};

/// Bytes that are charged to the account of the thread that made it, while it lives; to none where it had none.
/// Move-only.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  /// @throws Error{out_of_memory} where they do not fit, as set().
  MemoryCharge(MemoryKind kind, std::size_t bytes);
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

  /// From now on so many instead. Below 0: of what other charges of this kind count, so much was given back. Any
  /// thread, one at a time.
  void set(std::ptrdiff_t bytes);
  [[nodiscard]] bool is_counted() const noexcept { return state_ != nullptr; }

 private:
  std::shared_ptr<MemoryAccount::State> state_;
  MemoryKind kind_ = MemoryKind::other;
  std::ptrdiff_t bytes_ = 0;
};

/// `memory`, charged for as long as somebody holds what is returned.
template <typename T>
[[nodiscard]] std::shared_ptr<T> hold_charge(std::shared_ptr<T> memory, MemoryCharge charge) {
  if (!charge.is_counted()) return memory;
  struct Held {
    std::shared_ptr<T> memory;
    MemoryCharge charge;
  };
  auto held = std::make_shared<Held>(Held{std::move(memory), std::move(charge)});
  T* const address = held->memory.get();
  return {std::move(held), address};
}

/// A table: live and peak MiB of every kind.
[[nodiscard]] std::string format_memory_report(MemoryAccount const& account);

}  // namespace weft
