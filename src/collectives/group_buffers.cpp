#include "collectives/group_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

std::size_t GroupBuffers::sent(Contract const& contract, std::size_t bytes) const noexcept {
  auto const is_root = contract.root == static_cast<std::uint32_t>(rank_);
  auto const ranks = static_cast<std::size_t>(ranks_);
  switch (contract.operation) {
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::scan:
    case Operation::exscan:
    case Operation::all_gather:
    case Operation::gather: return bytes;
    case Operation::reduce_scatter:
    case Operation::all_to_all: return bytes * ranks;
    case Operation::broadcast: return is_root ? bytes : 0;
    case Operation::scatter: return is_root ? bytes * ranks : 0;
    default: return 0;
  }
}

std::size_t GroupBuffers::received(Contract const& contract, std::size_t bytes) const noexcept {
  auto const is_root = contract.root == static_cast<std::uint32_t>(rank_);
  auto const ranks = static_cast<std::size_t>(ranks_);
  switch (contract.operation) {
    case Operation::all_reduce:
    case Operation::scan:
    case Operation::exscan:
    case Operation::reduce_scatter:
    case Operation::scatter: return bytes;
    case Operation::all_gather:
    case Operation::all_to_all: return bytes * ranks;
    case Operation::reduce: return is_root ? bytes : 0;
    case Operation::broadcast: return is_root ? 0 : bytes;
    case Operation::gather: return is_root ? bytes * ranks : 0;
    default: return 0;
  }
}

void GroupBuffers::note(Hull const& read, Hull const& written) noexcept {
  auto all = all_reads_;
  all.add(all_writes_);
  auto own = read;
  own.add(written);
  calls_apart_ = calls_apart_ && !all.touches(own);
  writes_apart_ = writes_apart_ && !all_writes_.touches(written);
  all_reads_.add(read);
  all_writes_.add(written);
}

void GroupBuffers::note(MergedCall const& calls) noexcept {
  auto const& contract = calls.call().contract;
  if (has_unequal_parts(contract.operation)) {
    calls_apart_ = writes_apart_ = false;
    return;
  }
  auto const sends = sent(contract, 1);
  auto const receives = received(contract, 1);
  for (auto const& piece : calls.pieces())
    note(hull(piece.send, piece.bytes * sends), hull(piece.recv, piece.bytes * receives));
}

void GroupBuffers::add(Message const* send, Message const* recv) {
  ++calls_;
  Hull read;
  Hull written;
  if (send != nullptr) {
    read = hull(send->data, send->bytes);
    add_range(reads_, send->data, send->bytes, calls_, recv ? Operation::send_receive : Operation::send);
  }
  if (recv != nullptr) {
    written = hull(recv->data, recv->bytes);
    add_range(writes_, recv->data, recv->bytes, calls_, send ? Operation::send_receive : Operation::receive);
  }
  note(read, written);
}

void GroupBuffers::add_range(std::vector<Range>& ranges, void const* data, std::size_t bytes, std::uint32_t number,
                             Operation operation) {
  auto const* const begin = static_cast<std::byte const*>(data);
  if (bytes > 0) ranges.push_back({begin, begin + bytes, number, operation});
}

// Adds parts one by one: the gaps between them belong to no call.
void GroupBuffers::add_parts(std::vector<Range>& ranges, void const* data, Call const& call, Parts const& parts,
                             std::uint32_t number) {
  for (int rank = 0; rank < ranks_; ++rank) {
    auto const part = call.part(parts, rank);
    add_range(ranges, static_cast<std::byte const*>(data) + part.offset, part.length, number, call.contract.operation);
  }
}

void GroupBuffers::add_unequal(Call const& call, std::uint32_t number) {
  auto const operation = call.contract.operation;
  auto const is_root = call.is_root(rank_);
  auto const reads = [&](std::size_t bytes) { add_range(reads_, call.send, bytes, number, operation); };
  auto const writes = [&](std::size_t bytes) { add_range(writes_, call.recv, bytes, number, operation); };
  auto const reads_parts = [&] { add_parts(reads_, call.send, call, call.send_parts, number); };
  auto const writes_parts = [&] { add_parts(writes_, call.recv, call, call.recv_parts, number); };
  switch (operation) {
    case Operation::all_gather_v: reads(call.part(call.recv_parts, rank_).length); return writes_parts();
    case Operation::reduce_scatter_v: writes(call.part(call.send_parts, rank_).length); return reads_parts();
    case Operation::gather_v:
      reads(call.own_bytes);
      if (is_root) writes_parts();
      return;
    case Operation::scatter_v:
      writes(call.own_bytes);
      if (is_root) reads_parts();
      return;
    case Operation::all_to_all_v: reads_parts(); return writes_parts();
    default: return;
  }
}

void GroupBuffers::add_ranges(MergedCall const& calls) {
  auto const& contract = calls.call().contract;
  for (auto const& piece : calls.pieces()) {
    if (has_unequal_parts(contract.operation)) {  // such calls do not merge
      add_unequal(calls.call(), piece.number);
      continue;
    }
    add_range(reads_, piece.send, sent(contract, piece.bytes), piece.number, contract.operation);
    add_range(writes_, piece.recv, received(contract, piece.bytes), piece.number, contract.operation);
  }
}

std::string GroupBuffers::dependence(std::vector<MergedCall> const& calls) {
  for (auto const& merged : calls) note(merged);
  if (are_apart()) return {};
  for (auto const& merged : calls) add_ranges(merged);
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
  // A call may read what it writes itself, in place; no other call may touch it.
  for (std::size_t i = 1; i < writes_.size(); ++i) {
    if (writes_[i].begin < writes_[i - 1].end && writes_[i].call != writes_[i - 1].call) {
      return text(writes_[i - 1], writes_[i]);
    }
  }
  // Writes do not overlap, so their ends rise too.
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
