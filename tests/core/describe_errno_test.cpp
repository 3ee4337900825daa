#include "core/describe_errno.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>

namespace weft {
namespace {

TEST(DescribeErrno, NamesTheLimitThatWasReached) {
  EXPECT_EQ("No such file or directory", describe_errno(ENOENT));
  EXPECT_EQ("Too many open files; allow more (ulimit -n)", describe_errno(EMFILE));
  EXPECT_EQ("File too large; allow larger files (ulimit -f)", describe_errno(EFBIG));
}

TEST(DescribeErrno, MemoryIsLimitedOnlyWhereItIs) {
  rlimit before{};
  ASSERT_EQ(0, ::getrlimit(RLIMIT_AS, &before));
  if (before.rlim_max != RLIM_INFINITY) GTEST_SKIP() << "this process's memory is limited for good";
  rlimit much = before;
  much.rlim_cur = rlim_t{1} << 46U;
  ASSERT_EQ(0, ::setrlimit(RLIMIT_AS, &much));
  auto const limited = describe_errno(ENOMEM);
  much.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(0, ::setrlimit(RLIMIT_AS, &much));
  auto const unlimited = describe_errno(ENOMEM);
  ASSERT_EQ(0, ::setrlimit(RLIMIT_AS, &before));
  EXPECT_EQ("Cannot allocate memory; this process may have no more (ulimit -v)", limited);
  EXPECT_EQ("Cannot allocate memory", unlimited);
}

}  // namespace
}  // namespace weft
