#include "collectives/messenger_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "weft/error.hpp"

namespace weft::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// Around what goes with the head, what fits a mailbox, and more.
constexpr std::size_t kSizes[] = {0, 1, 100, 2015, 2016, 2017, 5000, 70000, 400001};

struct Planned {
  int from = 0;
  int to = 0;
  int tag = 0;
  int number = 0;
  std::size_t size = 0;
};

/// The same on every rank.
std::vector<Planned> make_plan(unsigned seed, int ranks, int messages) {
  std::mt19937 engine(seed);
  auto const pick = [&](int below) { return static_cast<int>(engine() % static_cast<unsigned>(below)); };
  std::vector<Planned> plan;
  for (int i = 0; i < messages; ++i) {
    plan.push_back({pick(ranks), pick(ranks), pick(3), i, kSizes[static_cast<std::size_t>(pick(std::size(kSizes)))]});
  }
  return plan;
}

void require(bool condition, std::string const& what) {
  if (!condition) throw std::runtime_error(what);
}

void require_content(Communicator const& world, Planned const& expected, Bytes const& got) {
  require(got == message_content(expected.from, expected.number, expected.size),
          fmt::format("rank {}: message {} from {} with tag {}, {} bytes, is another", world.rank(), expected.number,
                      expected.from, expected.tag, expected.size));
}

}  // namespace

Bytes message_content(int from, int number, std::size_t size) {
  std::mt19937 engine(static_cast<unsigned>(from * 7919 + number));
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(engine());
  return bytes;
}

void exchange_tagged(Communicator& world, unsigned seed) {
  auto const plan = make_plan(seed, world.size(), 60);
  auto const rank = world.rank();
  std::mt19937 engine(seed * 31 + static_cast<unsigned>(rank));
  std::map<std::pair<int, int>, std::vector<Planned>> coming;
  std::vector<Planned const*> sends;
  std::vector<std::pair<int, int>> receives;
  for (auto const& one : plan) {
    if (one.from == rank) sends.push_back(&one);
    if (one.to != rank) continue;
    coming[{one.from, one.tag}].push_back(one);
    receives.emplace_back(one.from, one.tag);
  }
  std::shuffle(receives.begin(), receives.end(), engine);
  std::vector<Bytes> sent;
  std::vector<std::pair<Planned, Bytes>> received;
  sent.reserve(plan.size());
  received.reserve(plan.size());
  std::vector<Messenger::Request> requests;
  Messenger messenger(world);
  std::map<std::pair<int, int>, std::size_t> taken;
  for (std::size_t s = 0, r = 0; s < sends.size() || r < receives.size();) {
    if (s < sends.size() && (r == receives.size() || engine() % 2 == 0)) {
      auto const& one = *sends[s++];
      sent.push_back(message_content(one.from, one.number, one.size));
      requests.push_back(messenger.send(std::span(sent.back()), one.to, one.tag));
    } else {
      auto const key = receives[r++];
      auto const& expected = coming[key][taken[key]++];
      received.emplace_back(expected, Bytes(expected.size));
      requests.push_back(messenger.receive(std::span(received.back().second), key.first, key.second));
    }
  }
  std::shuffle(requests.begin(), requests.end(), engine);
  for (auto const& request : requests) request.wait();
  for (auto const& [expected, got] : received) require_content(world, expected, got);
  world.barrier();
}

void gather_from_any(Communicator& world, unsigned seed) {
  constexpr int kEach = 12;
  constexpr int kTag = 5;
  auto const size_of_number = [](int number) { return kSizes[static_cast<std::size_t>(number) % std::size(kSizes)]; };
  Messenger messenger(world);
  if (world.rank() != 0) {
    std::mt19937 engine(seed + static_cast<unsigned>(world.rank()));
    for (int i = 0; i < kEach; ++i) {
      if (engine() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(engine() % 300));
      auto const bytes = message_content(world.rank(), i, size_of_number(i));
      messenger.send(std::span(bytes), 0, kTag + i).wait();
    }
    world.barrier();
    return;
  }
  for (int i = 0; i < kEach; ++i) {
    std::vector<int> seen;
    for (int k = 1; k < world.size(); ++k) {
      Bytes got(size_of_number(i));
      auto const request = messenger.receive(std::span(got), Messenger::kAnyRank, kTag + i);
      request.wait();
      auto const from = request.source();
      require(from > 0 && from < world.size(), fmt::format("a message from rank {}", from));
      require_content(world, {from, 0, kTag + i, i, got.size()}, got);
      seen.push_back(from);
    }
    std::sort(seen.begin(), seen.end());
    require(std::adjacent_find(seen.begin(), seen.end()) == seen.end(), "two messages of one rank with a tag");
  }
  world.barrier();
}

void cross_long_messages(Communicator& world) {
  constexpr std::size_t kLong = 2'000'000;
  auto const ranks = static_cast<std::size_t>(world.size());
  Messenger messenger(world);
  auto const mine = message_content(world.rank(), 0, kLong);
  std::vector<Bytes> got(ranks, Bytes(kLong));
  std::vector<Messenger::Request> requests;
  for (int peer = 0; peer < world.size(); ++peer) {
    requests.push_back(messenger.send(std::span(mine), peer));
    requests.push_back(messenger.receive(std::span(got[static_cast<std::size_t>(peer)]), peer));
  }
  for (auto const& request : requests) request.wait();
  for (int peer = 0; peer < world.size(); ++peer) {
    require_content(world, {peer, world.rank(), 0, 0, kLong}, got[static_cast<std::size_t>(peer)]);
  }
  world.barrier();
}

void leave_in_the_background(Communicator& world) {
  constexpr std::size_t kLong = 3'000'000;
  auto const last = world.size() - 1;
  Messenger messenger(world);
  auto bytes = message_content(0, 0, kLong);
  if (world.rank() == 0) {
    auto const request = messenger.send(std::span(bytes), last, 9);
    world.barrier();  // which the last rank reaches with the message
    request.wait();
  } else if (world.rank() == last) {
    Bytes got(bytes.size());
    messenger.receive(std::span(got), 0, 9).wait();
    require_content(world, {0, last, 9, 0, kLong}, got);
    world.barrier();
  } else {
    world.barrier();
  }
  world.barrier();
}

void take_over_from_another(Communicator& world) {
  auto const right = (world.rank() + 1) % world.size();
  auto const left = (world.rank() + world.size() - 1) % world.size();
  for (int round = 0; round < 3; ++round) {
    {
      Bytes nothing(10);
      Messenger messenger(world);
      auto const pending = messenger.receive(std::span(nothing), Messenger::kAnyRank, 1);
      require(!pending.wait_for(std::chrono::milliseconds(3)), "a message that nobody sent");
    }
    world.barrier();
    auto const mine = message_content(world.rank(), round, 100);
    Bytes got(100);
    if (round == 1) {
      world.send_recv(std::span(mine), right, std::span(got), left);
    } else {
      Messenger messenger(world);
      auto const sent = messenger.send(std::span(mine), right);
      messenger.receive(std::span(got), left).wait();
      sent.wait();
    }
    require_content(world, {left, world.rank(), 0, round, 100}, got);
    world.barrier();
  }
}

void leave_later_messages_to_the_next(Communicator& world) {
  if (world.size() < 3) return;
  constexpr std::chrono::seconds kLimit{10};
  auto const rank = world.rank();
  auto const last = world.size() - 1;
  for (auto const& [first, later, size] :
       {std::tuple(last, 1, 100), std::tuple(last, 1, 5000), std::tuple(1, last, 9)}) {
    auto const mine = message_content(rank, 0, static_cast<std::size_t>(size));
    Bytes got(mine.size());
    std::optional<Messenger> messenger(world);
    // Only one rank sends, but whoever receives from any has to listen to all.
    if (rank == 0) messenger->receive(std::span(got), Messenger::kAnyRank).wait();
    if (rank == first) messenger->send(std::span(mine), 0).wait();
    world.barrier();
    std::optional<Messenger::Request> sent;
    if (rank == later) sent = messenger->send(std::span(mine), 0, 1);
    for (int i = 0; i < 3; ++i) world.barrier();  // the beginning at least has come
    if (rank == 0) {
      messenger.reset();
      messenger.emplace(world);
      require(messenger->receive(std::span(got), later, 1).wait_for(kLimit), "a message got lost between messengers");
      require_content(world, {later, 0, 1, 0, got.size()}, got);
    }
    if (sent) sent->wait();
    world.barrier();
  }
}

void drop_what_does_not_fit(Communicator& world) {
  auto const last = world.size() - 1;
  for (std::size_t const size : {std::size_t{10}, std::size_t{500'000}}) {
    Messenger messenger(world);
    std::vector<float> values(size, 1.0F);
    std::vector<float> after(3, 2.0F);
    if (world.rank() == 0) {
      auto const first = messenger.send(std::span(values), last, 4);
      messenger.send(std::span(after), last, 4).wait();
      first.wait();
    } else if (world.rank() == last) {
      try {
        messenger.receive(std::span(values).first(7), 0, 4).wait();
        throw std::runtime_error("noticed nothing");
      } catch (Error const& error) {
        require(error.code() == ErrorCode::mismatch, error.what());
        require(std::string(error.what()).find("from rank 0 with tag 4") != std::string::npos, error.what());
      }
      std::vector<float> got(3);
      messenger.receive(std::span(got), 0, 4).wait();
      require(got == after, "what came after the message that did not fit");
    }
    world.barrier();
  }
}

}  // namespace weft::test
