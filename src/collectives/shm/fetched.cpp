// How ranks move data between one another's private memory: by a single copy, which the kernel makes.
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "collectives/partition.hpp"
#include "collectives/shm/peer_memory.hpp"
#include "collectives/shm/shm_backend.hpp"
#include "weft/error.hpp"

namespace weft::shm {

bool ShmBackend::can_fetch() const noexcept {
  auto const end = lent_.begin() + size();
  return std::find(lent_.begin(), end, 0) == end;
}

void ShmBackend::fetch(Call const& call, int peer, std::size_t offset, void* destination, std::size_t bytes) {
  auto const* const source = reinterpret_cast<std::byte const*>(lent_[peer]) + offset;
  if (bytes == 0 || (peer == rank() && destination == source)) return;
  try {
    read_memory(channel_.pid(peer), source, destination, bytes);
  } catch (Error const& error) {
    fail_for_memory(call, peer, error);
  }
}

void ShmBackend::push(Call const& call, int peer, std::size_t offset, void const* source, std::size_t bytes) {
  constexpr std::size_t kAtOnce = std::size_t{4} << 20;
  auto* const destination = reinterpret_cast<std::byte*>(lent_[peer]) + offset;
  if (bytes == 0 || (peer == rank() && destination == source)) return;
  for (std::size_t first = 0; first < bytes; first += kAtOnce) {
    auto const length = std::min(kAtOnce, bytes - first);
    std::optional<Error> refused;
    channel_.write_to(peer, [&] {
      try {
        write_memory(channel_.pid(peer), destination + first, at(source, first), length);
      } catch (Error const& error) {
        refused = error;
      }
    });
    if (refused) fail_for_memory(call, peer, *refused);
  }
}

void ShmBackend::fail_for_memory(Call const& call, int peer, Error const& error) {
  constexpr auto kMoment = std::chrono::milliseconds(1);
  constexpr int kMoments = 50;  // a process that dies loses its memory a moment before it counts as dead
  auto const never = [] { return false; };
  for (int nap = 0; nap < kMoments; ++nap) {
    channel_.examine(call, peer, never, std::chrono::steady_clock::now() + call.timeout);
    std::this_thread::sleep_for(kMoment);
  }
  channel_.fail(error.code(), error.what());
  channel_.throw_if_failed(&call);
  throw error;
}

}  // namespace weft::shm
