// What was measured is kept in a file, believed only where it can be true, and never in the way.
#include "collectives/shm/tuning_cache.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>
#include <string>

#include "cost_models.hpp"
#include "harness/ranks.hpp"

namespace weft::shm {
namespace {

using test::cost;
using test::kKiB;
using test::model;
using weft::test::run_forked_ranks;

struct TuningFile : testing::Test {
  // One for each test: the process remembers files.
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("weft_" + std::to_string(::getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::path file = folder / "deeper" / "tuning.json";

  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }

  [[nodiscard]] std::string content() const {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  void write(std::string const& text) const {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  /// What was measured for one distance holds for every one: a virtual machine's cores may move between two runs.
  void know_all_distances() const {
    auto stored = nlohmann::json::parse(content());
    auto const machines = stored.at("machines");
    for (auto const& [name, costs] : machines.items()) {
      for (auto const* distance : {"0", "64", "256", "1024", "4096"})
        stored["machines"][std::regex_replace(name, std::regex("within [0-9]+ ns"),
                                              std::string("within ") + distance + " ns")] = costs;
    }
    write(stored.dump());
  }
  /// Where find() looks without what this process remembers.
  [[nodiscard]] std::string renamed() const {
    auto other = file.string() + ".renamed";
    std::filesystem::copy(file, other, std::filesystem::copy_options::overwrite_existing);
    return other;
  }
};

TEST_F(TuningFile, RemembersMachines) {
  TuningCache const cache(file.string());
  EXPECT_FALSE(cache.find("one"));
  cache.add("one", model(700));
  auto second = model(900);
  second.polls_at_once = true;
  second.streaming_bytes = 4096 * kKiB;
  second.take_bytes = 768 * kKiB;
  second.of(Collective::pull, Algorithm::fetched, Place::private_long) = cost(0, 30);
  cache.add("two", second);
  TuningCache const later(renamed());
  for (auto const& [machine, fixed] : {std::pair{"one", 700.0}, std::pair{"two", 900.0}}) {
    auto const found = later.find(machine);
    ASSERT_TRUE(found) << machine;
    EXPECT_EQ(100, found->synchronisation_ns);
    auto const is_two = std::string(machine) == "two";
    EXPECT_EQ(is_two, found->polls_at_once);
    EXPECT_EQ(is_two ? 4096 * kKiB : 0, found->streaming_bytes);
    EXPECT_EQ(is_two ? 768 * kKiB : 0, found->take_bytes);
    EXPECT_EQ(is_two, found->of(Collective::pull, Algorithm::fetched, Place::private_long).is_known());
    EXPECT_FALSE(found->of(Collective::pull, Algorithm::fetched, Place::symmetric_long).is_known());
    EXPECT_EQ(fixed, found->of(Collective::all_reduce, Algorithm::direct).loop.fixed_ns);
    EXPECT_FALSE(found->of(Collective::scan, Algorithm::staged).is_known());
  }
  EXPECT_FALSE(later.find("three"));
}

TEST_F(TuningFile, BadFilesAreWarnedOfOnceAndLeftAlone) {
  for (std::string const text : {"", "{", "[1, 2]", "{\"format\": \"something else\"}", "a letter to a friend"}) {
    write(text);
    auto const place = renamed();
    testing::internal::CaptureStderr();
    TuningCache const cache(place);
    EXPECT_FALSE(cache.find("one"));
    EXPECT_FALSE(cache.find("one"));
    cache.add("one", model(700));
    auto const warnings = testing::internal::GetCapturedStderr();
    EXPECT_EQ(0U, warnings.find("weft: [warn] tuning cache " + place)) << text << warnings;
    EXPECT_EQ(warnings.find('\n'), warnings.rfind('\n')) << text << warnings;
    EXPECT_EQ(text, (std::ostringstream() << std::ifstream(place).rdbuf()).str().substr(0, text.size()));
    EXPECT_TRUE(cache.find("one")) << "the process remembers";
    std::filesystem::remove(place);
    file = file.parent_path() / (file.filename().string() + "x");  // warned of once per file
  }
}

TEST_F(TuningFile, WritersAtOnceLeaveItWhole) {
  testing::internal::CaptureStderr();
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < 4; ++writer) {
      writers.emplace_back([&, writer] {
        TuningCache const cache(file.string());
        for (int round = 0; round < 40; ++round) cache.add(std::to_string(100 * writer + round), model(100));
      });
    }
  }
  EXPECT_EQ("", testing::internal::GetCapturedStderr());
  EXPECT_TRUE(nlohmann::json::parse(content()).at("machines").is_object());
  std::filesystem::directory_iterator const files(file.parent_path());
  EXPECT_EQ(1, std::distance(begin(files), end(files))) << "what was begun is gone";
}

TEST_F(TuningFile, OneRankReadsIt) {
  write("a letter to a friend");
  CommunicatorOptions options;
  options.config = Config{};
  options.config->tuning_cache = file.string();
  auto const exits = run_forked_ranks(
      2, [](Communicator&) { return 0; }, options);
  weft::test::expect_all_succeeded(exits);
  std::string said;
  for (auto const& exit : exits) said += exit.output;
  if (::sysconf(_SC_NPROCESSORS_ONLN) >= 2) {
    EXPECT_NE(std::string::npos, said.find("[warn]")) << said;
  }
  EXPECT_EQ(said.find("[warn]"), said.rfind("[warn]")) << said;
}

#if defined(__x86_64__)
/// Has the kernel refuse sets of up to 1024 processors, as where there are more, in this process for good; whether it
/// does.
bool want_larger_cpu_sets() {
  std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + sizeof(std::uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, sizeof(cpu_set_t), 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog const filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Who knows of no processors takes ranks to share them, and does not ask the file.
TEST_F(TuningFile, ItIsReadOnMachinesOfManyProcessorsToo) {
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "ranks share a processor here";
  constexpr int kNoFilters = 77;
  write("a letter to a friend");
  CommunicatorOptions options;
  options.config = Config{};
  options.config->tuning_cache = file.string();
  auto const exits = weft::test::run_forked(1, [&](int) {
    if (!want_larger_cpu_sets()) return kNoFilters;
    weft::test::run_thread_ranks(
        2, [](Communicator&) {}, options);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  if (exits[0].code == kNoFilters) GTEST_SKIP() << "no system call filters here";
  weft::test::expect_all_succeeded(exits);
  EXPECT_NE(std::string::npos, exits[0].output.find("[warn]")) << exits[0].output;
}
#endif

TEST_F(TuningFile, NoFileWaitsForAWriter) {
  std::filesystem::create_directories(file.parent_path());
  ASSERT_EQ(0, ::mkfifo(file.c_str(), 0600));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(TuningCache(file.string()).find("one"));
  EXPECT_NE(std::string::npos, testing::internal::GetCapturedStderr().find("it is no regular file"));
}

TEST_F(TuningFile, ImpossibleTimesAreNotBelieved) {
  write(R"({"format": "weft tuning 1", "machines": {"one": {"synchronisation_ns": -4, "polls_unfenced": false,
            "streaming_bytes": 0, "take_bytes": 0, "private_long": {}}}})");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(TuningCache(file.string()).find("one"));
  EXPECT_NE(std::string::npos, testing::internal::GetCapturedStderr().find("impossible times"));
}

// A file of a time when less was measured is no damaged one.
TEST_F(TuningFile, MachinesOfWhichLessIsKnownAreMeasuredAgain) {
  write(R"({"format": "weft tuning 1", "machines": {"one": {"synchronisation_ns": 100, "polls_unfenced": true,
            "streaming_bytes": 0, "private": {}}}})");
  testing::internal::CaptureStderr();
  TuningCache const cache(file.string());
  EXPECT_FALSE(cache.find("one"));
  cache.add("one", model(700));
  EXPECT_TRUE(TuningCache(renamed()).find("one"));
  EXPECT_EQ("", testing::internal::GetCapturedStderr());
}

TEST_F(TuningFile, ACommunicatorMeasuresOnceAndAllRanksAgree) {
  CommunicatorOptions options;
  options.config = Config{};
  options.config->tuning_cache = file.string();
  options.config->explain = true;
  auto const body = [](Communicator& world) {
    std::vector<float> data(3000, 1);
    world.all_reduce(std::span<float const>(data), std::span(data), ReduceOp::sum);
    auto again = world.duplicate(world.options());
    again.all_reduce(std::span<float const>(data), std::span(data), ReduceOp::sum);
    for (float const value : data) {
      if (value != static_cast<float>(world.size() * world.size())) return 1;
    }
    return 0;
  };
  weft::test::expect_all_succeeded(run_forked_ranks(2, body, options));
  if (::sysconf(_SC_NPROCESSORS_ONLN) >= 2 && !content().empty()) {  // busy machines give up
    know_all_distances();
    auto const measured = content();
    auto const exits = run_forked_ranks(2, body, options);
    weft::test::expect_all_succeeded(exits);
    EXPECT_NE(std::string::npos, exits[0].output.find("predicted for ")) << exits[0].output;
    EXPECT_EQ(measured, content()) << "measured again";
  }
  weft::test::expect_all_succeeded(run_forked_ranks(5, body, options));
}

// Its costs are those of a communicator with a whole ring, whose experiments would take the memory that it does not.
TEST_F(TuningFile, SmallStagingUsesWhatIsKnownAndMeasuresNothing) {
  CommunicatorOptions options;
  options.config = Config{};
  options.config->tuning_cache = file.string();
  options.config->explain = true;
  options.small_staging = true;
  auto const body = [](Communicator& world) {
    std::vector<float> data(3000, 1);
    world.all_reduce(std::span<float const>(data), std::span(data), ReduceOp::sum);
    return data.back() == static_cast<float>(world.size()) ? 0 : 1;
  };
  weft::test::expect_all_succeeded(run_forked_ranks(2, body, options));
  EXPECT_FALSE(std::filesystem::exists(file));
  options.small_staging = false;
  weft::test::expect_all_succeeded(run_forked_ranks(2, body, options));
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 2 || content().empty()) return;  // busy machines give up
  know_all_distances();
  auto const measured = content();
  options.small_staging = true;
  auto const exits = run_forked_ranks(2, body, options);
  weft::test::expect_all_succeeded(exits);
  EXPECT_NE(std::string::npos, exits[0].output.find("predicted for ")) << exits[0].output;
  EXPECT_EQ(measured, content());
}

TEST_F(TuningFile, NothingIsWrittenUnlessAskedFor) {
  auto const* const given = std::getenv("XDG_CACHE_HOME");
  auto const before = given == nullptr ? std::nullopt : std::optional<std::string>(given);
  ASSERT_EQ(0, setenv("XDG_CACHE_HOME", folder.c_str(), 1));
  weft::test::expect_all_succeeded(run_forked_ranks(2, [](Communicator&) { return 0; }, {.config = Config{}}));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  if (before) {
    setenv("XDG_CACHE_HOME", before->c_str(), 1);
  } else {
    unsetenv("XDG_CACHE_HOME");
  }
}

TEST_F(TuningFile, AFolderThatCannotBeWrittenIsNoFailure) {
  CommunicatorOptions options;
  options.config = Config{};
  options.config->tuning_cache = "/proc/nowhere/tuning.json";
  weft::test::expect_all_succeeded(run_forked_ranks(
      2, [](Communicator&) { return 0; }, options));
}

}  // namespace
}  // namespace weft::shm
