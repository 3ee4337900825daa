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

/// What a rank waits within: its time limit, and what reports say of it.
struct Purpose {
  std::chrono::milliseconds timeout{300'000};
  std::function<std::string()> describe = [] { return std::string("a message"); };
  std::uint64_t sequence = 0;  ///< of the collective call; 0: not part of one
  bool beside_computation = false;
  /// How long this rank looks away once something has come that was not all it waits for, so that packets which come
  /// meanwhile take the core from the computation once, and not each by itself.
  std::chrono::microseconds pause{0};
};

struct ChannelOptions {
  std::optional<std::chrono::microseconds> spin;  ///< how long waits poll before they sleep
  std::function<void()> progress;                 ///< another library's, called by waits
  std::string devices;                            ///< as UCX_NET_DEVICES; empty: UCX's choice
  RankHosts hosts;                                ///< for reports
  bool rma = false;                               ///< Windows are to be made
};

/// How the ranks of a communicator come together over UCX: waits that end, and failures that all hear of.
///
/// Any thread; once a failure was decided here or heard of, every wait and every later one throws it.
class Channel {
 public:
  /// Collective over the bootstrap. @throws Error{system|unsupported} and what the bootstrap throws.
  Channel(Bootstrap& bootstrap, ChannelOptions const& options);
  /// Local: tells the others that this rank has left.
  ~Channel();
  Channel(Channel const&) = delete;
  Channel& operator=(Channel const&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] Worker& worker() noexcept { return worker_; }

  /// Collective, before anything else: connects all ranks, unless they are many, who connect where they talk.
  void connect(Purpose const& purpose);
  /// This rank now makes the collective call that `purpose` is of. @throws the failure that has come, if any; one that
  /// came while calls follow each other at once, at the latest where the call waits.
  void enter(Purpose const& purpose);
  /// Looks for what others have told. Any thread.
  void listen();

  /// Waits until `ready` returns true. `peer`: whom this rank waits for, which may change meanwhile; kNobody where it
  /// is not to fail because of a rank. @throws Error{timeout|peer_lost|aborted|…} on every rank.
  void await(Purpose const& purpose, std::function<bool()> const& ready, int const& peer,
             std::chrono::milliseconds longest_nap = kLongestNap);
  static constexpr int kNobody = -1;
  static constexpr std::chrono::milliseconds kLongestNap{50};

  /// For a rank that waits elsewhere, for `peer`, within the call that it entered last: hears what others tell, and
  /// tells them in time whom this rank waits for. @throws what await() would throw after having `waited`.
  void look_around(Purpose purpose, std::function<bool()> const& ready, int peer, std::chrono::nanoseconds waited);

  /// Waits for an operation and looks at how it ended. False where more came than there was room for.
  [[nodiscard]] bool wait(Purpose const& purpose, Pending const& operation);
  /// The same of one that is done.
  [[nodiscard]] bool check(Purpose const& purpose, Pending const& operation);

  [[nodiscard]] bool has_left(int peer);
  [[nodiscard]] bool has_died(int peer) { return worker_.is_broken(peer) && !has_left(peer); }

  /// Ends messages between this rank and `peer`: it sent something else than was expected.
  void contradict(int peer) noexcept;
  /// Whether contradict() was called here for `peer`, or there for this rank.
  [[nodiscard]] bool contradicted(int peer);

  /// Decides a failure for all ranks unless one is known.
  void fail(ErrorCode code, std::string const& message) noexcept;
  [[noreturn]] void fail_with(ErrorCode code, std::string const& message);
  /// `during`: what an abort would interrupt.
  void throw_if_failed(Purpose const* during = nullptr);
  [[nodiscard]] bool has_failed() const noexcept { return failed_.load(std::memory_order_acquire); }

 private:
  using Clock = std::chrono::steady_clock;

  /// What a rank tells another outside of calls.
  struct Notice {
    enum class Kind : std::uint32_t { hello, here, left, failed, contradicted };

    Kind kind = Kind::hello;
    std::int32_t sender = 0;
    std::uint64_t sequence = 0;        ///< left
    std::int32_t waits_for = kNobody;  ///< here
    std::uint32_t code = 0;            ///< failed
    char message[768] = {};            ///< failed
  };
  /// What is known of a rank.
  struct Known {
    static constexpr std::uint64_t kStays = ~std::uint64_t{0};

    int waits_for = kNobody;                 ///< whom for, as it has told
    std::optional<Clock::time_point> heard;  ///< when that came, which it tells again and again
    std::uint64_t left = kStays;             ///< after which call it has left
    bool contradicted = false;
    bool greeted = false;
  };

  void exchange_addresses(Bootstrap& bootstrap);
  /// Whether connect() has found it; true where so many ranks are not connected beforehand.
  [[nodiscard]] bool has_greeted(int peer);
  void hear(std::span<std::byte const> bytes) noexcept;
  void tell(Notice const& notice, int to) noexcept;
  void tell_all(Notice const& notice, bool strangers) noexcept;
  void note_failure(ErrorCode code, std::string const& message) noexcept;
  /// What a wait does besides testing: give up in the end.
  void examine(Purpose const& purpose, std::function<bool()> const& ready, int peer, Clock::duration waited);
  void look_for_the_lost(Purpose const& purpose, int peer);
  void say_here(Purpose const& purpose, int peer) noexcept;
  /// Whom all wait for in the end, as far as they have told: who has not told lately that it waits itself.
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
  std::atomic<bool> failed_{false};  // set once the failure below is complete

  std::mutex mutex_;  // of the rest; taken while the worker is locked, so never the other way round
  std::vector<Known> known_;
  ErrorCode code_ = ErrorCode::system;
  std::string message_;

  Worker worker_;  // goes first: it hears
};

}  // namespace weft::ucx
