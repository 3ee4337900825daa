#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "transport/sim/messages.hpp"
#include "transport/sim/simulation.hpp"
#include "weft/error.hpp"

namespace weft::sim {

class RankTransport;

/// All ranks of a simulation, the clock, and what is on its way between them.
class World {
 public:
  World(Topology const& topology, Options const& options);
  ~World();

  [[nodiscard]] Outcome run(std::function<void(Transport&)> const& body);

  // What RankTransport calls, from the fiber of `rank`.
  [[nodiscard]] Transport::Request start_send(int rank, int to, std::span<std::byte const> bytes);
  [[nodiscard]] Transport::Request start_recv(int rank, int from, std::span<std::byte> bytes);
  void wait(int rank, Transport::Request& request);
  void reduced(int rank, std::size_t bytes);
  /// Lets time pass for a rank.
  void pass(int rank, Time duration);
  [[nodiscard]] Time now() const noexcept { return now_; }
  [[nodiscard]] int size() const noexcept { return network_.size(); }
  [[nodiscard]] std::byte* phantom() const noexcept { return phantom_; }

 private:
  struct Lost {};  ///< unwinds the fiber of a rank that vanished

  enum class EventKind : std::uint8_t { wake, advance, loss, failure };
  struct Event {
    Time at{};
    std::uint64_t order = 0;  ///< of those at the same time
    EventKind kind = EventKind::wake;
    std::uint32_t subject = 0;  ///< rank or message
    std::uint32_t token = 0;    ///< wake: which of the rank's sleeps it ends

    friend bool operator>(Event const& a, Event const& b) noexcept {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  struct Rank {
    std::unique_ptr<RankTransport> transport;
    std::unique_ptr<Fiber> fiber;
    std::uint32_t token = 0;
    std::uint64_t pending = 0;  ///< requests that were not waited for
    bool asleep = false;        ///< its fiber has left, until wake()
    bool ended = false;
    bool lost = false;
    std::optional<MessageId> awaits;
    double slowness = 1;
  };

  void start(Time delay, int rank, std::function<void(Transport&)> const& body);
  void live(int rank, std::function<void(Transport&)> const& body);
  void schedule(Time at, EventKind kind, std::uint32_t subject, std::uint32_t token = 0);
  void handle(Event const& event);
  void enter(int rank);
  /// Leaves the fiber of `rank` until `until`, or until wake() where that is never. @throws as check() does
  void sleep(int rank, Time until);
  void wake(int rank, Time at);
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
  void fail(ErrorCode code, std::string const& what);
  [[nodiscard]] std::string describe_deadlock() const;
  [[nodiscard]] std::string describe_wait(int rank) const;

  void note(TraceEvent::Kind kind, int rank, int peer = -1, std::uint64_t number = 0, std::uint64_t bytes = 0);

  Options options_;
  Network network_;
  std::shared_ptr<StackPool> stacks_;
  std::vector<Rank> ranks_;
  std::vector<Time> link_free_;
  Messages messages_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t scheduled_ = 0;
  Time now_{};
  int running_ = 0;  ///< ranks that have not ended
  std::optional<Error> failure_;
  Outcome outcome_;
  std::byte* phantom_ = nullptr;
};

/// A rank's end.
class RankTransport final : public Transport {
 public:
  RankTransport(World& world, int rank) : world_(world), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return world_.size(); }
  [[nodiscard]] Request start_send(int to, std::span<std::byte const> bytes) override {
    return world_.start_send(rank_, to, bytes);
  }
  [[nodiscard]] Request start_recv(int from, std::span<std::byte> bytes) override {
    return world_.start_recv(rank_, from, bytes);
  }
  void wait(Request& request) override { world_.wait(rank_, request); }
  void reduced(std::size_t bytes) override { world_.reduced(rank_, bytes); }
  [[nodiscard]] std::byte* phantom() const noexcept override { return world_.phantom(); }

  [[nodiscard]] World& world() const noexcept { return world_; }

 private:
  World& world_;
  int rank_;
};

}  // namespace weft::sim
