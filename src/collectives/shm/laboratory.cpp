#include "collectives/shm/laboratory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/shm/staging_ring.hpp"

namespace weft::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCallsPerRound = 4;
/// A call of this many bytes takes much longer than reading the clock and the ranks' coming together.
constexpr std::size_t kLongCall = std::size_t{512} << 10;
/// Calls of so many bytes are made twice, or once, because there is little time.
constexpr std::size_t kCalledTwice = std::size_t{1} << 20;
constexpr std::size_t kCalledOnce = std::size_t{4} << 20;
/// Calls that time_line() times together.
constexpr int kLineCalls = 100;

int calls_per_round(Experiment const& one) noexcept {
  return one.bytes >= kCalledOnce ? 1 : one.bytes >= kCalledTwice ? 2 : kCallsPerRound;
}

/// Calls made before those that count, because they meet buffers as other experiments have left them, and the kernel
/// reaches its full speed with a process's pages only in its third copy, or later.
int calls_before(Experiment const& one) noexcept {
  if (one.bytes >= kCalledOnce) return 0;
  return is_symmetric(one.place) ? 1 : 4;
}

/// Null where there is no memory left.
std::shared_ptr<void> private_memory(std::size_t bytes) {
  std::shared_ptr<void> memory(std::aligned_alloc(kLine, bytes / kLine * kLine), std::free);
  if (memory != nullptr) std::memset(memory.get(), 0, bytes / kLine * kLine);
  return memory;
}

}  // namespace

Laboratory::Laboratory(ShmBackend& backend, std::size_t symmetric_bytes, std::size_t feed_bytes,
                       std::chrono::milliseconds timeout)
    : backend_(backend),
      feed_bytes_(feed_bytes),
      timeout_(timeout),
      symmetric_{allocate(symmetric_bytes), allocate(symmetric_bytes)} {}

bool Laboratory::get_private(std::size_t bytes) {
  if (bytes <= private_bytes_) return true;
  private_ = {};
  idle_.clear();
  private_ = {private_memory(bytes), private_memory(bytes)};
  std::uint8_t missing = private_.send == nullptr || private_.recv == nullptr ? 1 : 0;
  auto call = next(Operation::all_reduce, 1, DataType::u8);
  call.send = call.recv = &missing;
  backend_.all_reduce(call);
  private_bytes_ = missing == 0 ? bytes : 0;
  return missing == 0;
}

bool Laboratory::agree(bool go_on) {
  std::uint8_t answer = go_on ? 1 : 0;
  auto call = next(Operation::broadcast, 1, DataType::u8);
  call.send = call.recv = &answer;
  backend_.broadcast(call);
  return answer == 1;
}

void Laboratory::time(Experiment& one) {
  if (one.algorithm == Algorithm::fed) go_round_feeds(one);
  if (one.bytes >= kLongCall) return time_long(one);
  one.loop_ns = std::min(one.loop_ns, time_loop(one, false));
  time_idle(one);
  one.call_ns = std::min(one.call_ns, time_calls(one, false).call_ns);
}

double Laboratory::time_synchronisation() {
  constexpr int kMeetings = 100;
  meet();
  auto const start = Clock::now();
  for (int i = 0; i < kMeetings; ++i) meet();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kMeetings;
}

double Laboratory::time_line() {
  auto const call = [&] {
    auto one = next(Operation::all_reduce, 2, DataType::f32);
    one.send = one.recv = symmetric_.send.get();
    backend_.all_reduce(one);
  };
  std::memset(symmetric_.send.get(), 0, kLine);
  meet();
  auto const start = Clock::now();
  for (int i = 0; i < kLineCalls; ++i) call();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kLineCalls;
}

/// Brings the feeds' places back into the caches, where a program that makes one call after another finds them. Feeds
/// hold more than L2 does, and more than the timed calls pass through them, so what else was timed since has pushed the
/// places out.
void Laboratory::go_round_feeds(Experiment const& one) {
  auto const whole = one.collective == Collective::broadcast || one.collective == Collective::reduce;
  auto const given = whole ? one.bytes : part_of(one);
  for (std::size_t passed = 0; passed < feed_bytes_; passed += given) run(one);
}

/// Nanoseconds of one write, call and read; without the call when `idle`. The first round is not counted: it meets
/// lines as another experiment has left them.
double Laboratory::time_loop(Experiment const& one, bool idle) {
  auto const calls = calls_per_round(one);
  auto* const send = buffers_of(one).send.get();
  auto const extent = extent_of(one);
  auto const step = [&](int i) {
    write(send, extent.sent, i);
    if (!idle) run(one);
    read(result_of(one), extent.received);
  };
  step(0);
  meet();
  auto const start = Clock::now();
  for (int i = 1; i <= calls; ++i) step(i);
  meet();  // a broadcast's root is done before the others
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / calls;
}

/// Nanoseconds of the loop with a clock in it (without the call when `idle`), and of the call alone until all ranks are
/// done. The best round counts.
Laboratory::Times Laboratory::time_calls(Experiment const& one, bool idle) {
  auto best = Times{Experiment::kUnknown, Experiment::kUnknown};
  auto const since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  };
  auto const before = calls_before(one);
  auto const extent = extent_of(one);
  for (int i = 0; i < before + calls_per_round(one); ++i) {
    meet();
    auto const start = Clock::now();
    write(buffers_of(one).send.get(), extent.sent, i);
    meet();
    auto const begin = Clock::now();
    if (!idle) run(one);
    meet();
    auto const call_ns = since(begin);
    read(result_of(one), extent.received);
    meet();
    if (i < before) continue;
    best.call_ns = std::min(best.call_ns, call_ns);
    best.loop_ns = std::min(best.loop_ns, since(start));
  }
  return best;
}

/// Times the loop without the call. It is the same for all algorithms of a collective, and is timed as often as the one
/// timed most, so that a machine that is faster for a while is so for both.
void Laboratory::time_idle(Experiment& one) {
  auto& idle = idle_[{one.collective, one.bytes, one.place}];
  if (idle.times >= ++one.times || (idle.times > 0 && calls_before(one) > 1)) return;
  ++idle.times;
  idle.ns = std::min(idle.ns, one.bytes >= kLongCall ? time_calls(one, true).loop_ns : time_loop(one, true));
}

Sample Laboratory::loop(Experiment const& one, double synchronisation_ns) const noexcept {
  auto const idle = idle_.find({one.collective, one.bytes, one.place});
  return {one.bytes, std::max(one.loop_ns - (idle != idle_.end() ? idle->second.ns : 0), synchronisation_ns)};
}

/// For calls so long that the clock within the loop does not matter. Takes half the time of timing loop and call apart.
void Laboratory::time_long(Experiment& one) {
  time_idle(one);
  auto const times = time_calls(one, false);
  one.loop_ns = std::min(one.loop_ns, times.loop_ns);
  one.call_ns = std::min(one.call_ns, times.call_ns);
}

void Laboratory::meet() {
  backend_.barrier(next(Operation::barrier, 0, DataType::u8));
}

Call Laboratory::next(Operation operation, std::size_t count, DataType dtype) {
  Call call;
  call.contract = {.count = count, .operation = operation, .dtype = dtype};
  call.sequence = ++calls_;
  call.timeout = timeout_;
  return call;
}

std::shared_ptr<void> Laboratory::allocate(std::size_t bytes) {
  auto memory = backend_.allocate(next(Operation::allocate, bytes, DataType::u8));
  std::memset(memory.get(), 0, bytes);
  return memory;
}

Laboratory::Buffers const& Laboratory::buffers_of(Experiment const& one) const noexcept {
  return is_symmetric(one.place) ? symmetric_ : private_;
}

/// In place only where that is asked for; shards, where there are any, are their ranks' parts of a buffer.
void* Laboratory::result_of(Experiment const& one) const noexcept {
  auto const& buffers = buffers_of(one);
  auto const in_place = one.place == Place::in_place || one.collective == Collective::broadcast;
  return in_place ? buffers.send.get() : buffers.recv.get();
}

/// A rank writes only what it sends: other lines that it wrote would be its own, and a peer would then have to take
/// them from it.
Laboratory::Extent Laboratory::extent_of(Experiment const& one) const noexcept {
  auto const whole = one.bytes;
  auto const part = part_of(one);
  auto const of_root = backend_.rank() == 0 ? whole : 0;
  switch (one.collective) {
    case Collective::reduce_scatter: return {whole, part};
    case Collective::all_gather: return {part, whole};
    case Collective::broadcast: return {of_root, whole};
    case Collective::reduce: return {whole, of_root};
    case Collective::gather: return {part, of_root};
    case Collective::scatter: return {of_root, part};
    default: return {whole, whole};
  }
}

std::size_t Laboratory::part_of(Experiment const& one) const noexcept {
  return one.bytes / static_cast<std::size_t>(backend_.size()) / kLine * kLine;
}

void Laboratory::run(Experiment const& one) {
  auto const part = part_of(one);
  auto const elements = one.bytes / sizeof(float);
  auto const part_elements = part / sizeof(float);
  auto* const send = buffers_of(one).send.get();
  auto call = next(Operation::all_reduce, elements, DataType::f32);
  call.send = send;
  call.recv = result_of(one);
  auto const in_parts = [&](Operation operation) -> Call& {
    call.contract.operation = operation;
    call.contract.count = part_elements;
    return call;
  };
  switch (one.collective) {
    case Collective::reduce_scatter: return backend_.reduce_scatter(in_parts(Operation::reduce_scatter));
    case Collective::all_gather: return backend_.all_gather(in_parts(Operation::all_gather));
    case Collective::broadcast: call.contract.operation = Operation::broadcast; return backend_.broadcast(call);
    case Collective::reduce: call.contract.operation = Operation::reduce; return backend_.reduce(call);
    case Collective::gather: return backend_.gather(in_parts(Operation::gather));
    case Collective::scatter: return backend_.scatter(in_parts(Operation::scatter));
    case Collective::pull: return backend_.all_to_all(in_parts(Operation::all_to_all));
    default: return backend_.all_reduce(call);
  }
}

/// Writes by plain stores, as kernels do. memset() may use string instructions, which take lines from peers without
/// their contents, and so hide what it costs to write lines again that a peer has read.
void Laboratory::write(void* data, std::size_t bytes, int value) noexcept {
  auto* const words = static_cast<std::uint64_t*>(data);
  constexpr std::uint64_t kOnes = 0x3f800000'3f800000;  // two floats; sums of tiny ones may take longer
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) words[i] = kOnes + static_cast<std::uint64_t>(value);
  asm volatile("" : : "r"(words) : "memory");
}

void Laboratory::read(void const* data, std::size_t bytes) noexcept {
  auto const* const words = static_cast<std::uint64_t const*>(data);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) sum_ += words[i];
  asm volatile("" : : "r"(sum_));  // keeps the reads, though nobody wants to know the sum
}

}  // namespace weft::shm
