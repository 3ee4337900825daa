// Started by mpi_backend_test under mpirun, and by ucx_backend_test: `mpi_probe MODE BACKEND HOSTS [CASES SEED]`. HOSTS
// is a letter for every rank: ranks of equal letters are on one host. Exits with 0 when everything was as it should be.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "collectives/cases/nearly.hpp"
#include "collectives/crowd.hpp"
#include "collectives/messenger_cases.hpp"
#include "collectives/mpi_probe/failures.hpp"
#include "collectives/mpi_probe/job.hpp"
#include "collectives/mpi_probe/long_part_cases.hpp"
#include "collectives/mpi_probe/mpi_cases.hpp"
#include "collectives/mpi_probe/wire_cases.hpp"

namespace weft::test {
namespace {

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

/// ... and of one host whatever format is to cross between hosts.
void bitwise_on_one_host(Job job) {
  job.options.config->wire = WireFormat::bf16;
  bitwise(job);
}

/// The default may round differently from one host, but the same each time, and as every rank's result.
void relaxed(Job const& job) {
  auto tested = job.create();
  auto reference = reference_for(job);
  compare_nearly(tested, reference, job.cases, job.seed);
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

int run(int argc, char** argv) {
  if (argc < 4) return 2;
  std::map<std::string, std::function<void(Job const&)>> const modes {
    {"operations", operations},
#if WEFT_WITH_MPI
        {"differential", differential}, {"late_to_mpi", late_to_mpi},
        {"stop_in_gather_0", [](Job const& job) { stop_in_gather(job, 0); }},
        {"stop_in_gather_1", [](Job const& job) { stop_in_gather(job, 1); }},
        {"stop_between_hosts_0", [](Job const& job) { stop_between_hosts(job, 0); }},
        {"stop_between_hosts_1", [](Job const& job) { stop_between_hosts(job, 1); }},
        {"stop_between_hosts_2", [](Job const& job) { stop_between_hosts(job, 2); }},
#endif
        {"mismatch", mismatch}, {"timeout", timeout}, {"abort", abort_from_a_thread}, {"leave", leave},
        {"send_and_leave", send_and_leave}, {"kill", kill_one}, {"lose", lose_one}, {"stop", stop_one},
        {"long_parts", long_parts}, {"long_sums", long_sums}, {"long_elements", long_elements},
        {"communicators", communicators}, {"messages", messages}, {"messenger", messenger},
        {"messenger_errors", messenger_errors}, {"crowded", crowded}, {"refuse", refuse}, {"bitwise", bitwise},
        {"bitwise_on_one_host", bitwise_on_one_host}, {"lost_messages", lost_messages},
        {"refuse_long_message", refuse_long_message}, {"relaxed", relaxed}, {
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

int main(int argc, char** argv) {
  return weft::test::run(argc, argv);
}
