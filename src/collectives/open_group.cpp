#include "collectives/open_group.hpp"

#include <utility>

namespace weft {

std::shared_ptr<OpenGroup> OpenGroup::create(CollectiveOptions const& options, MergeLimits const& limits) {
  std::shared_ptr<OpenGroup> group(new OpenGroup(options, limits));
  group->state_ = std::make_shared<Work::State>(group->weak_from_this());
  return group;
}

Work OpenGroup::add(Call&& call, MergedCall::Run run) {
  constexpr std::size_t kKinds = 8;  // that may alternate and still merge
  auto const last = calls_.end();
  auto const recent = last - static_cast<std::ptrdiff_t>(std::min(calls_.size(), kKinds));
  auto const found = std::find_if(recent, last, [&](MergedCall const& merged) { return merged.accepts(call); });
  if (found != last) {
    found->add(call);
  } else {
    call.own_parts();
    calls_.emplace_back(std::move(call), run, limits_);
  }
  return Work{state_};
}

Work OpenGroup::add(Call const& call, std::optional<Message> const& send, std::optional<Message> const& recv) {
  if (messages_.empty()) transfer_ = call;
  transfer_.timeout = std::max(transfer_.timeout, call.timeout);
  transfer_.on_stream = options_.stream.has_value();
  if (send) messages_.push_back(*send);
  if (recv) messages_.push_back(*recv);
  return Work{state_};
}

void OpenGroup::close() noexcept {
  for (auto& call : calls_) call.close();
  closed_.store(true, std::memory_order_release);
}

}  // namespace weft
