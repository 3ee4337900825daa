// Calls in which every rank writes its parts directly to their destination in other ranks' windows. Once the call is
// announced all ranks have begun it, so no rank uses its result buffer any more; a second announcement says that
// everything has been written. Bytes sent per rank, with parts of b bytes: all_gather and all_to_all (n − 1)·b, gather
// b, the root of a scatter (n − 1)·b. Takes about 2α (the part, and the confirmation that it has arrived) plus the time
// of the bytes, and ⌈log2 n⌉·α for each announcement.
#include <algorithm>
#include <cstring>
#include <deque>
#include <span>

#include "collectives/ucx/ucx_backend.hpp"

namespace weft::ucx {
namespace {

using p2p::at;

/// Shorter parts are sent as eager messages instead.
constexpr std::size_t kLeastPut = Worker::kMostEager + 1;

/// Puts under way. The destructor abandons those that are not done.
class Puts {
 public:
  explicit Puts(Channel& channel) : channel_(channel) {}
  Puts(Puts const&) = delete;
  Puts& operator=(Puts const&) = delete;
  ~Puts() {
    std::vector<Pending*> left;
    for (auto& each : under_way_) {
      if (!each.is_done()) left.push_back(&each);
    }
    if (!left.empty()) channel_.worker().abandon(left);
  }

  [[nodiscard]] Pending& next() { return under_way_.emplace_back(); }
  void wait_all(Purpose const& purpose) {
    for (auto const& each : under_way_) static_cast<void>(channel_.wait(purpose, each));
  }

 private:
  Channel& channel_;
  std::deque<Pending> under_way_;  // stable addresses
};

bool has_root(Operation operation) noexcept {
  return operation == Operation::gather || operation == Operation::scatter;
}

/// Whether `rank` gets something from other ranks.
bool receives(Call const& call, int rank) noexcept {
  return !has_root(call.contract.operation) || call.is_root(rank) == (call.contract.operation == Operation::gather);
}

}  // namespace

bool UcxBackend::wants_puts(Call const& call) const noexcept {
  switch (call.contract.operation) {
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter: return size() > 1 && call.bytes() >= kLeastPut && windows_->has_any();
    default: return false;
  }
}

Windows::Place UcxBackend::place_of_results(Call const& call) const noexcept {
  auto const operation = call.contract.operation;
  if (!receives(call, rank())) return {};
  if (operation == Operation::all_to_all && call.recv == call.send) return {};  // others would overwrite unsent data
  return windows_->find(call.recv, call.bytes() * (operation == Operation::scatter ? 1 : ranks()));
}

bool UcxBackend::run_puts(Call const& call, Purpose const& purpose) {
  auto const mine = place_of_results(call);
  announcer_.exchange(purpose, call, &mine, sizeof mine);
  std::vector<Windows::Place> places(ranks());
  for (int peer = 0; peer < size(); ++peer) {
    auto& place = places[static_cast<std::size_t>(peer)];
    std::memcpy(&place, announcer_.block_of(peer), sizeof place);
    if (receives(call, peer) && place.window == Windows::Place::kNone) return false;
  }
  explain(call, "puts", [] { return "ranks write to one another's symmetric memory"; });

  auto const bytes = call.bytes();
  auto const scatters = call.contract.operation == Operation::scatter;
  auto const has_parts = scatters || call.contract.operation == Operation::all_to_all;  // a different one for each rank
  auto const source = [&](int to) { return at(call.send, has_parts ? static_cast<std::size_t>(to) * bytes : 0); };
  auto const offset = scatters ? 0 : static_cast<std::size_t>(rank()) * bytes;
  auto const gives = !scatters || call.is_root(rank());
  Puts puts(channel_);
  for (int distance = 1; gives && distance < size(); ++distance) {
    auto const to = (rank() + distance) % size();
    if (!receives(call, to)) continue;
    auto place = places[static_cast<std::size_t>(to)];
    place.offset += offset;
    windows_->start_put(puts.next(), to, {source(to), bytes}, place);
    channel_.worker().start_flush(puts.next(), to);
  }
  auto const keeps = !has_root(call.contract.operation) || call.is_root(rank());
  if (keeps && at(call.recv, offset) != source(rank())) std::memmove(at(call.recv, offset), source(rank()), bytes);
  puts.wait_all(purpose);
  auto closing = call;
  closing.met = nullptr;  // the first announcement has set it
  announcer_.announce(purpose, closing);
  return true;
}

void UcxBackend::gather(void const* send, void* recv, std::size_t bytes) {
  Call call;
  call.contract = {.count = bytes, .operation = Operation::all_gather, .dtype = DataType::u8};
  call.send = send;
  call.recv = recv;
  p2p::run(*p2p::find_algorithm(Operation::all_gather, "bruck"), transport_, call);
}

std::shared_ptr<void> UcxBackend::make_window(std::shared_ptr<void> memory, std::size_t bytes) {
  auto const key = windows_->begin(std::move(memory), bytes);
  auto const keys = share_keys(key.value_or(Windows::Key{}));
  auto hold = windows_->complete(keys);
  if (keys.empty()) return hold;
  std::uint8_t const reaches = windows_->reaches_latest() ? 1 : 0;
  std::vector<std::uint8_t> all(ranks());
  gather(&reaches, all.data(), 1);
  if (std::find(all.begin(), all.end(), 0) != all.end()) windows_->disuse_latest();
  return hold;
}

std::vector<Windows::Key> UcxBackend::share_keys(Windows::Key const& mine) {
  struct Header {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
  };
  Header const header{mine.address, mine.packed.size()};
  std::vector<Header> headers(ranks());
  gather(&header, headers.data(), sizeof header);
  std::size_t longest = 0;
  for (auto const& each : headers) {
    if (each.length == 0) return {};
    longest = std::max<std::size_t>(longest, each.length);
  }
  auto padded = mine.packed;
  padded.resize(longest);
  std::vector<std::byte> all(longest * ranks());
  gather(padded.data(), all.data(), longest);
  std::vector<Windows::Key> keys;
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    auto const begin = all.begin() + static_cast<std::ptrdiff_t>(rank * longest);
    keys.push_back({headers[rank].address, {begin, begin + static_cast<std::ptrdiff_t>(headers[rank].length)}});
  }
  return keys;
}

}  // namespace weft::ucx
