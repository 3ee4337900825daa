#include "transport/sim/messages.hpp"

namespace weft::sim {

MessageId Messages::make(Path const& path, std::uint64_t number) {
  MessageId id = 0;
  if (free_.empty()) {
    id = static_cast<MessageId>(all_.size());
    all_.emplace_back();
    live_.push_back(0);
  } else {
    id = free_.back();
    free_.pop_back();
    all_[id] = {};
  }
  live_[id] = 1;
  all_[id].from = path.from;
  all_[id].to = path.to;
  all_[id].number = number;
  return id;
}

MessageId Messages::begin_send(Path const& path) {
  auto& between = pair(path);
  auto const number = between.sends++;
  if (number < between.recvs) {
    auto const id = between.waiting.front();
    between.waiting.pop_front();
    return id;
  }
  between.waiting.push_back(make(path, number));
  return between.waiting.back();
}

MessageId Messages::begin_recv(Path const& path) {
  auto& between = pair(path);
  auto const number = between.recvs++;
  if (number < between.sends) {
    auto const id = between.waiting.front();
    between.waiting.pop_front();
    return id;
  }
  between.waiting.push_back(make(path, number));
  return between.waiting.back();
}

void Messages::release(MessageId id) {
  live_[id] = 0;
  all_[id].bytes = {};
  free_.push_back(id);
}

}  // namespace weft::sim
