#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/timeline.hpp"
#include "transport/sim/messages.hpp"
#include "transport/sim/simulation.hpp"
#include "weft/error.hpp"

namespace weft::sim {

class RankTransport;

/// Messages of one channel match only each other. The simulation may carry bytes on one channel, and sizes on another.
struct Channel {
  std::uint32_t number = 0;
  bool carries_data = true;
};

/// All ranks of a simulation, the clock, and what is on its way between ranks. While it runs, it is the Timeline of its
/// thread. Each rank has a strand that runs its body, and one beside it for each of its streams.
class World final : public Timeline {
 public:
  World(Topology const& topology, Options const& options);
  ~World() override;

  [[nodiscard]] Outcome run(std::function<void(Transport&)> const& body);

  // For RankTransport, from a strand of `rank`.
  [[nodiscard]] Transport::Request start_send(Channel const& channel, int rank, int to,
                                              std::span<std::byte const> bytes);
  [[nodiscard]] Transport::Request start_recv(Channel const& channel, int rank, int from, std::span<std::byte> bytes);
  void wait(int rank, Transport::Request& request);
  void reduced(int rank, std::size_t bytes);
  /// Lets time pass for the running strand.
  void pass(int rank, Time duration);
  [[nodiscard]] Time virtual_now() const noexcept { return now_; }
  [[nodiscard]] Topology const& topology() const noexcept { return topology_; }
  [[nodiscard]] double slowness(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].slowness; }
  [[nodiscard]] int size() const noexcept { return network_.size(); }
  /// See Transport::phantom(). Made at the first call. @throws Error{out_of_memory}
  [[nodiscard]] std::byte* phantom();
  /// The number of a channel that is not in use.
  [[nodiscard]] std::uint32_t new_channel() noexcept { return next_channel_++; }
  /// Fails all ranks' pending and later calls.
  void fail(ErrorCode code, std::string const& what);
  /// The rank of the running strand. To be called inside bodies and tasks of streams.
  [[nodiscard]] int running_rank() const noexcept { return strands_[running_strand_].rank; }

  // Timeline
  [[nodiscard]] TimePoint now() noexcept override;
  void wait(void const* address, TimePoint until) noexcept override;
  void wake(void const* address) noexcept override;
  [[nodiscard]] std::shared_ptr<Stream::Impl> make_stream(StreamOptions const& options) override;

  // For streams.
  using StrandId = std::uint32_t;
  /// Makes a strand of the running rank that runs `body` beside the running strand. `body` must not throw.
  [[nodiscard]] StrandId start_strand(std::function<void()> body);
  [[nodiscard]] bool is_running(StrandId strand) const noexcept { return running_strand_ == strand; }
  [[nodiscard]] bool has_ended(StrandId strand) const noexcept { return strands_[strand].ended; }

 private:
  /// Thrown in the strands of a rank that was lost, to unwind them.
  struct Lost final : std::exception {
    [[nodiscard]] char const* what() const noexcept override { return "this simulated rank was lost"; }
  };

  enum class EventKind : std::uint8_t { wake, advance, loss, failure };
  struct Event {
    Time at{};
    std::uint64_t order = 0;  ///< among events at the same time
    EventKind kind = EventKind::wake;
    std::uint32_t subject = 0;  ///< strand, message or rank
    std::uint32_t token = 0;    ///< wake: which of the strand's sleeps it ends

    friend bool operator>(Event const& a, Event const& b) noexcept {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  /// A flow of execution of a rank. One strand runs at a time, until it leaves its fiber.
  struct Strand {
    int rank = 0;
    std::unique_ptr<Fiber> fiber;
    std::uint32_t token = 0;
    bool asleep = false;            ///< has left its fiber, until it is woken
    void const* address = nullptr;  ///< where it waits in wait(address, until): failures do not wake it then
    bool ended = false;
    std::optional<MessageId> awaits;
  };
  /// The strand with the rank's index runs its body.
  struct Rank {
    std::unique_ptr<RankTransport> transport;
    std::uint64_t pending = 0;  ///< requests that were not waited for yet
    bool ended = false;
    bool lost = false;
    double slowness = 1;
  };

  void start(Time delay, int rank, std::function<void(Transport&)> const& body);
  void live(int rank, std::function<void(Transport&)> const& body);
  void schedule(Time at, EventKind kind, std::uint32_t subject, std::uint32_t token = 0);
  void handle(Event const& event);
  void enter(StrandId strand);
  /// Leaves the running strand until `until` or wake(), whichever comes first.
  void leave(Time until);
  /// The same; @throws as check() does afterwards.
  void sleep(Time until);
  void wake(StrandId strand, Time at);
  /// @throws the failure of the simulation, if there is one, or Lost.
  void check(int rank);
  void check_peer(int rank, int peer, char const* what) const;

  /// Sends the message on its way: both sides have begun it, or it is short enough to leave before the receive.
  void depart(MessageId id);
  /// Lets the message pass links, as far as they are free now.
  void advance(MessageId id);
  void finish_route(MessageId id);
  [[nodiscard]] Time jitter_of(Message const& message) const noexcept;
  void complete_send(Message& message);
  void complete_recv(Message& message);
  void forget(MessageId id);

  void lose(int rank);
  [[nodiscard]] std::string describe_deadlock() const;
  [[nodiscard]] std::string describe_wait(Strand const& strand) const;
  void fail_for_time();  ///< where something would end after kLatest
  /// Ends the program: what waits, waits for its own rank, so no call could throw an error.
  [[noreturn]] void give_up() const;

  void note(TraceEvent::Kind kind, int rank, int peer = -1, std::uint64_t number = 0, std::uint64_t bytes = 0);

  Options options_;
  Topology topology_;
  Network network_;
  std::shared_ptr<StackPool> stacks_;
  std::vector<Rank> ranks_;
  std::deque<Strand> strands_;
  StrandId running_strand_ = Message::kNobody;
  std::unordered_map<void const*, std::vector<StrandId>> sleepers_;
  std::vector<Time> link_free_;
  Messages messages_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t scheduled_ = 0;
  Time now_{};
  int running_ = 0;  ///< number of ranks that have not ended
  int alive_ = 0;    ///< number of strands that have not ended
  std::uint32_t next_channel_ = 1;
  std::optional<Error> failure_;
  Outcome outcome_;
  std::byte* phantom_ = nullptr;
};

/// A rank's end of a channel, as a Transport.
class RankTransport final : public Transport {
 public:
  /// `members`: the ranks of the world that the channel joins, in the order of their ranks in it; null: all.
  RankTransport(World& world, int rank, Channel channel, std::shared_ptr<std::vector<int> const> members = nullptr);

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override {
    return members_ == nullptr ? world_.size() : static_cast<int>(members_->size());
  }
  [[nodiscard]] Request start_send(int to, std::span<std::byte const> bytes) override {
    return world_.start_send(channel_, world_rank_, in_world(to), bytes);
  }
  [[nodiscard]] Request start_recv(int from, std::span<std::byte> bytes) override {
    return world_.start_recv(channel_, world_rank_, in_world(from), bytes);
  }
  void wait(Request& request) override { world_.wait(world_rank_, request); }
  void reduced(std::size_t bytes) override { world_.reduced(world_rank_, bytes); }
  [[nodiscard]] std::byte* phantom() const noexcept override { return phantom_; }

  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] int world_rank() const noexcept { return world_rank_; }

 private:
  [[nodiscard]] int in_world(int rank) const noexcept {
    if (members_ == nullptr || rank < 0 || rank >= size()) return rank;
    return (*members_)[static_cast<std::size_t>(rank)];
  }

  World& world_;
  Channel channel_;
  std::shared_ptr<std::vector<int> const> members_;
  int world_rank_;
  int rank_;
  std::byte* phantom_;
};

}  // namespace weft::sim
