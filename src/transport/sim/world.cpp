#include "transport/sim/world.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace weft::sim {
namespace {

constexpr std::size_t kPhantomBytes = std::size_t{1} << 42;  // of addresses
constexpr std::byte kNonsense{0xa5};

std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

/// A request is a message and a side of it.
Transport::Request request_of(MessageId id, bool sends) noexcept {
  return static_cast<Transport::Request>((std::uint64_t{id} + 1) * 2 + (sends ? 1 : 0));
}

}  // namespace

World::World(Topology const& topology, Options const& options)
    : options_(options),
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
  if (options.carries_data) return;
  void* const addresses = mmap(nullptr, kPhantomBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) throw Error(ErrorCode::out_of_memory, "no addresses for a simulation without data");
  phantom_ = static_cast<std::byte*>(addresses);
}

World::~World() {
  if (phantom_ != nullptr) munmap(phantom_, kPhantomBytes);
}

Outcome World::run(std::function<void(Transport&)> const& body) {
  outcome_.ended.resize(ranks_.size());
  outcome_.errors.resize(ranks_.size());
  std::vector<Time> delays(ranks_.size());
  for (auto const& slow : options_.stragglers) delays[static_cast<std::size_t>(slow.rank)] += slow.delay;
  for (std::size_t r = 0; r < ranks_.size(); ++r) start(delays[r], static_cast<int>(r), body);
  for (auto const& loss : options_.losses) schedule(loss.at, EventKind::loss, static_cast<std::uint32_t>(loss.rank));
  while (running_ > 0) {
    if (events_.empty()) {
      fail(ErrorCode::timeout, describe_deadlock());
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
  self.transport = std::make_unique<RankTransport>(*this, rank);
  self.fiber = std::make_unique<Fiber>(*stacks_, [this, rank, &body] { live(rank, body); });
  ++running_;
  wake(rank, delay);
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
  } catch (Lost const&) {
  } catch (std::exception const& error) {
    outcome_.errors[index] = std::current_exception();
    failure = error.what();
  } catch (...) {
    outcome_.errors[index] = std::current_exception();
    failure = "something that is no std::exception was thrown";
  }
  self.ended = true;
  --running_;
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
      if (event.token == ranks_[event.subject].token) enter(static_cast<int>(event.subject));
      return;
    case EventKind::advance: return advance(event.subject);
    case EventKind::loss: return lose(static_cast<int>(event.subject));
    case EventKind::failure: return fail(ErrorCode::peer_lost, fmt::format("rank {} was lost", event.subject));
  }
}

void World::enter(int rank) {
  auto& self = ranks_[static_cast<std::size_t>(rank)];
  ++self.token;
  self.asleep = false;
  self.fiber->enter();
}

void World::sleep(int rank, Time until) {
  auto& self = ranks_[static_cast<std::size_t>(rank)];
  self.asleep = true;
  if (until != kNever) wake(rank, until);
  self.fiber->leave();
  check(rank);
}

void World::wake(int rank, Time at) {
  auto const index = static_cast<std::uint32_t>(rank);
  schedule(at, EventKind::wake, index, ranks_[index].token);
}

void World::check(int rank) {
  if (ranks_[static_cast<std::size_t>(rank)].lost) throw Lost{};
  if (!failure_) return;
  auto const waits = describe_wait(rank);
  throw Error(failure_->code(), fmt::format("{}{}", failure_->what(), waits.empty() ? "" : "; here " + waits));
}

void World::check_peer(int rank, int peer, char const* what) const {
  if (peer >= 0 && peer < size() && peer != rank) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} of rank {}: there is no other rank {}; there are 0 to {}", what, rank, peer, size() - 1));
}

Transport::Request World::start_send(int rank, int to, std::span<std::byte const> bytes) {
  check(rank);
  check_peer(rank, to, "send");
  auto const id = messages_.begin_send(rank, to);
  auto& message = messages_[id];
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

Transport::Request World::start_recv(int rank, int from, std::span<std::byte> bytes) {
  check(rank);
  check_peer(rank, from, "receive");
  auto const id = messages_.begin_recv(from, rank);
  auto& message = messages_[id];
  message.has_receiver = true;
  message.recv_bytes = bytes.size();
  message.target = bytes.data();
  ++ranks_[static_cast<std::size_t>(rank)].pending;
  if (options_.spoil_buffers && phantom_ == nullptr && !bytes.empty()) {
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
  self.awaits = id;
  for (;;) {
    auto const at = sends ? message.leaves : message.arrives;
    if (at <= now_) break;
    sleep(rank, at);
  }
  self.awaits.reset();
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
  check(rank);
  if (duration <= Time{}) return;
  auto const until = now_ + duration;
  while (now_ < until) sleep(rank, until);
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

}  // namespace weft::sim
