#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

TEST(BootstrapFromEnvironment, NothingMeansASingleRank) {
  test::expect_all_succeeded(test::run_forked(1, [](int) {
    for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "RANK", "WORLD_SIZE"}) unsetenv(name);
    EXPECT_EQ(bootstrap_from_environment()->name(), "single");
    setenv("RANK", "0", 1);  // half of torchrun's pair is not torchrun
    EXPECT_EQ(bootstrap_from_environment()->name(), "single");
    return 0;
  }));
}

#if !WEFT_WITH_MPI
TEST(BootstrapFromEnvironment, MpirunWithoutMpiIsAnErrorAndNotOneRank) {
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    auto const exits = test::run_forked(1, [name](int) {
      setenv(name, "2", 1);
      (void)bootstrap_from_environment();
      return 0;
    });
    EXPECT_NE(exits[0].output.find("unsupported: this process was started by mpirun"), std::string::npos)
        << exits[0].output;
  }
}
#endif

}  // namespace
}  // namespace weft
