// Point-to-point messages over several hosts: inside by one back end, between hosts by the other, both at once.
#include <exception>
#include <thread>
#include <vector>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "weft/error.hpp"

namespace weft::hierarchical {
namespace {

/// Whether an error ends the communicator, not this call alone.
bool is_lost(ErrorCode code) noexcept {
  return code == ErrorCode::peer_lost || code == ErrorCode::timeout || code == ErrorCode::aborted;
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
  if (remote.empty()) return intra_->transfer(call, local);
  if (local.empty()) return inter_->transfer(call, remote);
  // Neither may wait for the other: a ring over all ranks needs both at once. Where one level has failed, the other
  // need not wait until it finds out.
  std::exception_ptr failure;
  std::thread inside([&] {
    try {
      intra_->transfer(call, local);
    } catch (Error const& error) {
      if (is_lost(error.code())) inter_->fail(error.code(), error.what());
      failure = std::current_exception();
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
    try {
      inter_->transfer(call, remote);
    } catch (Error const& error) {
      if (is_lost(error.code())) intra_->fail(error.code(), error.what());
      throw;
    }
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
  // By the level that has all ranks, and so hears of everybody's failures.
  inter_->await(call, ready);
}

void HierarchicalBackend::throw_if_failed() {
  inter_->throw_if_failed();
}

PeerState HierarchicalBackend::peer_state(int rank) {
  return layout_.is_local(rank) ? intra_->peer_state(layout_.local_index(rank)) : inter_->peer_state(rank);
}

}  // namespace weft::hierarchical
