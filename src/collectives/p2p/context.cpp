#include "collectives/p2p/context.hpp"

#include <cstring>

namespace weft::p2p {

std::byte* Context::workspace(std::size_t bytes) {
  if (!carries_data()) return transport_.phantom();
  memory_.emplace_back(new std::byte[bytes + 1]);
  return memory_.back().get();
}

void Context::copy(void* to, void const* from, std::size_t bytes) const {
  if (to != from && bytes > 0 && carries_data()) std::memmove(to, from, bytes);
}

void Context::sendrecv(int to, void const* sent, std::size_t sent_bytes, int from, void* received, std::size_t bytes) {
  auto outgoing = start_send(to, sent, sent_bytes);
  auto incoming = start_recv(from, received, bytes);
  wait(incoming);
  wait(outgoing);
}

}  // namespace weft::p2p
