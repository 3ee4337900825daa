// Started by mpi_backend_test under mpirun, and by ucx_backend_test: `mpi_probe MODE BACKEND HOSTS [CASES SEED]`. HOSTS
// is a letter for every rank: ranks of equal letters are on one host. Exits with 0 when everything was as it should be.
#include <weft/weft.hpp>

#if WEFT_WITH_MPI
#include <mpi.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/cases/nearly.hpp"
#include "collectives/crowd.hpp"
#include "collectives/long_part_cases.hpp"
#include "collectives/messenger_cases.hpp"
#include "collectives/mpi_cases.hpp"
#include "collectives/wire_cases.hpp"

namespace weft::test {
namespace {

using std::chrono::milliseconds;

/// The time limit of calls that are to fail by it: long enough for ranks of a loaded machine to tell what they wait
/// for.
constexpr milliseconds kImpatience{4000};
/// What takes longer was not noticed, but given up: communicators have a minute.
constexpr milliseconds kLate{40'000};

/// The job's ranks, and communicators between them as the command line says.
struct Job {
  std::shared_ptr<Bootstrap> bootstrap;
  CommunicatorOptions options;  ///< of the backend under test
  std::string hosts;            ///< a letter for every rank
  int cases = 100;
  std::uint64_t seed = 20;

  [[nodiscard]] int rank() const { return bootstrap->rank(); }
  [[nodiscard]] int size() const { return bootstrap->size(); }
  [[nodiscard]] Communicator create(milliseconds timeout = milliseconds(60'000)) const {
    auto with = options;
    with.config->timeout = timeout;
    return Communicator::create(bootstrap, with);
  }
};

void require(bool condition, std::string const& what) {
  if (!condition) throw std::runtime_error(what);
}

void expect_error(ErrorCode code, std::string const& words, std::function<void()> const& body) {
  try {
    body();
  } catch (Error const& error) {
    require(error.code() == code && std::string(error.what()).find(words) != std::string::npos,
            "unexpected error, wanted " + std::string(to_string(code)) + " with \"" + words + "\": " + error.what());
    return;
  }
  throw std::runtime_error("no error, wanted " + std::string(to_string(code)));
}

float all_reduce_one(Communicator& world, CollectiveOptions const& how = {}) {
  float one = 1;
  float sum = 0;
  world.all_reduce(std::span<float const>(&one, 1), std::span(&sum, 1), ReduceOp::sum, how);
  return sum;
}

/// All ranks on one host.
Communicator reference_for(Job const& job) {
  auto plain = job.options;
  plain.config->backend = BackendKind::shm;
  plain.config->host_id.reset();
  return Communicator::create(job.bootstrap, plain);
}

void operations(Job job) {
  job.options.reproducibility = Reproducibility::bitwise;
  auto tested = job.create();
  auto reference = reference_for(job);
  compare_communicators(tested, reference, job.cases, job.seed);
}

#if WEFT_WITH_MPI
/// Weft's functions beside MPI's.
void differential(Job job) {
  job.options.reproducibility = Reproducibility::bitwise;
  auto tested = job.create();
  compare_with_mpi(tested, job.cases, job.seed);
}
#endif

/// f32 sums have the bits of a loop over the ranks, whatever the sizes of blocks.
void bitwise(Job job) {
  job.options.reproducibility = Reproducibility::bitwise;
  for (std::size_t const staging : {std::size_t{64} << 10, std::size_t{300'000}, std::size_t{4} << 20}) {
    job.options.config->staging_bytes = staging;
    auto world = job.create();
    for (std::size_t const count : {1, 1000, 5003, 300'007}) {
      std::vector<float> wanted(count);
      std::vector<float> mine;
      for (int rank = 0; rank < job.size(); ++rank) {
        std::mt19937 engine(static_cast<unsigned>(count) + static_cast<unsigned>(rank));
        std::vector<float> values(count);
        for (auto& value : values) value = std::uniform_real_distribution<float>(-1, 1)(engine);
        for (std::size_t i = 0; i < count; ++i) wanted[i] = rank == 0 ? values[i] : wanted[i] + values[i];
        if (rank == job.rank()) mine = values;
      }
      world.all_reduce(std::span<float const>(mine), std::span(mine), ReduceOp::sum);
      require(std::memcmp(mine.data(), wanted.data(), count * sizeof(float)) == 0,
              "not the sum in rank order: " + std::to_string(count) + " elements, staging " + std::to_string(staging));
    }
  }
}

/// The default may round differently from one host, but the same each time, and as every rank's result.
void relaxed(Job const& job) {
  auto tested = job.create();
  auto reference = reference_for(job);
  compare_nearly(tested, reference, job.cases, job.seed);
}

/// Calls that differ in one thing each: everybody is told of both, and the communicator goes on.
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

/// One rank comes late, after the others gave up: they name it, and it is told.
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

/// A rank destroys its communicator while the others want more; then all make new ones.
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

/// The last rank is killed between calls: all others name it, long before their time limit.
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

void long_sums(Job const& job) {
  auto world = job.create();
  check_long_sums(world);
}

void long_elements(Job const& job) {
  auto world = job.create();
  check_long_elements(world);
}

void long_parts(Job const& job) {
  auto world = job.create();
  check_long_parts(world);
}

/// The last rank is stopped and goes on after the first has given up: all others name it, and it is told.
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

#if WEFT_WITH_MPI
/// Whether this rank stops where it would give its part of a gather, which it has announced.
bool stops_in_gather = false;

/// The last rank stops in a gather to another. The first, which gives its part and is in the next call, and the root,
/// which waits for the last one's, both know which of the others it is: `hasty`, who gives up first, says so.
void stop_in_gather(Job const& job, int hasty) {
  auto const last = job.size() - 1;
  auto world = job.create();
  auto const mine = getpid();
  auto const pids = job.bootstrap->all_gather(std::as_bytes(std::span(&mine, 1)));
  world.barrier();
  auto const name = "rank " + std::to_string(last);
  auto const limit = job.rank() == hasty ? kImpatience : 2 * kImpatience;
  stops_in_gather = job.rank() == last;
  expect_error(ErrorCode::timeout, job.rank() == last ? name : name + " did not complete", [&] {
    float const part = 1;
    std::vector<float> all(static_cast<std::size_t>(job.size()));
    auto const root = job.size() - 2;
    world.gather(std::span(&part, 1), std::span(all).subspan(0, job.rank() == root ? all.size() : 0), root,
                 {.timeout = limit});
    world.barrier({.timeout = limit});
  });
  if (job.rank() != hasty) return;
  pid_t stopped = 0;
  std::memcpy(&stopped, pids.data() + static_cast<std::size_t>(last) * sizeof stopped, sizeof stopped);
  kill(stopped, SIGCONT);
}
#endif

/// Many communicators made and dropped, several in use at once from streams and threads.
void communicators(Job const& job) {
  for (int i = 0; i < 30; ++i) {
    auto world = job.create();
    require(all_reduce_one(world) == static_cast<float>(job.size()), "a communicator of many is wrong");
  }
  auto world = job.create();
  std::vector<Communicator> many;
  for (int i = 0; i < 3; ++i) many.push_back(world.duplicate(world.options()));
  std::vector<Stream> streams;
  std::vector<Work> works;
  constexpr std::size_t kCount = 100'003;
  std::vector<std::vector<float>> values(many.size(), std::vector<float>(kCount));
  for (std::size_t i = 0; i < many.size(); ++i) streams.push_back(Stream::cpu());
  for (int round = 0; round < 5; ++round) {
    for (std::size_t i = 0; i < many.size(); ++i) {
      // Ranks start them in different orders.
      auto const k = (i + static_cast<std::size_t>(job.rank())) % many.size();
      values[k].assign(kCount, static_cast<float>(k + 1));
      works.push_back(many[k].all_reduce(std::span<float const>(values[k]), std::span(values[k]), ReduceOp::sum,
                                         {.stream = streams[k]}));
    }
    for (auto& work : works) work.wait();
    works.clear();
    for (std::size_t i = 0; i < many.size(); ++i) {
      require(
          values[i] == std::vector<float>(kCount, static_cast<float>((i + 1) * static_cast<std::size_t>(job.size()))),
          "communicators used at once disturb one another");
    }
  }
}

void messages(Job const& job) {
  auto world = job.create();
  auto const next = (world.rank() + 1) % world.size();
  auto const before = (world.rank() + world.size() - 1) % world.size();
  for (std::size_t const count : {0, 1, 100, 511, 512, 513, 70'001, 400'003}) {
    std::vector<float> send(count, static_cast<float>(world.rank()));
    std::vector<float> recv(count, -1);
    world.send_recv(std::span<float const>(send), next, std::span(recv), before);
    require(recv == std::vector<float>(count, static_cast<float>(before)), "send_recv around the ring");
  }
  std::vector<int> value(3, world.rank());
  if (world.rank() == 0) world.send(std::span<int const>(value), 1);
  if (world.rank() == 1) world.recv(std::span(value), 0);
  require(world.rank() != 1 || value == std::vector<int>(3, 0), "send and recv");
  float const one = 1;
  float copy = 0;
  world.send_recv(std::span(&one, 1), world.rank(), std::span(&copy, 1), world.rank());
  require(copy == 1, "a message to oneself");
  expect_error(ErrorCode::invalid_argument, "Group", [&] { world.send(std::span(&one, 1), world.rank()); });
  auto const ranks = static_cast<std::size_t>(world.size());
  std::vector<int> gives(ranks, world.rank());
  std::vector<int> gets(ranks, -1);
  Group group(world);
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    world.send(std::span<int const>(gives).subspan(peer, 1), static_cast<int>(peer));
    world.recv(std::span(gets).subspan(peer, 1), static_cast<int>(peer));
  }
  group.end();
  for (std::size_t peer = 0; peer < ranks; ++peer)
    require(gets[peer] == static_cast<int>(peer), "a group of messages between all ranks and to themselves");

  std::vector<float> large(300'000);
  if (world.rank() == 0) expect_error(ErrorCode::mismatch, "", [&] { world.send(std::span<float const>(large), 1); });
  if (world.rank() == 1) {
    expect_error(ErrorCode::mismatch, "300000 × f32, but the receiver expects 299999 × f32",
                 [&] { world.recv(std::span(large).first(299'999), 0); });
  }
  require(all_reduce_one(world) == static_cast<float>(world.size()), "collectives go on");
}

void messenger(Job const& job) {
  auto world = job.create();
  for (unsigned seed = 1; seed <= 6; ++seed) exchange_tagged(world, seed);
  for (unsigned seed = 1; seed <= 3; ++seed) gather_from_any(world, seed);
  cross_long_messages(world);
  leave_in_the_background(world);
  take_over_from_another(world);
  leave_later_messages_to_the_next(world);
  drop_what_does_not_fit(world);
  require(all_reduce_one(world) == static_cast<float>(world.size()), "collectives go on");
}

/// Receives from ranks that have left, and from one that is late, end by errors that name them.
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

/// Who waits beside programs that compute sleeps: each yield would cost it one of their time slices.
void crowded(Job const& job) {
  constexpr int kCalls = 300;
  auto world = job.create();
  std::unique_ptr<Crowd> crowd;
  if (world.rank() == 0) crowd = std::make_unique<Crowd>();
  for (int call = 0; call < kCalls / 4; ++call) all_reduce_one(world);  // in which it finds out
  long least = kCalls;  // of several turns: what else runs here displaces it, too
  for (int turn = 0; turn < 3; ++turn) {
    auto const before = displaced();
    for (int call = 0; call < kCalls; ++call) all_reduce_one(world);
    least = std::min(least, displaced() - before);
  }
  require(least < kCalls, "displaced once or more in each of " + std::to_string(kCalls) + " calls");
  world.barrier();
}

/// What crosses hosts rounded, on all ranks as rank 0 says.
void wire(Job const& job) {
  for (auto const format : {WireFormat::bf16, WireFormat::fp8}) {
    auto rounded = job;
    rounded.options.config->wire = format;
    {
      auto world = rounded.create();
      check_wire_format(world, job.hosts);
    }
    rounded.options.reproducibility = Reproducibility::bitwise;
    expect_error(ErrorCode::invalid_argument, "which Reproducibility::bitwise forbids",
                 [&] { (void)rounded.create(); });
    rounded.options.reproducibility = Reproducibility::run_to_run;
    auto const by_mpi = job.bootstrap->name() == "mpi";
    rounded.options.config->backend = by_mpi ? BackendKind::mpi : BackendKind::ucx;
    expect_error(ErrorCode::unsupported, "it knows of no hosts", [&] { (void)rounded.create(); });
  }
}

void refuse(Job const& job) {
  auto options = job.options;
  options.config->backend = BackendKind::shm;
  expect_error(ErrorCode::unsupported, "on different hosts",
               [&] { (void)Communicator::create(job.bootstrap, options); });
}

int run(int argc, char** argv) {
  if (argc < 4) return 2;
  std::map<std::string, std::function<void(Job const&)>> const modes {
    {"operations", operations},
#if WEFT_WITH_MPI
        {"differential", differential}, {"stop_in_gather_0", [](Job const& job) { stop_in_gather(job, 0); }},
        {"stop_in_gather_1", [](Job const& job) { stop_in_gather(job, 1); }},
#endif
        {"mismatch", mismatch}, {"timeout", timeout}, {"abort", abort_from_a_thread}, {"leave", leave},
        {"kill", kill_one}, {"lose", lose_one}, {"stop", stop_one}, {"long_parts", long_parts},
        {"long_sums", long_sums}, {"long_elements", long_elements}, {"communicators", communicators},
        {"messages", messages}, {"messenger", messenger}, {"messenger_errors", messenger_errors}, {"crowded", crowded},
        {"refuse", refuse}, {"bitwise", bitwise}, {"relaxed", relaxed}, {
      "wire", wire
    }
  };
  Job job;
  job.options.config = Config::from_environment();
  job.bootstrap = bootstrap_from_environment(*job.options.config);
  std::string const backend = argv[2];
  for (auto const kind : {BackendKind::shm, BackendKind::mpi, BackendKind::hierarchical, BackendKind::ucx,
                          BackendKind::hierarchical_ucx}) {
    if (backend == to_string(kind)) job.options.config->backend = kind;
  }
  std::string const hosts = argv[3];
  job.hosts = hosts;
  job.options.config->host_id = std::string("host ") + hosts.at(static_cast<std::size_t>(job.rank()));
  if (argc > 5) job.cases = std::stoi(argv[4]), job.seed = std::stoull(argv[5]);
  try {
    modes.at(argv[1])(job);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "rank %d: %s\n", job.rank(), error.what());
    std::fflush(stderr);
    std::_Exit(1);  // the others may never reach MPI_Finalize
  }
  return 0;
}

}  // namespace
}  // namespace weft::test

#if WEFT_WITH_MPI
extern "C" int MPI_Igatherv(void const* send, int count, MPI_Datatype type, void* recv, int const* counts,
                            int const* offsets, MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request* request) {
  if (std::exchange(weft::test::stops_in_gather, false)) raise(SIGSTOP);
  return PMPI_Igatherv(send, count, type, recv, counts, offsets, recv_type, root, comm, request);
}
#endif

int main(int argc, char** argv) {
  return weft::test::run(argc, argv);
}
