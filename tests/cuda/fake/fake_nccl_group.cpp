#include "cuda/fake/fake_nccl_group.hpp"

#include <cstring>

#include "kernels/cpu/reduce.hpp"

namespace weft::test {
namespace {

DataType weft_type(ncclDataType_t type) noexcept {
  switch (type) {
    case ncclInt8: return DataType::i8;
    case ncclUint8: return DataType::u8;
    case ncclInt32: return DataType::i32;
    case ncclUint32: return DataType::u32;
    case ncclInt64: return DataType::i64;
    case ncclUint64: return DataType::u64;
    case ncclFloat16: return DataType::f16;
    case ncclFloat32: return DataType::f32;
    case ncclFloat64: return DataType::f64;
    case ncclBfloat16: return DataType::bf16;
    case ncclFloat8e4m3: return DataType::f8e4m3;
    default: return DataType::f8e5m2;
  }
}

ReduceOp weft_op(FakePart const& part) noexcept {
  if (part.scaled) return ReduceOp::premul_sum;
  switch (part.reduce) {
    case ncclProd: return ReduceOp::prod;
    case ncclMax: return ReduceOp::max;
    case ncclMin: return ReduceOp::min;
    case ncclAvg: return ReduceOp::avg;
    default: return ReduceOp::sum;
  }
}

using Parts = std::map<int, FakePart>;
using Bytes = std::vector<std::byte>;

Bytes copy_of(void const* from, std::size_t bytes) {
  Bytes copied(bytes);
  if (bytes > 0) std::memcpy(copied.data(), from, bytes);
  return copied;
}

/// Elements [first, first + count) of all ranks' send buffers, in rank order.
Bytes reduced(Parts const& parts, std::size_t first, std::size_t count) {
  auto const& any = parts.begin()->second;
  auto const element = size_of(any.type);
  std::vector<void const*> sources;
  std::vector<double> scales;
  for (auto const& [rank, part] : parts) {
    sources.push_back(static_cast<std::byte const*>(part.send) + first * element);
    scales.push_back(part.scale);
  }
  Bytes result(count * element);
  if (count == 0) return result;
  void* const to = result.data();
  kernels::reduce({&to, 1}, sources, count, weft_type(any.type), {weft_op(any), scales.data(), {}});
  return result;
}

bool same(FakePart const& a, FakePart const& b) noexcept {
  bool const rooted =
      a.op == FakeOp::reduce || a.op == FakeOp::broadcast || a.op == FakeOp::gather || a.op == FakeOp::scatter;
  return a.op == b.op && a.count == b.count && a.type == b.type && a.scaled == b.scaled &&
         (a.scaled || a.reduce == b.reduce) && (!rooted || a.peer == b.peer);
}

Bytes gathered(Parts const& parts, std::size_t first, std::size_t bytes) {
  Bytes all;
  for (auto const& [rank, part] : parts) {
    auto const one = copy_of(static_cast<std::byte const*>(part.send) + first, bytes);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// What rank `rank` gets.
Bytes result_of(Parts const& parts, int rank) {
  auto const& mine = parts.at(rank);
  auto const bytes = mine.count * size_of(mine.type);
  auto const index = static_cast<std::size_t>(rank);
  auto const is_root = mine.peer == rank;
  switch (mine.op) {
    case FakeOp::all_reduce: return reduced(parts, 0, mine.count);
    case FakeOp::reduce: return is_root ? reduced(parts, 0, mine.count) : Bytes{};
    case FakeOp::reduce_scatter: return reduced(parts, index * mine.count, mine.count);
    case FakeOp::all_gather: return gathered(parts, 0, bytes);
    case FakeOp::all_to_all: return gathered(parts, index * bytes, bytes);
    case FakeOp::gather: return is_root ? gathered(parts, 0, bytes) : Bytes{};
    case FakeOp::broadcast: return copy_of(parts.at(mine.peer).send, bytes);
    case FakeOp::scatter:
      return copy_of(static_cast<std::byte const*>(parts.at(mine.peer).send) + index * bytes, bytes);
    default: return {};
  }
}

/// Everything is read before anything is written: buffers may be in place.
void perform(Parts const& parts) {
  std::map<int, Bytes> results;
  for (auto const& [rank, part] : parts) results[rank] = result_of(parts, rank);
  for (auto const& [rank, part] : parts) {
    auto const& bytes = results[rank];
    if (bytes.empty()) continue;
    std::memcpy(part.recv, bytes.data(), bytes.size());
    if (FakeNccl::current().corrupts) static_cast<std::byte*>(part.recv)[0] ^= std::byte{0x11};
  }
}

/// A kernel that is stopped does not keep those of other ranks, which end with whatever they have.
void release(FakeNccl::Group::Meeting& meeting, int stopped) {
  std::map<int, std::size_t> bytes;
  for (auto const& [rank, part] : meeting.parts) bytes[rank] = result_of(meeting.parts, rank).size();
  for (auto const& [rank, part] : meeting.parts) {
    if (rank != stopped && bytes[rank] > 0) std::memset(part.recv, 0xdd, bytes[rank]);
  }
  meeting.done = true;
}

template <typename Ready>
bool wait(FakeNccl::Comm const& comm, std::unique_lock<std::mutex>& lock, std::atomic<bool> const& ending,
          Ready const& ready) {
  while (!ready()) {
    if (comm.stopped || ending) return false;
    comm.group->changed.wait_for(lock, std::chrono::milliseconds(5));
  }
  return true;
}

bool meet(FakeNccl::Comm& comm, std::uint64_t number, FakePart const& part, std::atomic<bool> const& ending) {
  auto& group = *comm.group;
  std::unique_lock lock(group.mutex);
  auto& meeting = group.meetings[number];
  meeting.parts[comm.rank] = part;
  if (meeting.parts.size() == static_cast<std::size_t>(group.size)) {
    bool equal = true;
    for (auto const& [rank, other] : meeting.parts) equal = equal && same(part, other);
    meeting.runs = equal;
    if (equal && FakeNccl::current().take_ending()) {
      perform(meeting.parts);
      meeting.done = true;
      group.changed.notify_all();
    }
  }
  bool const met = wait(comm, lock, ending, [&] { return meeting.done; });
  if (met) return true;
  if (meeting.runs && !ending) release(meeting, comm.rank);
  meeting.runs = false;
  group.changed.notify_all();
  meeting.parts.erase(comm.rank);  // nobody touches its buffers any more
  return false;
}

}  // namespace

std::size_t size_of(ncclDataType_t type) noexcept {
  return weft::size_of(weft_type(type));
}

void run_parts(std::shared_ptr<FakeNccl::Comm> const& comm,
               std::vector<std::pair<std::uint64_t, FakePart>> const& parts, std::atomic<bool> const& ending) {
  if (comm->stopped) return;
  auto& group = *comm->group;
  for (auto const& [number, part] : parts) {
    if (part.op != FakeOp::send) continue;
    std::scoped_lock const lock(group.mutex);
    group.mail[{comm->rank, part.peer}].push_back(copy_of(part.send, part.count * size_of(part.type)));
    group.changed.notify_all();
  }
  for (auto const& [number, part] : parts) {
    if (part.op != FakeOp::send && part.op != FakeOp::recv && !meet(*comm, number, part, ending)) return;
  }
  for (auto const& [number, part] : parts) {
    if (part.op != FakeOp::recv) continue;
    std::unique_lock lock(group.mutex);
    auto& box = group.mail[{part.peer, comm->rank}];
    if (!wait(*comm, lock, ending, [&] { return !box.empty(); })) return;
    auto const letter = std::move(box.front());
    box.pop_front();
    if (letter.size() != part.count * size_of(part.type)) {
      static_cast<void>(wait(*comm, lock, ending, [] { return false; }));  // the receiver waits for the rest
      return;
    }
    if (!letter.empty()) std::memcpy(part.recv, letter.data(), letter.size());
  }
}

}  // namespace weft::test
