#include "transport/sim/world.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "transport/sim/sim_stream.hpp"

namespace weft::sim {
namespace {

constexpr std::size_t kPhantomBytes = std::size_t{1} << 42;  // addresses only, without memory
constexpr std::byte kNonsense{0xa5};

std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

/// A request stands for a message and for a side of it.
Transport::Request request_of(MessageId id, bool sends) noexcept {
  return static_cast<Transport::Request>((std::uint64_t{id} + 1) * 2 + (sends ? 1 : 0));
}

}  // namespace

World::World(Topology const& topology, Options const& options)
    : options_(options),
      topology_(topology),
      network_(topology, options.stragglers),
      stacks_(options.stacks ? options.stacks : std::make_shared<StackPool>()),
      ranks_(static_cast<std::size_t>(topology.ranks)),
      link_free_(network_.links().size()) {
  for (auto const& slow : options.stragglers) ranks_[static_cast<std::size_t>(slow.rank)].slowness *= slow.factor;
  for (auto const& loss : options.losses) {
    if (loss.rank < 0 || loss.rank >= topology.ranks) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank {} cannot be lost: there are 0 to {}", loss.rank, topology.ranks - 1));
    }
  }
}

World::~World() {
  if (phantom_ != nullptr) munmap(phantom_, kPhantomBytes);
}

std::byte* World::phantom() {
  if (phantom_ != nullptr) return phantom_;
  void* const addresses = mmap(nullptr, kPhantomBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) throw Error(ErrorCode::out_of_memory, "no addresses for a simulation without data");
  phantom_ = static_cast<std::byte*>(addresses);
  return phantom_;
}

Outcome World::run(std::function<void(Transport&)> const& body) {
  Timeline::Scope const here(*this);
  outcome_.ended.resize(ranks_.size());
  outcome_.errors.resize(ranks_.size());
  std::vector<Time> delays(ranks_.size());
  for (auto const& slow : options_.stragglers) delays[static_cast<std::size_t>(slow.rank)] += slow.delay;
  for (std::size_t r = 0; r < ranks_.size(); ++r) start(delays[r], static_cast<int>(r), body);
  for (auto const& loss : options_.losses) schedule(loss.at, EventKind::loss, static_cast<std::uint32_t>(loss.rank));
  // Also runs strands of streams that still have tasks after their ranks have ended.
  while (running_ > 0 || (alive_ > 0 && !events_.empty())) {
    if (events_.empty()) {
      fail(ErrorCode::timeout, describe_deadlock());
      if (events_.empty()) give_up();
      continue;
    }
    auto const event = events_.top();
    events_.pop();
    now_ = event.at;
    handle(event);
  }
  return std::move(outcome_);
}

void World::start(Time delay, int rank, std::function<void(Transport&)> const& body) {
  auto& self = ranks_[static_cast<std::size_t>(rank)];
  self.transport = std::make_unique<RankTransport>(*this, rank, Channel{0, options_.carries_data});
  ++running_;
  ++alive_;
  strands_.emplace_back();
  strands_.back().rank = rank;
  strands_.back().fiber = std::make_unique<Fiber>(*stacks_, [this, rank, &body] { live(rank, body); });
  wake(static_cast<StrandId>(rank), delay);
}

World::StrandId World::start_strand(std::function<void()> body) {
  auto const strand = static_cast<StrandId>(strands_.size());
  strands_.emplace_back();
  strands_.back().rank = running_rank();
  strands_.back().fiber = std::make_unique<Fiber>(*stacks_, [this, strand, body = std::move(body)] {
    body();
    strands_[strand].ended = true;
    --alive_;
  });
  ++alive_;
  wake(strand, now_);
  return strand;
}

void World::live(int rank, std::function<void(Transport&)> const& body) {
  auto const index = static_cast<std::size_t>(rank);
  auto& self = ranks_[index];
  std::string failure;
  try {
    body(*self.transport);
    if (self.pending > 0 && !failure_ && !self.lost) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank {} returned with {} requests that it has not waited for", rank, self.pending));
    }
  } catch (std::exception const& error) {
    outcome_.errors[index] = std::current_exception();
    failure = error.what();
  } catch (...) {
    outcome_.errors[index] = std::current_exception();
    failure = "something that is no std::exception was thrown";
  }
  if (self.lost) outcome_.errors[index] = nullptr;  // a lost rank has no outcome, only Lost to unwind it
  self.ended = true;
  strands_[index].ended = true;
  --running_;
  --alive_;
  outcome_.ended[index] = now_;
  if (!self.lost) outcome_.elapsed = std::max(outcome_.elapsed, now_);
  note(TraceEvent::Kind::end, rank);
  if (outcome_.errors[index] && !failure_) fail(ErrorCode::aborted, fmt::format("rank {} failed: {}", rank, failure));
}

void World::schedule(Time at, EventKind kind, std::uint32_t subject, std::uint32_t token) {
  auto const order = options_.shuffle ? mix(options_.seed * 0x9e3779b97f4a7c15U + scheduled_) : scheduled_;
  ++scheduled_;
  events_.push({at, order, kind, subject, token});
}

void World::handle(Event const& event) {
  switch (event.kind) {
    case EventKind::wake:
      if (event.token == strands_[event.subject].token && !strands_[event.subject].ended) enter(event.subject);
      return;
    case EventKind::advance: return advance(event.subject);
    case EventKind::loss: return lose(static_cast<int>(event.subject));
    case EventKind::failure: return fail(ErrorCode::peer_lost, fmt::format("rank {} was lost", event.subject));
  }
}

void World::enter(StrandId strand) {
  auto& self = strands_[strand];
  ++self.token;
  self.asleep = false;
  auto const before = std::exchange(running_strand_, strand);
  self.fiber->enter();
  running_strand_ = before;
  if (self.ended) self.fiber.reset();  // gives its stack back
}

void World::leave(Time until) {
  auto& self = strands_[running_strand_];
  self.asleep = true;
  if (until != kNever) wake(running_strand_, until);
  self.fiber->leave();
}

void World::sleep(Time until) {
  leave(until);
  check(running_rank());
}

void World::wake(StrandId strand, Time at) {
  schedule(at, EventKind::wake, strand, strands_[strand].token);
}

World::TimePoint World::now() noexcept {
  return TimePoint(std::chrono::duration_cast<std::chrono::nanoseconds>(now_));
}

void World::wait(void const* address, TimePoint until) noexcept {
  auto const strand = running_strand_;
  constexpr auto kFar = TimePoint(std::chrono::hours(24 * 50));
  sleepers_[address].push_back(strand);
  strands_[strand].address = address;
  // now() rounds down to whole nanoseconds, so `until` may lie a little before now_.
  leave(until < kFar ? std::max(now_, Time(until.time_since_epoch())) : kNever);
  strands_[strand].address = nullptr;
  auto const found = sleepers_.find(address);
  if (found == sleepers_.end()) return;
  std::erase(found->second, strand);
  if (found->second.empty()) sleepers_.erase(found);
}

void World::wake(void const* address) noexcept {
  auto const found = sleepers_.find(address);
  if (found == sleepers_.end()) return;
  for (auto const strand : found->second) wake(strand, now_);
  sleepers_.erase(found);
}

std::shared_ptr<Stream::Impl> World::make_stream(StreamOptions const& /*options*/) {
  return std::make_shared<SimStream>(*this);
}

void World::check(int rank) {
  if (ranks_[static_cast<std::size_t>(rank)].lost) throw Lost{};
  if (!failure_) return;
  auto const waits = running_strand_ == Message::kNobody ? "" : describe_wait(strands_[running_strand_]);
  throw Error(failure_->code(), fmt::format("{}{}", failure_->what(), waits.empty() ? "" : "; here " + waits));
}

void World::check_peer(int rank, int peer, char const* what) const {
  if (peer >= 0 && peer < size() && peer != rank) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} of rank {}: there is no other rank {}; there are 0 to {}", what, rank, peer, size() - 1));
}

Transport::Request World::start_send(Channel const& channel, int rank, int to, std::span<std::byte const> bytes) {
  check(rank);
  check_peer(rank, to, "send");
  auto const id = messages_.begin_send({channel.number, rank, to});
  auto& message = messages_[id];
  message.carries_data = channel.carries_data;
  message.has_sender = true;
  message.sent_bytes = bytes.size();
  message.source = bytes.data();
  ++ranks_[static_cast<std::size_t>(rank)].pending;
  ++outcome_.messages;
  outcome_.bytes += bytes.size();
  note(TraceEvent::Kind::send, rank, to, message.number, bytes.size());
  if (message.has_receiver || bytes.size() <= options_.eager_bytes) depart(id);
  return request_of(id, true);
}

Transport::Request World::start_recv(Channel const& channel, int rank, int from, std::span<std::byte> bytes) {
  check(rank);
  check_peer(rank, from, "receive");
  auto const id = messages_.begin_recv({channel.number, from, rank});
  auto& message = messages_[id];
  message.carries_data = channel.carries_data;
  message.has_receiver = true;
  message.recv_bytes = bytes.size();
  message.target = bytes.data();
  ++ranks_[static_cast<std::size_t>(rank)].pending;
  if (options_.spoil_buffers && channel.carries_data && !bytes.empty()) {
    std::memset(bytes.data(), static_cast<int>(kNonsense), bytes.size());
  }
  note(TraceEvent::Kind::recv, rank, from, message.number, bytes.size());
  if (message.has_sender && !message.on_its_way) depart(id);
  return request_of(id, false);
}

void World::wait(int rank, Transport::Request& request) {
  if (request == Transport::Request::none) return;
  auto const code = static_cast<std::uint64_t>(request);
  request = Transport::Request::none;
  auto const id = static_cast<MessageId>(code / 2 - 1);
  auto const sends = code % 2 == 1;
  check(rank);
  auto& self = ranks_[static_cast<std::size_t>(rank)];
  auto& message = messages_[id];
  auto& strand = strands_[running_strand_];
  strand.awaits = id;
  (sends ? message.sends : message.receives) = running_strand_;
  for (;;) {
    auto const at = sends ? message.leaves : message.arrives;
    if (at <= now_) break;
    sleep(at);
  }
  (sends ? message.sends : message.receives) = Message::kNobody;
  strand.awaits.reset();
  --self.pending;
  sends ? complete_send(message) : complete_recv(message);
  auto const unequal = !sends && message.sent_bytes != message.recv_bytes;
  auto const error =
      unequal ? fmt::format("message {} from rank {} has {} bytes, rank {} expects {}; both sides must agree",
                            message.number, message.from, message.sent_bytes, message.to, message.recv_bytes)
              : std::string();
  forget(id);
  if (unequal) throw Error(ErrorCode::mismatch, error);
}

void World::reduced(int rank, std::size_t bytes) {
  check(rank);
  auto const slowness = ranks_[static_cast<std::size_t>(rank)].slowness;
  pass(rank, from_seconds(static_cast<double>(bytes) * options_.reduction_s_per_byte * slowness));
}

void World::pass(int rank, Time duration) {
  auto const& self = ranks_[static_cast<std::size_t>(rank)];
  if (self.lost) throw Lost{};
  auto const until = later(now_, duration);
  if (until > kLatest) {
    fail_for_time();
    check(rank);
  }
  // A failure may wake the strand, but it computes to the end, and hears of the failure afterwards.
  while (now_ < until) {
    leave(until);
    if (self.lost) throw Lost{};
  }
}

void World::note(TraceEvent::Kind kind, int rank, int peer, std::uint64_t number, std::uint64_t bytes) {
  auto& print = outcome_.fingerprint;
  for (auto const part : {static_cast<std::uint64_t>(now_.count()), static_cast<std::uint64_t>(kind),
                          static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(peer), number, bytes}) {
    print = (print ^ part) * 0x100000001b3U;
    print ^= print >> 29U;
  }
  if (options_.record) outcome_.trace.push_back({now_, kind, rank, peer, number, bytes});
}

RankTransport::RankTransport(World& world, int rank, Channel channel, std::shared_ptr<std::vector<int> const> members)
    : world_(world),
      channel_(channel),
      members_(std::move(members)),
      world_rank_(rank),
      rank_(rank),
      phantom_(channel.carries_data ? nullptr : world.phantom()) {
  if (members_ == nullptr) return;
  rank_ = static_cast<int>(std::find(members_->begin(), members_->end(), rank) - members_->begin());
}

}  // namespace weft::sim
