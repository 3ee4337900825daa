#include "core/bootstrap_fork.hpp"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>

#include "core/describe_errno.hpp"
#include "core/process_watch.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSlotBytes = 4096;
constexpr std::chrono::milliseconds kLivenessPeriod{50};

struct alignas(64) RankState {
  std::atomic<std::uint64_t> rounds;  ///< rounds this rank has published
  std::atomic<pid_t> pid;             ///< 0 until its process is known
  std::atomic<std::uint32_t> left;    ///< not 0 once its Bootstrap was destroyed
};

/// One rank's part of one round. Rounds alternate between two sets of slots: a rank writes round k + 2 only after every
/// rank has published round k + 1, and with that has read round k.
struct Slot {
  std::uint64_t total_bytes;  ///< of the whole all_gather
  std::byte data[kSlotBytes];
};

/// The anonymous shared mapping all ranks inherit: [header][rank states][slots of even rounds][slots of odd rounds].
class SharedState {
 public:
  explicit SharedState(int size) : size_(static_cast<std::size_t>(size)) {
    bytes_ = sizeof(std::atomic<std::uint32_t>) + 64 + size_ * (sizeof(RankState) + 2 * sizeof(Slot));
    mapping_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) {
      throw Error(ErrorCode::out_of_memory, fmt::format("fork bootstrap: cannot map {} bytes of shared memory: {}",
                                                        bytes_, describe_errno(errno)));
    }
    auto* const base = static_cast<std::byte*>(mapping_);  // zero-filled, so every counter starts at 0
    activity_ = new (base) std::atomic<std::uint32_t>(0);
    ranks_ = reinterpret_cast<RankState*>(base + 64);
    slots_ = reinterpret_cast<Slot*>(base + 64 + size_ * sizeof(RankState));
  }
  SharedState(SharedState const&) = delete;
  SharedState& operator=(SharedState const&) = delete;
  ~SharedState() { munmap(mapping_, bytes_); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] RankState& rank(std::size_t index) const noexcept { return ranks_[index]; }
  [[nodiscard]] Slot& slot(std::uint64_t round, std::size_t index) const noexcept {
    return slots_[(round % 2) * size_ + index];
  }

  [[nodiscard]] std::uint32_t activity() const noexcept { return activity_->load(std::memory_order_acquire); }

  /// Wakes every rank that waits for something to change.
  void announce() const noexcept {
    activity_->fetch_add(1, std::memory_order_acq_rel);
    syscall(SYS_futex, word(), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }

  /// Sleeps while activity() is still `seen`, at most `limit`.
  void wait_for_activity(std::uint32_t seen, std::chrono::nanoseconds limit) const noexcept {
    timespec const relative{limit.count() / 1'000'000'000, limit.count() % 1'000'000'000};
    syscall(SYS_futex, word(), FUTEX_WAIT, seen, &relative, nullptr, 0);
  }

 private:
  [[nodiscard]] std::uint32_t* word() const noexcept { return reinterpret_cast<std::uint32_t*>(activity_); }

  std::size_t size_;
  std::size_t bytes_ = 0;
  void* mapping_ = nullptr;
  std::atomic<std::uint32_t>* activity_ = nullptr;
  RankState* ranks_ = nullptr;
  Slot* slots_ = nullptr;
};

class ForkBootstrap final : public Bootstrap {
 public:
  ForkBootstrap(std::shared_ptr<SharedState> shared, int rank, std::chrono::milliseconds timeout)
      : shared_(std::move(shared)),
        rank_(static_cast<std::size_t>(rank)),
        timeout_(timeout),
        watches_(shared_->size()) {}

  ~ForkBootstrap() override {
    if (user_ != getpid()) return;  // this is the parent's copy, or one inherited by another rank
    me().left.store(1, std::memory_order_release);
    shared_->announce();
  }

  [[nodiscard]] int rank() const noexcept override { return static_cast<int>(rank_); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(shared_->size()); }
  [[nodiscard]] std::string name() const override { return "fork"; }

  void set_pid(pid_t pid) const noexcept { me().pid.store(pid, std::memory_order_release); }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    claim();
    Clock::time_point const deadline = Clock::now() + timeout_;
    std::vector<std::byte> all(mine.size() * shared_->size());
    std::size_t offset = 0;
    do {
      std::size_t const chunk = std::min(kSlotBytes, mine.size() - offset);
      publish(mine.subspan(offset, chunk), mine.size());
      wait_for_round(deadline);
      collect(all, offset, chunk, mine.size());
      offset += chunk;
      ++round_;
    } while (offset < mine.size());
    return all;
  }

 private:
  [[nodiscard]] RankState& me() const noexcept { return shared_->rank(rank_); }

  /// The first call makes this process the rank's.
  void claim() {
    if (user_ == getpid()) return;
    user_ = getpid();
    set_pid(user_);
  }

  void publish(std::span<std::byte const> chunk, std::size_t total_bytes) {
    Slot& slot = shared_->slot(round_, rank_);
    slot.total_bytes = total_bytes;
    std::copy(chunk.begin(), chunk.end(), slot.data);
    me().rounds.store(round_ + 1, std::memory_order_release);
    shared_->announce();
  }

  [[nodiscard]] bool arrived(std::size_t peer) const noexcept {
    return shared_->rank(peer).rounds.load(std::memory_order_acquire) > round_;
  }

  void wait_for_round(Clock::time_point deadline) {
    for (std::size_t peer = 0; peer < shared_->size(); ++peer) {
      while (true) {
        std::uint32_t const seen = shared_->activity();
        if (arrived(peer)) break;
        check_peers();
        if (Clock::now() >= deadline) throw_timeout();
        shared_->wait_for_activity(seen, kLivenessPeriod);
      }
    }
  }

  /// Checks all peers, not only the one waited for: the loss of any of them ends the call.
  void check_peers() {
    for (std::size_t peer = 0; peer < shared_->size(); ++peer) {
      if (peer == rank_ || arrived(peer)) continue;
      bool const left = shared_->rank(peer).left.load(std::memory_order_acquire) != 0;
      bool const dead = !left && !alive(peer);
      if (!(left || dead) || arrived(peer)) continue;  // it may have published just before it went
      throw Error(ErrorCode::peer_lost,
                  fmt::format("rank {} {} before it joined the start-up exchange (round {}, seen by rank {})", peer,
                              left ? "left" : "died", round_, rank_));
    }
  }

  [[nodiscard]] bool alive(std::size_t peer) {
    std::optional<ProcessWatch>& watch = watches_[peer];
    if (!watch) {
      pid_t const pid = shared_->rank(peer).pid.load(std::memory_order_acquire);
      if (pid == 0) return true;
      watch.emplace(pid);
    }
    return watch->alive();
  }

  [[noreturn]] void throw_timeout() const {
    std::string missing;
    for (std::size_t peer = 0; peer < shared_->size(); ++peer) {
      if (!arrived(peer)) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", peer);
    }
    throw Error(
        ErrorCode::timeout,
        fmt::format("rank {} did not join the start-up exchange within {} ms (seen by rank {}); WEFT_TIMEOUT sets "
                    "the limit",
                    missing, timeout_.count(), rank_));
  }

  void collect(std::vector<std::byte>& all, std::size_t offset, std::size_t chunk, std::size_t total_bytes) const {
    for (std::size_t peer = 0; peer < shared_->size(); ++peer) {
      Slot const& slot = shared_->slot(round_, peer);
      if (slot.total_bytes != total_bytes) {
        throw Error(ErrorCode::mismatch, fmt::format("start-up exchange: rank {} passed {} bytes, rank {} passed {}",
                                                     rank_, total_bytes, peer, slot.total_bytes));
      }
      std::copy_n(slot.data, chunk, all.begin() + static_cast<std::ptrdiff_t>(peer * total_bytes + offset));
    }
  }

  std::shared_ptr<SharedState> shared_;
  std::size_t rank_;
  std::chrono::milliseconds timeout_;
  std::vector<std::optional<ProcessWatch>> watches_;
  std::uint64_t round_ = 0;
  pid_t user_ = 0;
};

constexpr int kMostForked = 1024;  // memory grows with the square

}  // namespace

std::vector<std::shared_ptr<Bootstrap>> fork_bootstraps(int size, Config const& config) {
  if (size < 1 || size > kMostForked)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("fork_bootstraps: size is {}, expected 1 to {}", size, kMostForked));
  config.check();
  auto const shared = std::make_shared<SharedState>(size);
  std::vector<std::shared_ptr<Bootstrap>> elements;
  for (int rank = 0; rank < size; ++rank) {
    elements.push_back(std::make_shared<ForkBootstrap>(shared, rank, config.timeout));
  }
  return elements;
}

void note_forked(Bootstrap& element, pid_t pid) noexcept {
  if (auto const* const forked = dynamic_cast<ForkBootstrap const*>(&element)) forked->set_pid(pid);
}

}  // namespace weft
