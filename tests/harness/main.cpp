#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

/// Written before the alarm is armed, read by its handler.
char g_running[256] = "no test";

extern "C" void on_alarm(int /*signal*/) {
  // Only async-signal-safe calls.
  char const prefix[] = "\nwatchdog: this test took too long and is ended: ";
  (void)!write(STDERR_FILENO, prefix, sizeof prefix - 1);
  (void)!write(STDERR_FILENO, g_running, std::strlen(g_running));
  (void)!write(STDERR_FILENO, "\n", 1);
  std::abort();
}

/// Aborts the program when one test runs longer than its limit (WEFT_TEST_LIMIT_S, default 120). An alarm and not a
/// thread, so that tests may fork; forked children do not inherit it.
class Watchdog : public testing::EmptyTestEventListener {
 public:
  explicit Watchdog(unsigned limit_seconds) : limit_seconds_(limit_seconds) { std::signal(SIGALRM, on_alarm); }

  void OnTestStart(testing::TestInfo const& info) override {
    std::snprintf(g_running, sizeof g_running, "%s.%s", info.test_suite_name(), info.name());
    alarm(limit_seconds_);
  }
  void OnTestEnd(testing::TestInfo const& /*info*/) override { alarm(0); }

 private:
  unsigned limit_seconds_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  char const* limit = std::getenv("WEFT_TEST_LIMIT_S");
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog(limit == nullptr ? 120 : std::stoul(limit)));
  return RUN_ALL_TESTS();
}
