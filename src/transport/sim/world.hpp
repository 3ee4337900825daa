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

/// Where a message goes, and whether there are bytes in it.
struct Channel {
  std::uint32_t number = 0;
  bool carries_data = true;
};

/// All ranks of a simulation, the clock, and what is on its way between them. While it runs it is its thread's
/// Timeline: a rank's streams are strands beside the one that runs its body.
class World final : public Timeline {
 public:
  World(Topology const& topology, Options const& options);
  ~World() override;

  [[nodiscard]] Outcome run(std::function<void(Transport&)> const& body);

  // What RankTransport calls, from a strand of `rank`.
  [[nodiscard]] Transport::Request start_send(Channel const& channel, int rank, int to,
                                              std::span<std::byte const> bytes);
  [[nodiscard]] Transport::Request start_recv(Channel const& channel, int rank, int from, std::span<std::byte> bytes);
  void wait(int rank, Transport::Request& request);
  void reduced(int rank, std::size_t bytes);
  /// Lets time pass for the strand that runs.
  void pass(int rank, Time duration);
  [[nodiscard]] Time virtual_now() const noexcept { return now_; }
  [[nodiscard]] Topology const& topology() const noexcept { return topology_; }
  [[nodiscard]] double slowness(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].slowness; }
  [[nodiscard]] int size() const noexcept { return network_.size(); }
  /// Made when first asked for. @throws Error{out_of_memory}
  [[nodiscard]] std::byte* phantom();
  /// One that nobody has.
  [[nodiscard]] std::uint32_t new_channel() noexcept { return next_channel_++; }
  /// Fails all ranks' pending and later calls.
  void fail(ErrorCode code, std::string const& what);
  /// The rank whose strand runs. Inside bodies and tasks of streams.
  [[nodiscard]] int running_rank() const noexcept { return strands_[running_strand_].rank; }

  // Timeline
  [[nodiscard]] TimePoint now() noexcept override;
  void wait(void const* address, TimePoint until) noexcept override;
  void wake(void const* address) noexcept override;
  [[nodiscard]] std::shared_ptr<Stream::Impl> make_stream(StreamOptions const& options) override;

  // What streams call.
  using StrandId = std::uint32_t;
  /// Begins `body`, which does not throw, beside what runs now, for the same rank.
  [[nodiscard]] StrandId start_strand(std::function<void()> body);
  [[nodiscard]] bool is_running(StrandId strand) const noexcept { return running_strand_ == strand; }
  [[nodiscard]] bool has_ended(StrandId strand) const noexcept { return strands_[strand].ended; }

 private:
  /// Unwinds the strands of a rank that vanished.
  struct Lost final : std::exception {
    [[nodiscard]] char const* what() const noexcept override { return "this simulated rank was lost"; }
  };

  enum class EventKind : std::uint8_t { wake, advance, loss, failure };
  struct Event {
    Time at{};
    std::uint64_t order = 0;  ///< of those at the same time
    EventKind kind = EventKind::wake;
    std::uint32_t subject = 0;  ///< strand, message or rank
    std::uint32_t token = 0;    ///< wake: which of the strand's sleeps it ends

    friend bool operator>(Event const& a, Event const& b) noexcept {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  /// What runs by turns.
  struct Strand {
    int rank = 0;
    std::unique_ptr<Fiber> fiber;
    std::uint32_t token = 0;
    bool asleep = false;            ///< its fiber has left, until it is woken
    void const* address = nullptr;  ///< what it waits for, if that is no message: failures do not wake it
    bool ended = false;
    std::optional<MessageId> awaits;
  };
  /// Those of the same index begin with the rank's strand.
  struct Rank {
    std::unique_ptr<RankTransport> transport;
    std::uint64_t pending = 0;  ///< requests that were not waited for
    bool ended = false;
    bool lost = false;
    double slowness = 1;
  };

  void start(Time delay, int rank, std::function<void(Transport&)> const& body);
  void live(int rank, std::function<void(Transport&)> const& body);
  void schedule(Time at, EventKind kind, std::uint32_t subject, std::uint32_t token = 0);
  void handle(Event const& event);
  void enter(StrandId strand);
  /// Leaves the strand that runs until `until`, or until wake() where that is never.
  void leave(Time until);
  /// The same. @throws as check() does
  void sleep(Time until);
  void wake(StrandId strand, Time at);
  /// @throws the failure of the simulation, if there is one, or Lost.
  void check(int rank);
  void check_peer(int rank, int peer, char const* what) const;

  /// Both sides, or an eager sender, are there: it leaves.
  void depart(MessageId id);
  /// Passes links as far as they are free now.
  void advance(MessageId id);
  void finish_route(MessageId id);
  [[nodiscard]] Time jitter_of(Message const& message) const noexcept;
  void complete_send(Message& message);
  void complete_recv(Message& message);
  void forget(MessageId id);

  void lose(int rank);
  [[nodiscard]] std::string describe_deadlock() const;
  [[nodiscard]] std::string describe_wait(Strand const& strand) const;
  /// Nobody can be told: what waits waits for its own rank.
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
  int running_ = 0;  ///< ranks that have not ended
  int alive_ = 0;    ///< strands that have not
  std::uint32_t next_channel_ = 1;
  std::optional<Error> failure_;
  Outcome outcome_;
  std::byte* phantom_ = nullptr;
};

/// A rank's end of a channel.
class RankTransport final : public Transport {
 public:
  /// `members`: those of the channel's, in the order of their ranks there; null: all.
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
