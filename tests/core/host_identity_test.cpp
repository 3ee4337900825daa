#include "core/host_identity.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "runtime/error_matchers.hpp"

namespace weft {
namespace {

TEST(HostIdentity, IsWhatTheConfigurationSays) {
  Config config;
  EXPECT_EQ(host_identity(config), host_identity(config));
  config.host_id = "left";
  EXPECT_EQ("left", host_identity(config));
  EXPECT_EQ("left", host_name(config));
}

TEST(HostIdentity, AProcessThatMayOpenNoFilesIsNotTakenForAnotherHost) {
  rlimit before{};
  ASSERT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &before));
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &none));
  test::expect_error(ErrorCode::system, {"boot_id", "Too many open files", "ulimit -n"},
                     [] { static_cast<void>(host_identity(Config{})); });
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &before));
}

}  // namespace
}  // namespace weft
