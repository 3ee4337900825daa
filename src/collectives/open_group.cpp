#include "collectives/open_group.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace weft {

std::shared_ptr<OpenGroup> OpenGroup::create(CollectiveOptions const& options, MergeLimits const& limits, int rank,
                                             int ranks, std::size_t expected) {
  std::shared_ptr<OpenGroup> group(new OpenGroup(options, limits, rank, ranks, expected));
  group->state_ = std::make_shared<Work::State>(group->weak_from_this());
  return group;
}

Work OpenGroup::add(Call&& call, MergedCall::Run run) {
  if (!call.is_on_host()) {
    call.own_parts();
    device_calls_.push_back(std::move(call));
    return Work{state_};
  }
  auto const number = buffers_.count();
  constexpr std::size_t kKinds = 8;  // that may alternate and still merge
  auto const last = calls_.end();
  auto const recent = last - static_cast<std::ptrdiff_t>(std::min(calls_.size(), kKinds));
  auto const found = std::find_if(recent, last, [&](MergedCall const& merged) { return merged.accepts(call); });
  if (found != last) {
    found->add(call, number);
  } else {
    call.own_parts();
    calls_.emplace_back(std::move(call), run, limits_, number);
    if (calls_.size() == 1) calls_.front().reserve(expected_);  // most groups are of one kind
  }
  return Work{state_};
}

Work OpenGroup::add(Call const& call, std::optional<Message> const& send, std::optional<Message> const& recv) {
  auto const stays = [&](std::optional<Message> const& message) { return message && message->peer == rank_; };
  auto const leaves = [&](std::optional<Message> const& message) {
    return message && (message->peer != rank_ || !call.is_on_host());
  };
  // A message to itself may well stay where it is.
  if (call.is_on_host()) buffers_.add(leaves(send) ? &*send : nullptr, leaves(recv) ? &*recv : nullptr);
  if (stays(send)) own_sends_.push_back(*send);
  if (stays(recv)) own_recvs_.push_back(*recv);
  if (leaves(send) || leaves(recv)) {
    if (messages_.empty()) transfer_ = call;
    transfer_.timeout = std::max(transfer_.timeout, call.timeout);
    transfer_.on_stream = options_.stream.has_value();
  }
  if (leaves(send)) messages_.push_back(*send);
  if (leaves(recv)) messages_.push_back(*recv);
  return Work{state_};
}

std::string OpenGroup::own_messages_differ() const {
  if (own_sends_.size() != own_recvs_.size()) {
    return fmt::format("{} sent to itself, but {} received from itself; make both sides of such a message in one group",
                       own_sends_.size(), own_recvs_.size());
  }
  for (std::size_t i = 0; i < own_sends_.size(); ++i) {
    auto const& sent = own_sends_[i];
    auto const& got = own_recvs_[i];
    if (sent.bytes == got.bytes && sent.dtype == got.dtype) continue;
    return fmt::format("message {} to itself is {} × {}, but its recv expects {} × {}; make them equal", i + 1,
                       sent.bytes / size_of(sent.dtype), to_string(sent.dtype), got.bytes / size_of(got.dtype),
                       to_string(got.dtype));
  }
  return {};
}

void OpenGroup::copy_own_messages() const noexcept {
  for (std::size_t i = 0; i < own_sends_.size(); ++i) {
    if (own_sends_[i].bytes > 0) std::memmove(own_recvs_[i].data, own_sends_[i].data, own_sends_[i].bytes);
  }
}

void OpenGroup::close() noexcept {
  for (auto& call : calls_) call.close();
  closed_.store(true, std::memory_order_release);
}

}  // namespace weft
