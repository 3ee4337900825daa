#include "collectives/group_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

void GroupBuffers::add_range(std::vector<Range>& ranges, void const* data, std::size_t bytes, Operation operation) {
  auto const* const begin = static_cast<std::byte const*>(data);
  if (bytes > 0) ranges.push_back({begin, begin + bytes, calls_, operation});
}

// What lies between parts is nobody's.
void GroupBuffers::add_parts(std::vector<Range>& ranges, void const* data, Call const& call, Parts const& parts) {
  for (int rank = 0; rank < ranks_; ++rank) {
    auto const part = call.part(parts, rank);
    add_range(ranges, static_cast<std::byte const*>(data) + part.offset, part.length, call.contract.operation);
  }
}

void GroupBuffers::add_sent(Call const& call) {
  auto const ranks = static_cast<std::size_t>(ranks_);
  auto const add = [&](std::size_t bytes) { add_range(reads_, call.send, bytes, call.contract.operation); };
  switch (call.contract.operation) {
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::scan:
    case Operation::exscan:
    case Operation::all_gather:
    case Operation::gather: return add(call.bytes());
    case Operation::reduce_scatter:
    case Operation::all_to_all: return add(call.bytes() * ranks);
    case Operation::broadcast: return add(call.is_root(rank_) ? call.bytes() : 0);
    case Operation::scatter: return add(call.is_root(rank_) ? call.bytes() * ranks : 0);
    case Operation::gather_v: return add(call.own_bytes);
    case Operation::all_gather_v: return add(call.part(call.recv_parts, rank_).length);
    case Operation::scatter_v:
      if (!call.is_root(rank_)) return;
      [[fallthrough]];
    case Operation::reduce_scatter_v:
    case Operation::all_to_all_v: return add_parts(reads_, call.send, call, call.send_parts);
    default: return;
  }
}

void GroupBuffers::add_received(Call const& call) {
  auto const ranks = static_cast<std::size_t>(ranks_);
  auto const add = [&](std::size_t bytes) { add_range(writes_, call.recv, bytes, call.contract.operation); };
  switch (call.contract.operation) {
    case Operation::all_reduce:
    case Operation::scan:
    case Operation::exscan:
    case Operation::reduce_scatter:
    case Operation::scatter: return add(call.bytes());
    case Operation::all_gather:
    case Operation::all_to_all: return add(call.bytes() * ranks);
    case Operation::reduce: return add(call.is_root(rank_) ? call.bytes() : 0);
    case Operation::broadcast: return add(call.is_root(rank_) ? 0 : call.bytes());
    case Operation::gather: return add(call.is_root(rank_) ? call.bytes() * ranks : 0);
    case Operation::scatter_v: return add(call.own_bytes);
    case Operation::reduce_scatter_v: return add(call.part(call.send_parts, rank_).length);
    case Operation::gather_v:
      if (!call.is_root(rank_)) return;
      [[fallthrough]];
    case Operation::all_gather_v:
    case Operation::all_to_all_v: return add_parts(writes_, call.recv, call, call.recv_parts);
    default: return;
  }
}

void GroupBuffers::add(Call const& call) {
  ++calls_;
  add_sent(call);
  add_received(call);
}

void GroupBuffers::add(Message const* send, Message const* recv) {
  ++calls_;
  if (send != nullptr) add_range(reads_, send->data, send->bytes, recv ? Operation::send_receive : Operation::send);
  if (recv != nullptr) add_range(writes_, recv->data, recv->bytes, send ? Operation::send_receive : Operation::receive);
}

std::string GroupBuffers::dependence() {
  auto const by_address = [](Range const& a, Range const& b) { return a.begin < b.begin; };
  for (auto* const ranges : {&reads_, &writes_}) {
    if (!std::is_sorted(ranges->begin(), ranges->end(), by_address)) {
      std::sort(ranges->begin(), ranges->end(), by_address);
    }
  }
  auto const text = [](Range const& written, Range const& used) {
    return fmt::format(
        "call {} ({}) uses what call {} ({}) writes, but calls of a group are independent: end the "
        "group between them",
        used.call, to_string(used.operation), written.call, to_string(written.operation));
  };
  // What one call writes may be what it reads, in place; nothing else touches it.
  for (std::size_t i = 1; i < writes_.size(); ++i) {
    if (writes_[i].begin < writes_[i - 1].end && writes_[i].call != writes_[i - 1].call) {
      return text(writes_[i - 1], writes_[i]);
    }
  }
  // Writes are now apart, so their ends rise too.
  auto first = writes_.begin();
  for (Range const& read : reads_) {
    while (first != writes_.end() && first->end <= read.begin) ++first;
    for (auto write = first; write != writes_.end() && write->begin < read.end; ++write) {
      if (write->call != read.call) return text(*write, read);
    }
  }
  return {};
}

}  // namespace weft
