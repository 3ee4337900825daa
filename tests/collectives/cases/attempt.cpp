#include "collectives/cases/attempt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "collectives/cases/serial.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::size_t kMostShift = 50;  // elements

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 31U)) * 0x7fb5d329728ea185U;
  value = (value ^ (value >> 27U)) * 0x81dadef4bc2dd44dU;
  return value ^ (value >> 33U);
}

/// The most elements any rank's view has.
std::size_t most_elements(Case const& one) {
  std::size_t most = 0;
  for (int rank = 0; rank < one.ranks; ++rank) {
    auto const layout = layout_of(one, rank);
    most = std::max({most, layout.send, layout.recv});
  }
  return most;
}

}  // namespace

Arena::Arena(Communicator& communicator, std::size_t areas, std::size_t area_bytes, Device device)
    : memory_(communicator.allocate(areas * area_bytes, DataType::u8, device)), area_bytes_(area_bytes) {}

Attempt::Attempt(Communicator& communicator, Case const& one, Arena& arena, std::size_t first_area, bool in_any_order)
    : communicator_(communicator),
      one_(one),
      in_any_order_(in_any_order),
      layout_(layout_of(one, communicator.rank())),
      contributions_(one) {
  auto const most = most_elements(one);
  auto const whole = layout_.place ? std::max(layout_.send, layout_.recv) : layout_.send;
  send_region_ = place(arena, first_area, whole, most);
  if (!layout_.place || one.memory == Memory::fresh) recv_region_ = place(arena, first_area + 1, layout_.recv, most);
  send_ = send_region_.view;
  recv_ = recv_region_.view;
  if (layout_.place) {
    auto const inside = layout_.send_inside ? layout_.send : layout_.recv;
    (layout_.send_inside ? recv_ : send_) = send_region_.view;
    (layout_.send_inside ? send_ : recv_) = send_region_.view.slice(*layout_.place, inside);
  }
  fill(1, send_region_);
  fill(2, recv_region_);
  if (send_.count > 0) {
    contributions_.write(communicator.rank(), 0, send_.count, static_cast<std::byte*>(send_.data));
  }
  for (auto* region : {&send_region_, &recv_region_})
    region->before.assign(region->begin, region->begin + region->before.size());
}

Attempt::Region Attempt::place(Arena& arena, std::size_t area, std::size_t count, std::size_t most) {
  auto const element = size_of(one_.dtype);
  auto const rank = static_cast<std::uint64_t>(communicator_.rank());
  auto memory = one_.memory;
  if (memory == Memory::mixed) memory = mix(one_.seed + rank) % 2 == 0 ? Memory::own : Memory::shifted;
  auto const ours = mix(one_.seed + area) % kMostShift;
  auto shift = memory == Memory::symmetric ? 0 : ours;
  if (memory == Memory::scattered) shift = mix(one_.seed + area + rank * 97) % kMostShift;
  auto const bytes = [&](std::size_t elements) { return 2 * kGuard + (kMostShift + elements) * element; };
  Region region;
  if (memory == Memory::fresh) {
    auto buffer = std::make_shared<Buffer>(communicator_.allocate(bytes(most), DataType::u8, arena.device()));
    region.begin = static_cast<std::byte*>(buffer->data());
    region.owner = buffer;
  } else if (memory == Memory::own || bytes(most) > arena.area_bytes()) {
    auto buffer = std::make_shared<Buffer>(Buffer::host(bytes(count), DataType::u8));
    region.begin = static_cast<std::byte*>(buffer->data());
    region.owner = buffer;
  } else {
    region.begin = arena.area(area);
  }
  region.before.resize(bytes(count));
  region.view = {region.begin + kGuard + shift * element, count, one_.dtype, arena.device()};
  return region;
}

void Attempt::fill(std::size_t salt, Region& region) const {
  for (std::size_t i = 0; i < region.before.size(); ++i)
    region.begin[i] = static_cast<std::byte>((i * 31 + salt * 0x5b + one_.seed) & 0xffU);
}

void Attempt::issue(CollectiveOptions const& options) {
  auto& world = communicator_;
  auto const how = one_.how(world.rank());
  auto const parts = [](std::optional<Division> const& division) { return division ? division->parts() : Parts{}; };
  auto const sends = parts(layout_.sends);
  auto const recvs = parts(layout_.recvs);
  auto const& to = one_.receivers;
  auto const next = to[static_cast<std::size_t>(world.rank())];
  auto const before = static_cast<int>(std::find(to.begin(), to.end(), world.rank()) - to.begin());
  auto const keep = [&](Work work) { works_.push_back(std::move(work)); };
  switch (one_.kind) {
    case Kind::all_reduce: return keep(world.all_reduce(send_, recv_, how, options));
    case Kind::reduce: return keep(world.reduce(send_, recv_, how, one_.root, options));
    case Kind::reduce_scatter: return keep(world.reduce_scatter(send_, recv_, how, options));
    case Kind::reduce_scatter_v: return keep(world.reduce_scatter(send_, recv_, sends, how, options));
    case Kind::scan: return keep(world.scan(send_, recv_, how, options));
    case Kind::exscan: return keep(world.exscan(send_, recv_, how, options));
    case Kind::all_gather: return keep(world.all_gather(send_, recv_, options));
    case Kind::all_gather_v: return keep(world.all_gather(send_, recv_, recvs, options));
    case Kind::broadcast: return keep(world.broadcast(send_, one_.root, options));
    case Kind::gather: return keep(world.gather(send_, recv_, one_.root, options));
    case Kind::gather_v: return keep(world.gather(send_, recv_, recvs, one_.root, options));
    case Kind::scatter: return keep(world.scatter(send_, recv_, one_.root, options));
    case Kind::scatter_v: return keep(world.scatter(send_, sends, recv_, one_.root, options));
    case Kind::all_to_all: return keep(world.all_to_all(send_, recv_, options));
    case Kind::all_to_all_v: return keep(world.all_to_all(send_, sends, recv_, recvs, options));
    case Kind::send_recv: return keep(world.send_recv(send_, next, recv_, before, options));
    case Kind::message:
      if (to[static_cast<std::size_t>(one_.root)] == one_.root) {
        return keep(world.send_recv(send_, next, recv_, before, options));
      }
      if (world.rank() == one_.root) return keep(world.send(send_, next, options));
      if (before == one_.root) return keep(world.recv(recv_, before, options));
  }
}

void Attempt::finish() {
  for (auto const& work : works_) work.wait();
  works_.clear();
  check_recv(layout_.place ? send_region_ : recv_region_, recv_);
  check_rest("send", send_region_);
  check_rest("recv", recv_region_);
}

/// Notes what the pieces hold, once it is found right, as what has to be there.
void Attempt::check_recv(Region& region, BufferView const& recv) const {
  auto const element = size_of(one_.dtype);
  auto const accept = [&](BufferView const& view) {
    auto const* const bytes = static_cast<std::byte const*>(view.data);
    std::copy(bytes, bytes + view.bytes(), region.before.begin() + (bytes - region.begin));
  };
  for (auto const& piece : layout_.pieces) {
    if (piece.count == 0) continue;
    auto const view = recv.slice(piece.at, piece.count);
    auto const find = in_any_order_ ? find_deviation : find_difference;
    auto const difference = find(one_, contributions_, piece, static_cast<std::byte const*>(view.data));
    if (difference) fail(fmt::format("recv from element {}, {} elements: {}", piece.at, piece.count, *difference));
    accept(view);
  }
  if (layout_.spoils_send && send_.count * element > 0) accept(send_);
}

void Attempt::check_rest(char const* name, Region const& region) const {
  auto const differs = std::mismatch(region.before.begin(), region.before.end(), region.begin).first;
  if (differs == region.before.end()) return;
  auto const start = static_cast<std::byte const*>(region.view.data) - region.begin;
  fail(fmt::format("byte {} of {}'s memory, which has {}, was written, which nobody asked for",
                   differs - region.before.begin() - start, name, region.view.bytes()));
}

std::vector<std::byte> Attempt::result() const {
  std::vector<std::byte> all;
  for (auto const& piece : layout_.pieces) {
    auto const view = recv_.slice(piece.at, piece.count);
    auto const* const bytes = static_cast<std::byte const*>(view.data);
    all.insert(all.end(), bytes, bytes + view.bytes());
  }
  return all;
}

void Attempt::fail(std::string const& what) const {
  throw std::runtime_error(fmt::format("rank {}: {}: {}", communicator_.rank(), one_.describe(), what));
}

}  // namespace weft::test
