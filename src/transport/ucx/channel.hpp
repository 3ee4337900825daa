#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/rank_hosts.hpp"
#include "core/yielder.hpp"
#include "transport/ucx/worker.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft::ucx {

/// What a rank waits for: the time limit, and how reports describe it.
struct Purpose {
  std::chrono::milliseconds timeout{300'000};
  std::function<std::string()> describe = [] { return std::string("a message"); };
  std::uint64_t sequence = 0;  ///< of the collective call; 0: not part of one
  bool beside_computation = false;
  /// How long this rank sleeps after something has come that does not end the wait. Packets that come meanwhile then
  /// take the core from the computation once, not each by itself.
  std::chrono::microseconds pause{0};
};

struct ChannelOptions {
  std::optional<std::chrono::microseconds> spin;  ///< how long waits poll before they sleep
  std::function<void()> progress;                 ///< another library's progress function, called by waits
  std::string devices;                            ///< as UCX_NET_DEVICES; empty: UCX's choice
  RankHosts hosts;                                ///< for reports
  bool rma = false;                               ///< whether Windows will be made
};

/// Connects the ranks of a communicator over UCX. Its waits end in any case, by success, time limit or failure, and all
/// ranks hear of every failure.
///
/// Any thread. Once a failure was decided here or heard of, every wait throws it.
class Channel {
 public:
  /// Collective over the bootstrap. @throws Error{system|unsupported} and what the bootstrap throws.
  Channel(Bootstrap& bootstrap, ChannelOptions const& options);
  /// Not collective: tells the others that this rank has left.
  ~Channel();
  Channel(Channel const&) = delete;
  Channel& operator=(Channel const&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] Worker& worker() noexcept { return worker_; }

  /// Collective, before anything else: connects all ranks. Where they are many, it connects enough of them for a
  /// failure to reach all; others connect when they first talk.
  void connect(Purpose const& purpose);
  /// Notes that this rank now makes the collective call that `purpose` describes. @throws a failure that has come.
  /// Where calls follow each other at once, it may not look for one; then the call throws it where it waits.
  void enter(Purpose const& purpose);
  /// Hears the notices that have come from other ranks. Any thread.
  void listen();

  /// Waits until `ready` returns true. `peer`: the rank that this one waits for, which may change meanwhile; with
  /// kNobody the wait has no time limit, and fails for no lost rank. @throws Error{timeout|peer_lost|aborted|…} on
  /// every rank.
  void await(Purpose const& purpose, std::function<bool()> const& ready, int const& peer,
             std::chrono::milliseconds longest_nap = kLongestNap);
  static constexpr int kNobody = -1;
  static constexpr std::chrono::milliseconds kLongestNap{50};

  /// For a rank that waits elsewhere (such as inside its host) for `peer`, within the call that it entered last: hears
  /// the others' notices, and tells them in time whom this rank waits for. @throws what await() would throw after
  /// having `waited` so long.
  void look_around(Purpose purpose, std::function<bool()> const& ready, int peer, std::chrono::nanoseconds waited);

  /// Waits for an operation and checks how it ended. False where the message was longer than its buffer.
  [[nodiscard]] bool wait(Purpose const& purpose, Pending const& operation);
  /// The same for an operation that is done already.
  [[nodiscard]] bool check(Purpose const& purpose, Pending const& operation);

  [[nodiscard]] bool has_left(int peer);
  [[nodiscard]] bool has_died(int peer) { return worker_.is_broken(peer) && !has_left(peer); }

  /// Ends messages between this rank and `peer`, here and there, because `peer` sent something other than was expected.
  void contradict(int peer) noexcept;
  /// Whether contradict() was called here for `peer`, or by `peer` for this rank.
  [[nodiscard]] bool contradicted(int peer);

  /// Decides a failure for all ranks, unless one is known already.
  void fail(ErrorCode code, std::string const& message) noexcept;
  /// The same, and throws the failure.
  [[noreturn]] void fail_with(ErrorCode code, std::string const& message);
  /// `during`: what an abort has interrupted, for its text.
  void throw_if_failed(Purpose const* during = nullptr);
  [[nodiscard]] bool has_failed() const noexcept { return failed_.load(std::memory_order_acquire); }

 private:
  using Clock = std::chrono::steady_clock;

  /// A short message from one rank to another, outside of calls.
  struct Notice {
    enum class Kind : std::uint32_t { hello, here, left, failed, contradicted };

    Kind kind = Kind::hello;
    std::int32_t sender = 0;
    std::uint64_t sequence = 0;        ///< with `left`: the last call of the sender
    std::int32_t waits_for = kNobody;  ///< with `here`: whom the sender waits for
    std::uint32_t code = 0;            ///< with `failed`, and with `left` after a failure
    char message[768] = {};            ///< the same; a `left` may arrive before the `failed` that caused it
  };
  /// What this rank knows about another.
  struct Known {
    static constexpr std::uint64_t kStays = ~std::uint64_t{0};

    int waits_for = kNobody;                 ///< the rank that it waits for, by its last `here`
    std::optional<Clock::time_point> heard;  ///< when that `here` came; ranks that wait repeat it
    std::uint64_t left = kStays;             ///< the call after which it has left
    bool contradicted = false;
    bool greeted = false;
  };

  void exchange_addresses(Bootstrap& bootstrap);
  /// Whether connect() connects this rank to `peer`.
  [[nodiscard]] bool is_acquaintance(int peer) const noexcept;
  /// Whether the hello of `peer` has come; true where connect() does not connect the two.
  [[nodiscard]] bool has_greeted(int peer);
  void hear(std::span<std::byte const> bytes) noexcept;
  void tell(Notice const& notice, int to) noexcept;
  void tell_all(Notice const& notice, bool strangers) noexcept;
  void tell_failure() noexcept;
  /// The known failure, as a notice for others.
  [[nodiscard]] Notice failure() noexcept;
  void note_failure(ErrorCode code, std::string const& message) noexcept;
  /// Looks, during a wait, for lost ranks and the time limit, and tells others that this rank waits.
  void examine(Purpose const& purpose, std::function<bool()> const& ready, int peer, Clock::duration waited);
  /// A rank that has left or died, among those that this rank depends on; kNobody where there is none.
  [[nodiscard]] int find_lost(Purpose const& purpose, int peer);
  void say_here(Purpose const& purpose, int peer) noexcept;
  /// The rank that all wait for in the end, as far as they have told: one that has not said lately that it waits
  /// itself.
  [[nodiscard]] int find_culprit(Purpose const& purpose, int peer);
  [[noreturn]] void lose(Purpose const& purpose, int peer);
  void hear_out(Purpose const& purpose, int peer);

  int rank_;
  int size_;
  Clock::duration patience_;
  RankHosts hosts_;
  Yielder yielder_;
  std::function<void()> progress_;
  std::atomic<std::uint64_t> latest_{0};
  std::atomic<Clock::rep> entered_at_{0};
  std::atomic<std::uint64_t> told_here_{0};
  std::atomic<Clock::rep> told_at_{0};
  std::atomic<bool> failed_{false};  // set once code_ and message_ are complete
  std::atomic<bool> told_failure_{false};

  std::mutex mutex_;  // guards what follows; taken while the worker is locked, so never the other way round
  std::vector<Known> known_;
  ErrorCode code_ = ErrorCode::system;
  std::string message_;

  Worker worker_;  // last member, so destroyed first: it calls hear(), which uses the others
};

}  // namespace weft::ucx
