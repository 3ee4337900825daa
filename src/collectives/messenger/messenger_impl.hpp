#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "collectives/transit.hpp"
#include "core/process_number.hpp"
#include "weft/error.hpp"
#include "weft/messenger.hpp"

namespace weft {

/// What every message begins with. Short content follows in the same message of the back end; longer content is sent as
/// a second one.
struct MessageHead {
  static constexpr std::size_t kShort = 2016;  ///< most bytes of short content: with the head it fits MPI's envelope

  std::uint64_t bytes = 0;
  std::int32_t tag = 0;
  DataType dtype = DataType::u8;
};

/// "10 × f32".
[[nodiscard]] std::string describe_message(std::size_t bytes, DataType dtype);

/// One send or receive. All but `done` is guarded by the messenger's mutex.
class Messenger::Request::State {
 public:
  std::weak_ptr<Messenger::Impl> messenger;
  Call call;        // for reports
  Message message;  // as the user gave it
  int tag = 0;
  std::chrono::steady_clock::time_point deadline;
  std::uint64_t record = 0;          // in the flight recorder
  std::vector<std::byte> head;       // of a send: its first message of the back end
  std::unique_ptr<Transit> transit;  // of a send: what is under way
  bool head_is_through = false;      // of a send
  int source = -1;
  std::exception_ptr error;
  std::vector<std::function<void()>> continuations;
  std::atomic<bool> done{false};
};

/// Matches tagged messages with receives, and moves them on. Threads that wait for a request do this, one at a time;
/// while none waits, the messenger's own thread does.
class Messenger::Impl : public std::enable_shared_from_this<Messenger::Impl> {
 public:
  using Clock = std::chrono::steady_clock;
  using State = Request::State;

  explicit Impl(std::shared_ptr<Communicator::Impl> communicator);
  ~Impl();

  std::shared_ptr<State> send(Call&& call, Message const& message, int tag, std::chrono::milliseconds timeout);
  std::shared_ptr<State> receive(Call&& call, Message const& message, int tag, std::chrono::milliseconds timeout);
  /// Waits for the request; false where it is still under way at `limit`.
  bool wait(State const& state, Clock::time_point limit);
  void then(State& state, std::function<void()> continuation);
  [[nodiscard]] std::exception_ptr error_of(State const& state);
  /// Fails what is pending, and ends the thread.
  void close();
  /// Whether this is a copy in a forked child, where its thread does not exist and its locks may be held for ever.
  [[nodiscard]] bool is_inherited() const noexcept { return process_ != process_number(); }

  std::shared_ptr<Communicator::Impl> const communicator;

 private:
  /// A message that came before a receive for it.
  struct Unexpected {
    int source = 0;
    MessageHead head;
    std::vector<std::byte> content;
    bool complete = false;
    bool dropped = false;           // no receive will get it
    std::shared_ptr<State> target;  // the receive that came while the content was on its way
  };
  /// What comes from one rank, one after the other: a head, its content, the next head…
  struct Inbound {
    std::unique_ptr<Transit> transit;
    bool of_content = false;
    std::vector<std::byte> first;  // head, and short content
    Call call;                     // for reports
    MessageHead head;
    std::shared_ptr<State> target;  // receives the content; without one it goes to `aside`
    Unexpected* aside = nullptr;
  };
  [[nodiscard]] std::size_t index(int rank) const noexcept { return static_cast<std::size_t>(rank); }
  std::shared_ptr<State> open(Call&& call, Message const& message, int tag, std::chrono::milliseconds timeout);
  void send_to_self(State& state);
  bool take_unexpected(std::shared_ptr<State> const& state);
  [[nodiscard]] std::shared_ptr<State> find_receiver(int source, int tag);
  [[nodiscard]] bool is_wanted(int source) const noexcept;

  /// Moves on all that can be moved now. This and all functions up to run_continuations() are called under the mutex.
  void progress();
  void advance_outbound(std::deque<std::shared_ptr<State>>& queue);
  void advance_inbound(int source);
  void begin_head(int source);
  void take_head(int source);
  void begin_content(int source);
  [[nodiscard]] std::vector<std::byte> room_for(int source, MessageHead const& head);
  void end_content(int source);
  void deliver(State& state, int source, MessageHead const& head, std::byte const* content);
  [[nodiscard]] bool fits(State& state, int source, MessageHead const& head);
  void complete(State& state, std::exception_ptr error = nullptr);
  /// Ends what is under way from `source`.
  void drop(int source);
  /// Ends what is under way of a send.
  void drop(State& send);

  void fail_all(std::exception_ptr const& error);
  /// Calls `body` for all requests that have not completed; of sends only for the first to each rank.
  void for_each_pending(std::function<void(State const&)> const& body) const;
  /// Does the following two every 5 ms. @throws Error, which fails the communicator, too.
  void look_around();
  void look_for_late(Clock::time_point now);
  void look_for_lost();
  [[noreturn]] void give_up(ErrorCode code, std::string const& why);
  /// Ranks that some request needs, but that are not there any more.
  struct Absent {
    std::vector<int> left;
    std::vector<int> died;
  };
  [[nodiscard]] Absent find_absent() const;
  /// Why a receive from any rank fails: a rank has died, or all others have left. Empty where it may still complete.
  [[nodiscard]] std::string why_none_comes(State const& state, Absent const& absent) const;
  /// The same for an operation that needs one certain rank.
  [[nodiscard]] std::string why_peer_does_not(State const& state, Absent const& absent) const;

  /// Calls the continuations of requests that have completed; releases the mutex meanwhile.
  void run_continuations(std::unique_lock<std::mutex>& lock);
  /// Moves messages until `until` is true; the caller has set driving_. Throws nothing: failures go to the requests.
  void drive(bool in_background, std::function<bool()> const& until);
  void wake_thread();
  void start_thread();
  void run_thread();

  std::uint32_t const process_ = process_number();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool driving_ = false;    // some thread is in drive()
  std::thread::id driver_;  // that thread, while driving_
  bool closed_ = false;
  int waiters_ = 0;
  std::list<std::shared_ptr<State>> receives_;                // without a message yet, in the order they were made
  std::vector<std::deque<std::shared_ptr<State>>> outbound_;  // by rank
  std::vector<Inbound> inbound_;                              // by rank
  std::list<Unexpected> unexpected_;                          // in the order they came
  std::vector<int> wanted_;                                   // number of receives from each rank
  int wanted_from_any_ = 0;
  std::size_t pending_ = 0;
  std::uint64_t changes_ = 0;  // counts changes of the set of pending requests
  std::vector<std::function<void()>> continuations_;
  Clock::time_point next_look_{};

  std::condition_variable thread_wake_;
  bool thread_sleeps_ = false;
  std::thread thread_;
};

}  // namespace weft
