#include "collectives/mpi_probe/failures.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace weft::test {

using std::chrono::milliseconds;

namespace {

/// Bytes of address space that this process has.
std::size_t address_space() {
  std::ifstream sizes("/proc/self/statm");
  std::size_t pages = 0;
  sizes >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void mismatch(Job const& job) {
  auto world = job.create();
  std::vector<float> send(1000, 1);
  std::vector<float> recv(1000);
  auto const odd = world.rank() == world.size() - 1;
  auto const all_reduce = [&](std::size_t count, ReduceOp op) {
    world.all_reduce(std::span<float const>(send).first(count), std::span(recv).first(count), op);
  };
  expect_error(ErrorCode::mismatch, "all_reduce(10 × f32, sum)", [&] { all_reduce(odd ? 11 : 10, ReduceOp::sum); });
  expect_error(ErrorCode::mismatch, "all_reduce(1000 × f32, max)",
               [&] { all_reduce(1000, odd ? ReduceOp::max : ReduceOp::sum); });
  expect_error(ErrorCode::mismatch, "barrier()", [&] { odd ? world.barrier().wait() : all_reduce(5, ReduceOp::sum); });
  expect_error(ErrorCode::mismatch, "root 1", [&] { world.broadcast(std::span(send), odd ? 1 : 0); });

  auto const ranks = static_cast<std::size_t>(world.size());
  std::vector<std::size_t> const gives(ranks, 3);
  std::vector<std::size_t> gets(ranks, 3);
  if (world.rank() == 1) gets[0] = 4;
  expect_error(ErrorCode::mismatch, "rank 0 gives rank 1 12 bytes, which expects 16", [&] {
    world.all_to_all(std::span<float const>(send).first(3 * ranks), {gives}, std::span(recv).first(4 * ranks), {gets});
  });

  // As much in all, cut differently; then more calls on one rank.
  auto const group_of = [&](std::vector<std::size_t> const& counts) {
    Group group(world);
    std::size_t first = 0;
    for (auto const count : counts) {
      auto const part = std::span(send).subspan(first, count);
      world.all_reduce(std::span<float const>(part), part, ReduceOp::sum);
      first += count;
    }
    group.end();
  };
  expect_error(ErrorCode::mismatch, "group of 2 all_reduce calls (20 × f32 in all, sum, sizes ", [&] {
    group_of({odd ? 9U : 10U, odd ? 11U : 10U});
  });
  expect_error(ErrorCode::mismatch, "group of 2 all_reduce calls (20 × f32 in all, sum)", [&] {
    odd ? group_of({10, 10, 10}) : group_of({10, 10});
  });
  require(all_reduce_one(world) == static_cast<float>(world.size()), "the communicator does not go on");
}

void timeout(Job const& job) {
  auto world = job.create();
  auto const late = world.size() - 1;
  world.barrier();
  auto const meet = [&] {
    std::byte const here{};
    (void)job.bootstrap->all_gather(std::span(&here, 1));
  };
  if (world.rank() == late) {
    meet();
    expect_error(ErrorCode::timeout, "rank", [&] { world.barrier(); });
  } else {
    auto const start = std::chrono::steady_clock::now();
    expect_error(ErrorCode::timeout, "rank " + std::to_string(late) + " did not complete barrier()",
                 [&] { world.barrier({.timeout = kImpatience}); });
    require(std::chrono::steady_clock::now() - start < kLate, "the timeout came late");
    meet();
  }
  expect_error(ErrorCode::timeout, "rank", [&] { all_reduce_one(world); });
}

void abort_from_a_thread(Job const& job) {
  auto world = job.create();
  world.barrier();
  std::thread aborter;
  if (world.rank() == 0) {
    aborter = std::thread([&] {
      std::this_thread::sleep_for(milliseconds(200));
      world.abort("enough");
    });
  }
  auto const start = std::chrono::steady_clock::now();
  auto const told = "aborted by rank 0: enough; rank " + std::to_string(world.rank()) + " was in ";
  if (world.rank() != 1) expect_error(ErrorCode::aborted, told + "barrier()", [&] { world.barrier(); });
  if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(500));
  expect_error(ErrorCode::aborted, told + "all_reduce(", [&] { all_reduce_one(world); });
  require(std::chrono::steady_clock::now() - start < kLate, "the abort came late");
  if (aborter.joinable()) aborter.join();
}

void leave(Job const& job) {
  {
    auto world = std::make_unique<Communicator>(job.create());
    if (world->rank() == 1) {
      world->barrier();
      world.reset();
    } else {
      expect_error(ErrorCode::peer_lost, "rank 1 left", [&] {
        world->barrier();  // a rank that found it in the next call may tell those who are still in this one
        all_reduce_one(*world);
      });
    }
  }
  auto again = job.create();
  require(all_reduce_one(again) == static_cast<float>(job.size()), "a new communicator does not work");
}

void send_and_leave(Job const& job) {
  auto const over_mpi = job.bootstrap->name() == "mpi";
  auto const limit = over_mpi ? milliseconds(60'000) : milliseconds(4000);  // of UCX a quarter passes before it looks
  for (int round = 0; round < (over_mpi ? 20 : 4); ++round) {
    auto world = job.create(limit);
    int value = round;
    world.barrier();
    if (world.rank() == 0) {
      std::this_thread::sleep_for(over_mpi ? milliseconds(80) : limit / 4 + milliseconds(100));
      world.send(std::span<int const>(&value, 1), 1);
    } else if (world.rank() == 1) {
      value = -1;
      world.recv(std::span(&value, 1), 0);
      require(value == round, "what came is not what was sent");
    }
  }
}

void kill_one(Job const& job) {
  auto world = job.create(milliseconds(3000));
  world.barrier();
  if (world.rank() == world.size() - 1) kill(getpid(), SIGKILL);
  try {
    world.barrier();
  } catch (Error const&) {  // or mpirun ends this rank first
    std::exit(3);
  }
}

void lose_one(Job const& job) {
  auto const last = job.size() - 1;
  auto world = job.create();
  auto const start = std::chrono::steady_clock::now();
  expect_error(ErrorCode::peer_lost, "rank " + std::to_string(last), [&] {
    for (;;) {  // the loss may be seen in the call before
      world.barrier();
      if (job.rank() == last) kill(getpid(), SIGKILL);
    }
  });
  require(std::chrono::steady_clock::now() - start < kLate, "the loss was found late");
  expect_error(ErrorCode::peer_lost, "rank " + std::to_string(last), [&] { all_reduce_one(world); });
}

void stop_one(Job const& job) {
  auto const last = job.size() - 1;
  auto world = job.create();
  auto const mine = getpid();
  auto const pids = job.bootstrap->all_gather(std::as_bytes(std::span(&mine, 1)));
  auto const name = "rank " + std::to_string(last);
  if (job.rank() == last) raise(SIGSTOP);
  expect_error(ErrorCode::timeout, job.rank() == last ? name : name + " did not complete", [&] {
    for (;;) all_reduce_one(world, {.timeout = kImpatience});
  });
  if (job.rank() != 0) return;
  pid_t stopped = 0;
  std::memcpy(&stopped, pids.data() + static_cast<std::size_t>(last) * sizeof stopped, sizeof stopped);
  kill(stopped, SIGCONT);
}

void refuse_long_message(Job const& job) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  auto world = job.create();
  world.barrier();
  if (world.rank() == 0) {
    std::unique_ptr<void, decltype(&std::free)> const zeros(std::calloc(kBytes, 1), &std::free);  // that nobody touches
    expect_error(ErrorCode::mismatch, "", [&] { world.send({zeros.get(), kBytes, DataType::u8}, 1); });
  } else if (world.rank() == 1) {
    auto const most = address_space() + kBytes / 2;
    rlimit const limit{most, most};
    require(setrlimit(RLIMIT_AS, &limit) == 0, "no limit can be set");
    std::vector<std::uint8_t> small(4);
    expect_error(ErrorCode::mismatch, "the receiver expects 4 × u8", [&] { world.recv(std::span(small), 0); });
  }
  require(all_reduce_one(world) == static_cast<float>(world.size()), "collectives do not go on");
}

void lost_messages(Job const& job) {
  int value = 0;
  auto const receive = [&](Communicator& world, int from, milliseconds limit) {
    auto const start = std::chrono::steady_clock::now();
    expect_error(ErrorCode::timeout, "rank", [&] { world.recv(std::span(&value, 1), from, {.timeout = limit}); });
    require(std::chrono::steady_clock::now() - start < kLate, "a failure of the other level came late");
  };
  for (int const silent : {1, 2}) {
    auto world = job.create();
    world.barrier();
    if (job.rank() == 0) receive(world, silent, milliseconds(500));
    if (job.rank() == 3 - silent) receive(world, 0, milliseconds(60'000));
    std::byte const here{};
    (void)job.bootstrap->all_gather(std::span(&here, 1));
  }
}

void messenger_errors(Job const& job) {
  std::vector<int> bytes(10);
  {
    auto world = job.create();
    Messenger messenger(world);
    world.barrier();
    if (world.rank() == 0) {
      expect_error(ErrorCode::peer_lost, "left",
                   [&] { messenger.receive(std::span(bytes), Messenger::kAnyRank).wait(); });
    }
  }
  {
    auto world = job.create();
    Messenger messenger(world);
    world.barrier();
    auto const last = world.size() - 1;
    if (world.rank() == 0) {
      expect_error(ErrorCode::peer_lost, "rank " + std::to_string(last) + " left",
                   [&] { messenger.receive(std::span(bytes), last).wait(); });
    }
  }
  auto world = job.create();
  Messenger messenger(world);
  world.barrier();
  if (world.rank() == 0) {
    expect_error(ErrorCode::timeout, "rank 1 did not send 10 × i32 with tag 3",
                 [&] { messenger.receive(std::span(bytes), 1, 3, milliseconds(300)).wait(); });
  } else {
    expect_error(ErrorCode::timeout, "rank 1 did not send", [&] { messenger.receive(std::span(bytes), 0).wait(); });
  }
}

void refuse(Job const& job) {
  auto options = job.options;
  options.config->backend = BackendKind::shm;
  expect_error(ErrorCode::unsupported, "on different hosts",
               [&] { (void)Communicator::create(job.bootstrap, options); });
}

}  // namespace weft::test
