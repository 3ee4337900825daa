#include "collectives/open_group.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace weft {
namespace {

bool has_options(CollectiveOptions const& how) noexcept {
  return how.stream || how.timeout || how.tag != 0 || how.feedback;
}

bool are_apart(ConstBufferView const& a, ConstBufferView const& b, std::size_t element) noexcept {
  auto const* const first = static_cast<std::byte const*>(a.data);
  auto const* const second = static_cast<std::byte const*>(b.data);
  return first + a.count * element <= second || second + b.count * element <= first;
}

}  // namespace

std::shared_ptr<OpenGroup> OpenGroup::create(CollectiveOptions const& options, MergeLimits const& limits, int rank,
                                             int ranks, std::size_t expected) {
  std::shared_ptr<OpenGroup> group(new OpenGroup(options, limits, rank, ranks, expected));
  group->state_ = std::make_shared<Work::State>(group->weak_from_this());
  return group;
}

Work OpenGroup::add(Call&& call, MergedCall::Run run, CollectiveOptions const& how) {
  last_ = nullptr;
  if (!call.is_on_host()) {
    call.own_parts();
    device_calls_.push_back(std::move(call));
    return Work{state_};
  }
  auto const number = buffers_.count();
  // A call may join only the newest merged call of its kind, even when that has no room and an older one has. So what
  // merges follows from the kinds and lengths of calls in their order, which are equal on all ranks, and not from which
  // calls take the short way, which may differ between ranks.
  constexpr std::size_t kKinds = 8;  // so many kinds may alternate and still merge
  auto const recent = calls_.rbegin() + static_cast<std::ptrdiff_t>(std::min(calls_.size(), kKinds));
  auto const open =
      std::find_if(calls_.rbegin(), recent, [&](MergedCall const& merged) { return merged.is_open_to(call); });
  MergedCall* joined = nullptr;
  if (open != recent && open->has_room(call.bytes())) {
    joined = &*open;
    joined->add(call, number);
  } else {
    call.own_parts();
    joined = &calls_.emplace_back(std::move(call), run, limits_, number);
    if (calls_.size() == 1) calls_.front().reserve(expected_);  // most groups are of one kind
  }
  if (!has_options(how) && joined->is_open_to(joined->call())) last_ = joined;
  return Work{state_};
}

bool OpenGroup::extend(Operation operation, ConstBufferView const& send, BufferView const& recv, ReduceOp op,
                       CollectiveOptions const& how) {
  if (last_ == nullptr || has_options(how)) return false;
  auto const& contract = last_->call().contract;
  auto const alike = contract.operation == operation && contract.reduce == op && contract.dtype == send.dtype &&
                     contract.dtype == recv.dtype && send.device == Device{} && recv.device == Device{};
  if (!alike || send.data == nullptr || recv.data == nullptr) return false;
  auto const count = std::min(send.count, recv.count);
  if (count >> PackedContract::kCountBits != 0) return false;
  auto const sends = operation == Operation::reduce_scatter ? count * ranks_ : count;
  auto const receives = operation == Operation::all_gather ? count * ranks_ : count;
  auto const element = size_of(send.dtype);
  if (send.count != sends || recv.count != receives || !last_->has_room(count * element)) return false;
  auto const in_place = operation == Operation::all_reduce && send.data == recv.data;
  if (!in_place && !are_apart(send, recv, element)) return false;
  last_->add(send.data, recv.data, count, buffers_.count());
  return true;
}

Work OpenGroup::add(Call const& call, std::optional<Message> const& send, std::optional<Message> const& recv) {
  auto const stays = [&](std::optional<Message> const& message) { return message && message->peer == rank_; };
  auto const leaves = [&](std::optional<Message> const& message) {
    return message && (message->peer != rank_ || !call.is_on_host());
  };
  // Messages to itself are left out: one may be received into the memory that it is sent from.
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
