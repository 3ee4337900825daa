#include "weft/config.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"
#include "weft/launch.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;

Config read(std::vector<char const*> environment) {
  environment.push_back(nullptr);
  return Config::from_environment(environment.data());
}

std::string warnings_of(std::vector<char const*> const& environment) {
  testing::internal::CaptureStderr();
  (void)read(environment);
  return testing::internal::GetCapturedStderr();
}

TEST(Config, DefaultsWithoutVariables) {
  Config const config = read({"PATH=/bin", "WEFT", "XWEFT_SPIN=1s"});
  EXPECT_EQ(config.timeout, 300s);
  EXPECT_EQ(config.log_level, "warn");
  EXPECT_FALSE(config.staging_bytes.has_value());
  EXPECT_FALSE(config.spin.has_value());
  EXPECT_TRUE(config.bind);
}

TEST(Config, ReadsEveryVariable) {
  Config const config =
      read({"WEFT_TIMEOUT=1500ms", "WEFT_LOG_LEVEL=debug", "WEFT_STAGING_BYTES=4M", "WEFT_SPIN=50us", "WEFT_BIND=0"});
  EXPECT_EQ(config.timeout, 1500ms);
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_EQ(config.staging_bytes, std::size_t{4} << 20);
  EXPECT_EQ(config.spin, 50us);
  EXPECT_FALSE(config.bind);
}

TEST(Config, ReadsWhatCrossesHosts) {
  EXPECT_EQ(read({}).wire, WireFormat::f32);
  EXPECT_EQ(read({"WEFT_WIRE=bf16"}).wire, WireFormat::bf16);
  EXPECT_EQ(read({"WEFT_WIRE=fp8"}).wire, WireFormat::fp8);
  EXPECT_EQ(read({"WEFT_WIRE=f32"}).wire, WireFormat::f32);
}

TEST(Config, ReadsTheFlightRecorders) {
  EXPECT_EQ(read({}).flight_recorder, 256U);
  EXPECT_FALSE(read({}).flight_directory.has_value());
  Config const config = read({"WEFT_FLIGHT_RECORDER=0", "WEFT_FLIGHT_DIR=/tmp/dumps"});
  EXPECT_EQ(config.flight_recorder, 0U);
  EXPECT_EQ(config.flight_directory, "/tmp/dumps");
}

TEST(Config, TuningIsKeptWhereCachesAre) {
  EXPECT_FALSE(Config{}.tuning_cache.has_value());
  EXPECT_FALSE(read({}).tuning_cache.has_value());
  EXPECT_EQ(read({"HOME=/home/a"}).tuning_cache, "/home/a/.cache/weft/tuning.json");
  EXPECT_EQ(read({"HOME=/home/a", "XDG_CACHE_HOME=/caches"}).tuning_cache, "/caches/weft/tuning.json");
  EXPECT_EQ(read({"HOME=/home/a", "WEFT_TUNING_CACHE=t.json"}).tuning_cache, "t.json");
  EXPECT_FALSE(read({"HOME=/home/a", "WEFT_TUNING_CACHE=0"}).tuning_cache.has_value());
  EXPECT_FALSE(read({"HOME=/home/a", "WEFT_TUNING_CACHE="}).tuning_cache.has_value());
}

TEST(Config, ZeroSpinIsNotTheDefault) {
  EXPECT_EQ(read({"WEFT_SPIN=0us"}).spin, 0us);
}

struct Bad {
  char const* entry;
  char const* allowed;
};

class BadValue : public testing::TestWithParam<Bad> {};

TEST_P(BadValue, IsAnErrorNamingVariableValueAndWhatIsAllowed) {
  try {
    (void)read({"HOME=/", GetParam().entry});
    FAIL() << GetParam().entry << " was accepted";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    std::string const what = error.what();
    EXPECT_NE(what.find(GetParam().entry), std::string::npos) << what;
    EXPECT_NE(what.find(GetParam().allowed), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variables, BadValue,
    testing::Values(Bad{"WEFT_TIMEOUT=soon", "500ms"}, Bad{"WEFT_TIMEOUT=", "500ms"}, Bad{"WEFT_TIMEOUT=0s", "1ms"},
                    Bad{"WEFT_TIMEOUT=0.5ms", "1ms"}, Bad{"WEFT_TIMEOUT=-3s", "500ms"},
                    Bad{"WEFT_TIMEOUT=400000000s", "a year"},
                    Bad{"WEFT_LOG_LEVEL=loud", "trace, debug, info, warn, error, off"},
                    Bad{"WEFT_LOG_LEVEL=WARN", "trace"}, Bad{"WEFT_STAGING_BYTES=4Q", "4M"},
                    Bad{"WEFT_STAGING_BYTES=1K", "64K"}, Bad{"WEFT_STAGING_BYTES=18446744073709551615", "1G"},
                    Bad{"WEFT_SPIN=fast", "50us"}, Bad{"WEFT_SPIN=2s", "1s"}, Bad{"WEFT_BIND=yes", "0 or 1"},
                    Bad{"WEFT_BIND=", "0 or 1"}, Bad{"WEFT_FLIGHT_RECORDER=many", "0 to 1048576"},
                    Bad{"WEFT_FLIGHT_RECORDER=-1", "0 to 1048576"}, Bad{"WEFT_FLIGHT_RECORDER=4K", "0 to 1048576"},
                    Bad{"WEFT_FLIGHT_DIR=", "folder"}, Bad{"WEFT_NCCL_LIBRARY=", "libnccl.so"},
                    Bad{"WEFT_WIRE=fp4", "f32, bf16 or fp8"}, Bad{"WEFT_WIRE=", "f32, bf16"},
                    Bad{"WEFT_DEVICE_BACKEND=host", "auto, nccl, staged or hierarchical"},
                    Bad{"WEFT_DEVICE_BACKEND=", "auto, nccl"}, Bad{"WEFT_TORCH_HEAP=much", "4G"},
                    Bad{"WEFT_TORCH_HEAP=4K", "1M"}, Bad{"WEFT_REPORT=yes", "0 or 1"}));

TEST(Config, UnknownNameWarnsWithTheNearest) {
  EXPECT_EQ(warnings_of({"WEFT_TIMEOUTS=3s"}),
            "weft: [warn] unknown variable WEFT_TIMEOUTS: did you mean WEFT_TIMEOUT?\n");
  EXPECT_NE(warnings_of({"WEFT_BNID=0"}).find("did you mean WEFT_BIND?"), std::string::npos);
  EXPECT_NE(warnings_of({"WEFT_STAGING=1M"}).find("did you mean WEFT_STAGING_BYTES?"), std::string::npos);
  EXPECT_NE(warnings_of({"WEFT_LOGLEVEL=info"}).find("did you mean WEFT_LOG_LEVEL?"), std::string::npos);
  EXPECT_NE(warnings_of({"WEFT_AUTOTUN=5"}).find("did you mean WEFT_AUTOTUNE?"), std::string::npos);
}

TEST(Config, UnknownNameThatResemblesNoneIsNotGuessedAt) {
  for (std::string const name : {"WEFT_FOO", "WEFT_COMPRESSION"}) {
    EXPECT_EQ(warnings_of({(name + "=1").c_str()}),
              "weft: [warn] unknown variable " + name + ": docs/configuration.md lists those that there are\n");
  }
}

/// Communicators without a Config read the environment each.
TEST(Config, TheEnvironmentWarnsOncePerProcess) {
  static int runs = 0;  // of the test, in this process
  auto const name = "WEFT_SPIN" + std::to_string(++runs);
  ::setenv(name.c_str(), "1us", 1);
  testing::internal::CaptureStderr();
  static_cast<void>(Config::from_environment());
  static_cast<void>(Config::from_environment());
  auto const said = testing::internal::GetCapturedStderr();
  ::unsetenv(name.c_str());
  auto const line = "weft: [warn] unknown variable " + name + ": did you mean WEFT_SPIN?\n";
  EXPECT_NE(said.find(line), std::string::npos) << said;
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
}

TEST(Config, OnlyUnknownNamesWarn) {
  EXPECT_EQ(warnings_of({"WEFT_TIMEOUT=3s", "WEFT_TEST_LIMIT_S=7", "WEFT_DEMO_SHORT=1", "weft_timeout=1", "OMPI_X=1"}),
            "");
  EXPECT_EQ(warnings_of({"WEFT_BNID=0", "WEFT_LOG_LEVEL=error"}), "");
}

TEST(Config, NamesOfScriptsAndBuildDoNotWarn) {
  EXPECT_EQ(warnings_of({"WEFT_PERF_FULL=1", "WEFT_JOBS=4", "WEFT_DEMO_STEPS=8", "WEFT_TEST_LAUNCHER=x",
                         "WEFT_WITH_MPI=OFF", "WEFT_WITH_CUDA=ON", "WEFT_BUILD_TESTS=ON", "WEFT_CCACHE=OFF",
                         "WEFT_WERROR=ON", "WEFT_SANITIZE=address"}),
            "");
  for (char const* misspelt : {"WEFT_JOBSS=4", "WEFT_PERF=1", "WEFT_SANITIZER=address"}) {
    EXPECT_NE(warnings_of({misspelt}), "") << misspelt;
  }
}

struct BadMember {
  char const* name;
  void (*set)(Config&);
};

class BadMembers : public testing::TestWithParam<BadMember> {};

/// Runs `work`, which must throw Error{invalid_argument} in one line that names `member`.
template <typename Work>
void expect_refused(std::string const& member, Work const& work) {
  try {
    work();
    FAIL() << member << " was accepted";
  } catch (Error const& error) {
    std::string const what = error.what();
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(what.rfind("Config::" + member + " is ", 0), 0U) << what;
    EXPECT_NE(what.find(": expected "), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST_P(BadMembers, AreRefusedByWhateverTakesAConfig) {
  Config config;
  EXPECT_NO_THROW(config.check());
  GetParam().set(config);
  std::string const member = GetParam().name;
  expect_refused(member, [&] { config.check(); });
  expect_refused(member, [&] { (void)thread_bootstraps(2, config); });
  expect_refused(member, [&] { (void)fork_bootstraps(2, config); });
  CommunicatorOptions options;
  options.config = config;
  expect_refused(member, [&] { (void)Communicator::create(single_bootstrap(), options); });

  LaunchOptions launched;
  launched.communicator = options;
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(launched, [](Communicator&) { return 0; }), 2);
  std::string const line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.rfind("weft: Config::" + member + " is ", 0), 0U) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
}

INSTANTIATE_TEST_SUITE_P(
    Values, BadMembers,
    testing::Values(BadMember{"timeout", [](Config& c) { c.timeout = 0ms; }},
                    BadMember{"timeout", [](Config& c) { c.timeout = -1s; }},
                    BadMember{"timeout", [](Config& c) { c.timeout = std::chrono::milliseconds::max(); }},
                    BadMember{"log_level", [](Config& c) { c.log_level = "loud"; }},
                    BadMember{"log_level", [](Config& c) { c.log_level = ""; }},
                    BadMember{"staging_bytes", [](Config& c) { c.staging_bytes = 0; }},
                    BadMember{"staging_bytes", [](Config& c) { c.staging_bytes = 65535; }},
                    BadMember{"spin", [](Config& c) { c.spin = -1us; }},
                    BadMember{"spin", [](Config& c) { c.spin = 1000001us; }},
                    BadMember{"host_id", [](Config& c) { c.host_id = ""; }},
                    BadMember{"host_id", [](Config& c) { c.host_id = std::string(65, 'x'); }},
                    BadMember{"backend", [](Config& c) { c.backend = static_cast<BackendKind>(5); }},
                    BadMember{"wire", [](Config& c) { c.wire = static_cast<WireFormat>(3); }},
                    BadMember{"device_backend",
                              [](Config& c) { c.device_backend = static_cast<DeviceBackendKind>(4); }},
                    BadMember{"flight_recorder", [](Config& c) { c.flight_recorder = (1U << 20U) + 1; }},
                    BadMember{"flight_directory", [](Config& c) { c.flight_directory = ""; }},
                    BadMember{"nccl_library", [](Config& c) { c.nccl_library = ""; }},
                    BadMember{"torch_heap", [](Config& c) { c.torch_heap = 1000; }}));

TEST(Config, BordersAreAllowed) {
  Config config;
  config.timeout = 1ms;
  config.staging_bytes = std::size_t{64} << 10;
  config.spin = 1s;
  config.host_id = std::string(64, 'x');
  config.flight_recorder = 1U << 20U;
  EXPECT_NO_THROW(config.check());
  config.timeout = std::chrono::hours(8760);
  config.spin = 0us;
  EXPECT_NO_THROW(config.check());
}

TEST(ParseBytes, Table) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("123"), 123U);
  EXPECT_EQ(parse_bytes("4K"), 4096U);
  EXPECT_EQ(parse_bytes("4k"), 4096U);
  EXPECT_EQ(parse_bytes("4M"), 4194304U);
  EXPECT_EQ(parse_bytes("128G"), std::size_t{128} << 30);
  EXPECT_EQ(parse_bytes("2T"), std::size_t{2} << 40);
  EXPECT_EQ(parse_bytes("64Mi"), std::size_t{64} << 20);
  EXPECT_EQ(parse_bytes("64MiB"), std::size_t{64} << 20);
  EXPECT_EQ(parse_bytes("3kiB"), 3072U);
  EXPECT_EQ(parse_bytes("17179869183G"), std::size_t{17179869183U} << 30);
  for (char const* bad : {"", "M", "-1", "+1", " 1", "1 ", "1.5M", "4MB", "4Mib", "4MiBs", "4iB", "4B", "4P", "0x10",
                          "17179869184G", "16777216T", "18446744073709551616"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(ParseDuration, Table) {
  EXPECT_EQ(parse_duration("20us"), 20us);
  EXPECT_EQ(parse_duration("0ns"), 0ns);
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("300s"), 300s);
  EXPECT_EQ(parse_duration("300"), 300s);
  EXPECT_EQ(parse_duration("1.5ms"), 1500us);
  EXPECT_EQ(parse_duration("0.1us"), 100ns);
  for (char const* bad : {"", "s", "-1s", "1h", "1 s", " 1s", "1ss", "nan", "inf", "nans", "1e30s", "us"}) {
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace weft
