// Point-to-point messages over several hosts: `intra` moves those inside the host, `inter` those between hosts, both at
// once.
#include <exception>
#include <thread>
#include <vector>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "weft/error.hpp"

namespace weft::hierarchical {
namespace {

/// Whether an error ends the communicator, and not only this call.
bool is_lost(ErrorCode code) noexcept {
  return code == ErrorCode::peer_lost || code == ErrorCode::timeout || code == ErrorCode::aborted;
}

/// Moves the messages of one level. A failure that ends this level ends the other at once, before it notices itself.
void transfer(Backend& level, Backend& other, Call const& call, std::span<Message const> messages) {
  try {
    level.transfer(call, messages);
  } catch (Error const& error) {
    if (is_lost(error.code())) other.fail(error.code(), error.what());
    throw;
  }
}

}  // namespace

void HierarchicalBackend::transfer(Call const& call, std::span<Message const> messages) {
  std::vector<Message> local;
  std::vector<Message> remote;
  for (auto message : messages) {
    if (!layout_.is_local(message.peer)) {
      remote.push_back(message);
      continue;
    }
    message.peer = layout_.local_index(message.peer);
    local.push_back(message);
  }
  if (remote.empty()) return hierarchical::transfer(*intra_, *inter_, call, local);
  if (local.empty()) return hierarchical::transfer(*inter_, *intra_, call, remote);
  // Neither level may wait for the other: a ring over all ranks needs both at once.
  std::exception_ptr failure;
  std::thread inside([&] {
    try {
      hierarchical::transfer(*intra_, *inter_, call, local);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  struct Joined {
    std::thread& thread;
    ~Joined() { thread.join(); }
  };
  {
    Joined const joined{inside};
    hierarchical::transfer(*inter_, *intra_, call, remote);
  }
  if (failure) std::rethrow_exception(failure);
}

std::unique_ptr<Transit> HierarchicalBackend::begin(Call const& call, Message const& message) {
  if (!layout_.is_local(message.peer)) return inter_->begin(call, message);
  auto local = message;
  local.peer = layout_.local_index(message.peer);
  return intra_->begin(call, local);
}

void HierarchicalBackend::await(Call const& call, std::function<bool()> const& ready) {
  // Asks the level that has all ranks, since it hears of every rank's failure.
  inter_->await(call, ready);
}

void HierarchicalBackend::throw_if_failed() {
  inter_->throw_if_failed();
}

PeerState HierarchicalBackend::peer_state(int rank) {
  return layout_.is_local(rank) ? intra_->peer_state(layout_.local_index(rank)) : inter_->peer_state(rank);
}

}  // namespace weft::hierarchical
