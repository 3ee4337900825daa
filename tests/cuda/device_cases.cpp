#include "cuda/device_cases.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "weft/cuda.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

/// A call with room for what every rank may send or receive.
struct DeviceCase {
  std::string name;
  std::function<Work(Communicator&, BufferView send, BufferView recv, CollectiveOptions const&)> call;
};

/// Parts of 0, n, 2n, … elements for the ranks, from the one after `first` on.
struct Shares {
  std::vector<std::size_t> counts;

  Shares(int ranks, std::size_t n, int first) {
    for (int rank = 0; rank < ranks; ++rank) counts.push_back(n * static_cast<std::size_t>((rank + first) % ranks));
  }
  [[nodiscard]] std::size_t of(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t all() const { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }
};

std::vector<DeviceCase> equal_cases(std::size_t n, int ranks) {
  auto const all = n * static_cast<std::size_t>(ranks);
  int const last = ranks - 1;
  return {
      {"all_reduce",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.all_reduce(send.slice(0, n), recv.slice(0, n), ReduceOp::sum, how);
       }},
      {"all_reduce in place",
       [=](Communicator& world, BufferView, BufferView recv, CollectiveOptions const& how) {
         return world.all_reduce(recv.slice(0, n), recv.slice(0, n), ReduceOp::max, how);
       }},
      {"reduce",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.reduce(send.slice(0, n), recv.slice(0, n), ReduceOp::prod, last, how);
       }},
      {"reduce_scatter",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.reduce_scatter(send.slice(0, all), recv.slice(0, n), ReduceOp::min, how);
       }},
      {"all_gather",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.all_gather(send.slice(0, n), recv.slice(0, all), how);
       }},
      {"broadcast", [=](Communicator& world, BufferView, BufferView recv,
                        CollectiveOptions const& how) { return world.broadcast(recv.slice(0, n), last, how); }},
      {"gather",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.gather(send.slice(0, n), recv.slice(0, all), 0, how);
       }},
      {"scatter",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.scatter(send.slice(0, all), recv.slice(0, n), last, how);
       }},
      {"all_to_all",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.all_to_all(send.slice(0, all), recv.slice(0, all), how);
       }},
      {"all_to_all in place",
       [=](Communicator& world, BufferView, BufferView recv, CollectiveOptions const& how) {
         return world.all_to_all(recv.slice(0, all), recv.slice(0, all), how);
       }},
      {"send_recv",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         if (ranks == 1) return Work();
         auto const rank = world.rank();
         return world.send_recv(send.slice(0, n), (rank + 1) % ranks, recv.slice(0, n), (rank + ranks - 1) % ranks,
                                how);
       }},
  };
}

std::vector<DeviceCase> unequal_cases(std::size_t n, int ranks) {
  auto const shares = Shares(ranks, n, 1);
  return {
      {"all_gather of parts",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.all_gather(send.slice(0, shares.of(world.rank())), recv.slice(0, shares.all()),
                                 {shares.counts, {}}, how);
       }},
      {"reduce_scatter of parts",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.reduce_scatter(send.slice(0, shares.all()), recv.slice(0, shares.of(world.rank())),
                                     {shares.counts, {}}, ReduceOp::sum, how);
       }},
      {"gather of parts",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.gather(send.slice(0, shares.of(world.rank())), recv.slice(0, shares.all()), {shares.counts, {}},
                             0, how);
       }},
      {"scatter of parts",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         return world.scatter(send.slice(0, shares.all()), {shares.counts, {}}, recv.slice(0, shares.of(world.rank())),
                              0, how);
       }},
      {"all_to_all of parts",
       [=](Communicator& world, BufferView send, BufferView recv, CollectiveOptions const& how) {
         // Rank a gives rank b n·((a + b) mod ranks) elements.
         auto const mine = Shares(ranks, n, world.rank());
         return world.all_to_all(send.slice(0, mine.all()), {mine.counts, {}}, recv.slice(0, mine.all()),
                                 {mine.counts, {}}, how);
       }},
  };
}

/// Buffers of one rank on both devices, with the same whole numbers in both.
class Twins {
 public:
  Twins(Communicator& world, std::size_t elements, Device device, Stream const& stream, bool registered)
      : stream_(stream), host_(make(elements, [&] { return Buffer::host(elements, DataType::i32); })) {
    device_ = make(elements, [&] {
      return registered ? world.allocate(elements, DataType::i32, device)
                        : cuda::allocate(elements, DataType::i32, device.index);
    });
  }

  void fill(std::uint32_t seed) {
    std::mt19937 random(seed);
    for (auto* const buffer : {&host_.send, &host_.recv}) {
      for (auto& value : buffer->as<std::int32_t>()) value = static_cast<std::int32_t>(random() % 5) + 1;
    }
    cuda::copy(device_.send.view(), host_.send.view(), stream_);
    cuda::copy(device_.recv.view(), host_.recv.view(), stream_);
    stream_.synchronize();  // the call on host memory changes it
  }
  void run(DeviceCase const& one, Communicator& world, bool grouped) {
    one.call(world, host_.send.view(), host_.recv.view(), {}).wait();
    if (!grouped) {
      static_cast<void>(one.call(world, device_.send.view(), device_.recv.view(), {.stream = stream_}));
      return;
    }
    Group group(world, {.stream = stream_});
    static_cast<void>(one.call(world, device_.send.view(), device_.recv.view(), {}));
    static_cast<void>(group.end());
  }
  [[nodiscard]] bool are_equal() {
    auto found = Buffer::host(host_.recv.view().count, DataType::i32);
    cuda::copy(found.view(), device_.recv.view(), stream_);
    stream_.synchronize();
    return std::memcmp(found.data(), host_.recv.data(), found.view().bytes()) == 0;
  }

 private:
  struct Pair {
    Buffer send;
    Buffer recv;
  };
  template <typename Make>
  static Pair make(std::size_t /*elements*/, Make const& one) {
    auto send = one();
    return {std::move(send), one()};
  }

  Stream stream_;
  Pair host_;
  Pair device_;
};

void expect_equal(Communicator& world, Device device, Stream const& stream, std::size_t n, bool registered) {
  auto const ranks = world.size();
  auto cases = equal_cases(n, ranks);
  for (auto& one : unequal_cases(n, ranks)) cases.push_back(std::move(one));
  auto const room = std::max<std::size_t>(1, n * static_cast<std::size_t>(ranks * ranks));
  Twins twins(world, room, device, stream, registered);
  std::uint32_t seed = static_cast<std::uint32_t>(17 * n + 1);
  for (bool const grouped : {false, true}) {
    for (auto const& one : cases) {
      twins.fill(100 * ++seed + static_cast<std::uint32_t>(world.rank()));
      twins.run(one, world, grouped);
      EXPECT_TRUE(twins.are_equal()) << one.name << " of " << n << " on rank " << world.rank() << " of " << ranks
                                     << (grouped ? ", in a group" : "") << (registered ? ", registered" : "");
    }
  }
}

}  // namespace

void expect_as_on_host(Communicator& world, Device device) {
  Stream const stream = cuda::make_stream({.device = device.index, .high_priority = true});
  for (std::size_t const n : {std::size_t{0}, std::size_t{1}, std::size_t{1031}})
    expect_equal(world, device, stream, n, false);
  expect_equal(world, device, stream, 4099, true);
  auto half = world.split(world.rank() % 2, -world.rank());
  expect_equal(*half, device, stream, 257, false);
}

}  // namespace weft::test
