#include "transport/ucx/ucx_transport.hpp"

#include <fmt/format.h>

namespace weft::ucx {

UcxTransport::~UcxTransport() {
  abandon();
}

void UcxTransport::check_peer(int peer) const {
  if (peer >= 0 && peer < size() && peer != rank()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("rank {} exchanges no messages with rank {} of {}", rank(), peer, size()));
}

void UcxTransport::throw_if_failed() {
  if (!channel_.has_failed()) return;
  abandon();
  channel_.throw_if_failed(&purpose_);
}

std::size_t UcxTransport::take_slot() {
  if (free_.empty()) {
    slots_.emplace_back();
    free_.push_back(slots_.size() - 1);
  }
  auto const index = free_.back();
  free_.pop_back();
  slots_[index].used = true;
  return index;
}

void UcxTransport::free_slot(std::size_t index) noexcept {
  slots_[index].used = false;
  free_.push_back(index);
}

Transport::Request UcxTransport::start_send(int to, std::span<std::byte const> bytes) {
  check_peer(to);
  throw_if_failed();
  auto const index = take_slot();
  auto& slot = slots_[index];
  slot.receives = false;
  channel_.worker().start_send(slot.operation, to, {Tag::Kind::step, rank()}, bytes);
  return started(index);
}

Transport::Request UcxTransport::start_recv(int from, std::span<std::byte> bytes) {
  check_peer(from);
  throw_if_failed();
  auto const index = take_slot();
  auto& slot = slots_[index];
  slot.receives = true;
  slot.expected = bytes.size();
  channel_.worker().start_recv(slot.operation, from, {Tag::Kind::step, from}, bytes);
  return started(index);
}

Transport::Request UcxTransport::started(std::size_t index) {
  auto request = Request{index + 1};
  if (slots_[index].operation.is_done()) wait(request);
  return request;
}

void UcxTransport::wait(Request& request) {
  if (request == Request::none) return;
  auto const index = static_cast<std::size_t>(request) - 1;
  request = Request::none;
  auto& slot = slots_[index];
  if (!slot.used) return channel_.throw_if_failed(&purpose_);  // the request is void since a failure
  try {
    check(slot, channel_.wait(purpose_, slot.operation));
  } catch (Error const&) {
    abandon();
    throw;
  }
  free_slot(index);
}

void UcxTransport::check(Slot const& slot, bool fits) {
  if (!slot.receives || (fits && slot.operation.bytes() == slot.expected)) return;
  channel_.fail_with(
      ErrorCode::mismatch,
      fmt::format("rank {} sent rank {} {} bytes, which expects {} ({})", slot.operation.peer(), rank(),
                  fits ? fmt::format("{}", slot.operation.bytes()) : "more", slot.expected, purpose_.describe()));
}

void UcxTransport::fail(ErrorCode code, std::string const& message) noexcept {
  channel_.fail(code, message);  // first, since abandon() may end connections
  abandon();
}

void UcxTransport::abandon() noexcept {
  std::vector<Pending*> pending;
  for (auto& slot : slots_) {
    if (slot.used && !slot.operation.is_done()) pending.push_back(&slot.operation);
    slot.used = false;
  }
  if (!pending.empty()) channel_.worker().abandon(pending);
  free_.clear();
  for (std::size_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
}

}  // namespace weft::ucx
