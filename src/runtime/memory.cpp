#include "weft/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "runtime/with_unit.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::array<std::string_view, kMemoryKinds> kNames{"parameters",    "gradients",   "optimizer states",
                                                            "communication", "activations", "other"};
constexpr std::uint8_t kNoKind = kMemoryKinds;

// The account and the kind that this thread's allocations are charged to; set by objects on its stack only.
thread_local MemoryAccount const* t_account = nullptr;  // NOLINT(readability-identifier-naming)
thread_local std::uint8_t t_kind = kNoKind;             // NOLINT(readability-identifier-naming)

double mib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

std::string_view to_string(MemoryKind kind) noexcept {
  return kNames[static_cast<std::size_t>(kind)];
}

class MemoryAccount::State {
 public:
  explicit State(std::size_t budget) : budget_(budget) {}

  [[nodiscard]] std::size_t budget() const noexcept { return budget_; }
  [[nodiscard]] MemoryUsage usage(MemoryKind kind) {
    std::lock_guard const lock(mutex_);
    return kinds_[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] MemoryUsage total() {
    std::lock_guard const lock(mutex_);
    return total_;
  }

  void add(MemoryKind kind, std::size_t bytes) {
    std::lock_guard const lock(mutex_);
    if (bytes > budget_ - std::min(budget_, total_.live)) throw_over_budget(kind, bytes);
    for (MemoryUsage* usage : {&kinds_[static_cast<std::size_t>(kind)], &total_}) {
      usage->live += bytes;
      usage->peak = std::max(usage->peak, usage->live);
    }
  }
  void add_back(MemoryKind kind, std::size_t bytes) noexcept {
    std::lock_guard const lock(mutex_);
    kinds_[static_cast<std::size_t>(kind)].live += bytes;
    total_.live += bytes;
  }
  void remove(MemoryKind kind, std::size_t bytes) noexcept {
    std::lock_guard const lock(mutex_);
    kinds_[static_cast<std::size_t>(kind)].live -= bytes;
    total_.live -= bytes;
  }

 private:
  [[noreturn]] void throw_over_budget(MemoryKind kind, std::size_t bytes) const {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("memory budget of {}: {} of {} do not fit; {}; {}", with_unit(budget_), with_unit(bytes),
                            to_string(kind), describe_use(), advice(kind)));
  }
  /// "in use are 41.6 MiB (parameters 18.6 MiB, gradients 18.6 MiB, …)"
  [[nodiscard]] std::string describe_use() const {
    if (total_.live == 0) return "nothing is in use";
    std::string used;
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      if (kinds_[kind].live == 0) continue;
      used += fmt::format("{}{} {}", used.empty() ? "" : ", ", kNames[kind], with_unit(kinds_[kind].live));
    }
    return fmt::format("in use are {} ({})", with_unit(total_.live), used);
  }
  /// Sharding more does not help against staging memory and gathered units: every rank has them whole, however many
  /// ranks share the model.
  [[nodiscard]] char const* advice(MemoryKind kind) const {
    auto const moved = kinds_[static_cast<std::size_t>(MemoryKind::communication)].live;
    if (kind == MemoryKind::communication || moved > budget_ / 2) {
      return "raise the budget, or have communicators take less (WEFT_STAGING_BYTES, "
             "CommunicatorOptions::small_staging), or gather less at a time (FullyShardedOptions::gather_cap)";
    }
    return "raise the budget, shard more, or take more ranks";
  }

  std::mutex mutex_;
  std::size_t budget_;
  std::array<MemoryUsage, kMemoryKinds> kinds_{};
  MemoryUsage total_;
};

MemoryAccount::MemoryAccount(std::size_t budget) : state_(std::make_shared<State>(budget)) {}
MemoryUsage MemoryAccount::usage(MemoryKind kind) const {
  return state_->usage(kind);
}
MemoryUsage MemoryAccount::total() const {
  return state_->total();
}
std::size_t MemoryAccount::budget() const noexcept {
  return state_->budget();
}

MemoryAccount::Binding::Binding(MemoryAccount const& account) : previous_(std::exchange(t_account, &account)) {}
MemoryAccount::Binding::~Binding() {
  t_account = previous_;
}

MemoryScope::MemoryScope(MemoryKind kind) noexcept
    : previous_(std::exchange(t_kind, static_cast<std::uint8_t>(kind))) {}
MemoryScope::~MemoryScope() {
  t_kind = previous_;
}
MemoryKind MemoryScope::current(MemoryKind otherwise) noexcept {
  return t_kind == kNoKind ? otherwise : static_cast<MemoryKind>(t_kind);
}

MemoryCharge::MemoryCharge(MemoryKind kind, std::size_t bytes)
    : state_(t_account == nullptr ? nullptr : t_account->state_), kind_(kind) {
  set(static_cast<std::ptrdiff_t>(bytes));
}
MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept
    : state_(std::move(other.state_)), kind_(other.kind_), bytes_(std::exchange(other.bytes_, 0)) {}
MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(kind_, other.kind_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
MemoryCharge::~MemoryCharge() {
  if (!state_) return;
  if (bytes_ > 0) state_->remove(kind_, static_cast<std::size_t>(bytes_));
  // A negative charge has taken off what other charges contain; added back, as these take off all of theirs when they
  // go.
  if (bytes_ < 0) state_->add_back(kind_, static_cast<std::size_t>(-bytes_));
}

void MemoryCharge::set(std::ptrdiff_t bytes) {
  if (!state_ || bytes == bytes_) return;
  if (bytes > bytes_) {
    state_->add(kind_, static_cast<std::size_t>(bytes - bytes_));
  } else {
    state_->remove(kind_, static_cast<std::size_t>(bytes_ - bytes));
  }
  bytes_ = bytes;
}

std::string format_memory_report(MemoryAccount const& account) {
  std::string report = fmt::format("{:<18} {:>10} {:>10}\n", "memory, MiB", "live", "peak");
  auto const add = [&](std::string_view name, MemoryUsage const& usage) {
    report += fmt::format("{:<18} {:>10.2f} {:>10.2f}\n", name, mib(usage.live), mib(usage.peak));
  };
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    add(kNames[kind], account.usage(static_cast<MemoryKind>(kind)));
  }
  add("all", account.total());
  if (account.budget() != MemoryAccount::kUnlimited) {
    report += fmt::format("{:<18} {:>10.2f}\n", "budget", mib(account.budget()));
  }
  return report;
}

}  // namespace weft
