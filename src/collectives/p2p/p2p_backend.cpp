#include "collectives/p2p/p2p_backend.hpp"

#include <fmt/format.h>

#include <utility>

#include "collectives/host_order.hpp"
#include "collectives/merged_call.hpp"
#include "runtime/timeline.hpp"
#include "weft/buffer.hpp"

namespace weft::p2p {
namespace {

/// What a rank has heard so far in an announcement, and tells on.
struct Heard {
  PackedContract contract;   ///< of the rank that tells
  PackedContract differing;  ///< of rank `other`
  std::int32_t other = -1;   ///< a rank whose call differs from the teller's; -1: none heard of
};

bool differ(PackedContract const& a, PackedContract const& b) noexcept {
  return a.count != b.count || a.rest != b.rest;
}

[[noreturn]] void refuse(char const* what) {
  throw Error(ErrorCode::unsupported, fmt::format("{} is not there over a plain transport, such as the simulator's; "
                                                  "use send, recv and collectives",
                                                  what));
}

}  // namespace

P2pBackend::P2pBackend(Ends ends, Network const& network, OnFailure on_failure)
    : ends_(std::move(ends)), network_(network), on_failure_(std::move(on_failure)) {}

// In step k each rank tells the one 2^k before it what it knows of itself and of the 2^k − 1 ranks after it.
void P2pBackend::announce(Call const& call) {
  if (!ends_.announcements) return;
  auto& transport = *ends_.announcements;
  auto const n = transport.size();
  auto const rank = transport.rank();
  Heard mine{PackedContract(call.contract), {}, -1};
  for (int distance = 1; distance < n; distance *= 2) {
    Heard theirs;
    auto const from = (rank + distance) % n;
    transport.sendrecv((rank - distance + n) % n, std::as_bytes(std::span(&mine, 1)), from,
                       std::as_writable_bytes(std::span(&theirs, 1)));
    if (mine.other >= 0) continue;
    if (differ(mine.contract, theirs.contract)) {
      mine.differing = theirs.contract;
      mine.other = from;
    } else if (theirs.other >= 0) {
      mine.differing = theirs.differing;
      mine.other = theirs.other;
    }
  }
  if (call.met != nullptr) *call.met = now();
  if (mine.other < 0) return;
  throw Error(ErrorCode::mismatch,
              describe_mismatch(call.number(), rank, call.contract, mine.other, mine.differing.unpack()) +
                  " (nothing was moved)");
}

void P2pBackend::run(Call const& call) {
  announce(call);
  p2p::run(choose(call), *ends_.data, call, network_.tuning);
}

Algorithm const& P2pBackend::choose(Call const& call) const {
  CostQuestion question;
  question.alpha_s = network_.alpha_s;
  question.beta_s_per_byte = network_.beta_s_per_byte;
  question.gamma_s_per_byte = network_.gamma_s_per_byte;
  question.ranks = ends_.data->size();
  question.chunk_bytes = static_cast<double>(network_.tuning.chunk_bytes);
  question.message_s = kMessageSeconds;
  return p2p::choose(call, question, network_.bitwise).algorithm;
}

void P2pBackend::merged(MergedCall const& calls) {
  run_flat(*this, calls, ends_.data->rank(), ends_.data->size(), flat_,
           [&](Call const& flat) { calls.run_plain(*this, flat); });
}

void P2pBackend::transfer(Call const& /*call*/, std::span<Message const> messages) {
  auto& transport = *ends_.messages;
  std::vector<Transport::Request> requests;
  for (auto const& message : messages) {
    auto* const data = static_cast<std::byte*>(message.data);
    requests.push_back(message.direction == Message::Direction::receive
                           ? transport.start_recv(message.peer, {data, message.bytes})
                           : transport.start_send(message.peer, {data, message.bytes}));
  }
  for (auto& request : requests) transport.wait(request);
}

std::unique_ptr<Transit> P2pBackend::begin(Call const& /*call*/, Message const& /*message*/) {
  refuse("Messenger");
}

void P2pBackend::await(Call const& /*call*/, std::function<bool()> const& /*ready*/) {
  refuse("Messenger");
}

std::shared_ptr<void> P2pBackend::allocate(Call const& call) {
  announce(call);
  if (ends_.memory) return ends_.memory(call.sequence, call.bytes());
  auto memory = std::make_shared<Buffer>(Buffer::host(call.contract.count, call.contract.dtype));
  auto* const data = memory->data();
  return {std::move(memory), data};
}

void P2pBackend::fail(ErrorCode code, std::string const& reason) noexcept {
  if (on_failure_) on_failure_(code, reason);
}

}  // namespace weft::p2p
