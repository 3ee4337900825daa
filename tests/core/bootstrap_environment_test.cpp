#include <gtest/gtest.h>

#include <cstdlib>

#include <map>
#include <string>

#include "core/launcher.hpp"
#include "harness/ranks.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"
#include "weft/launch.hpp"

namespace weft {
namespace {

void forget_launchers() {
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "RANK",
                           "WORLD_SIZE", "TORCHELASTIC_RUN_ID"}) {
    unsetenv(name);
  }
}

TEST(BootstrapFromEnvironment, NothingMeansASingleRank) {
  test::expect_all_succeeded(test::run_forked(1, [](int) {
    forget_launchers();
    EXPECT_EQ(bootstrap_from_environment()->name(), "single");
    setenv("RANK", "0", 1);  // half of torchrun's pair is not torchrun
    EXPECT_EQ(bootstrap_from_environment()->name(), "single");
    return 0;
  }));
}

TEST(BootstrapFromEnvironment, TorchrunWithinAnotherLauncherHasStartedItsRanks) {
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    test::expect_all_succeeded(test::run_forked(1, [name](int) {
      forget_launchers();
      setenv(name, "1", 1);
      EXPECT_TRUE(started_by_mpi());
      for (char const* one : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) setenv(one, "1", 1);
      for (char const* zero : {"RANK", "LOCAL_RANK"}) setenv(zero, "0", 1);
      setenv("MASTER_PORT", "29500", 1);
      EXPECT_TRUE(started_by_mpi()) << "a script's variables";
      setenv("TORCHELASTIC_RUN_ID", "none", 1);
      EXPECT_FALSE(started_by_mpi());
      EXPECT_EQ(bootstrap_from_environment()->name(), "torchrun");
      return 0;
    }));
  }
}

using Variables = std::map<char const*, char const*>;

/// What check_launcher() says in an environment with these variables alone; empty when content.
std::string complaint(Variables const& variables, int size) {
  forget_launchers();
  for (auto const& [name, value] : variables) setenv(name, value, 1);
  std::string said;
  try {
    check_launcher(size, "Some MPI v1");
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    said = error.what();
  }
  forget_launchers();
  return said;
}

TEST(CheckLauncher, AProcessAloneAmongSeveralIsOfAnotherMpi) {
  for (auto const& [variables, named] : std::map<Variables, std::string>{
           {{{"OMPI_COMM_WORLD_SIZE", "4"}}, "OMPI_COMM_WORLD_SIZE=4"},
           {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE=4"},
           {{{"PMI_SIZE", "2"}}, "PMI_SIZE=2"},
           {{{"PMIX_RANK", "3"}}, "PMIX_RANK=3"},
           {{{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "16"}}, "SLURM_STEP_NUM_TASKS=16"}}) {
    std::string const said = complaint(variables, 1);
    EXPECT_EQ(said.rfind(named + " says that", 0), 0U) << said;
    EXPECT_NE(said.find("Some MPI v1"), std::string::npos) << said;
    EXPECT_NE(said.find("start it with"), std::string::npos) << said;
    EXPECT_EQ(complaint(variables, 4), "") << "MPI found several";
  }
}

TEST(CheckLauncher, OneProcessMayBeAlone) {
  for (Variables const& variables :
       {Variables{}, Variables{{"OMPI_COMM_WORLD_SIZE", "1"}}, Variables{{"PMI_SIZE", "1"}},
        Variables{{"PMIX_RANK", "0"}}, Variables{{"PMI_SIZE", "8"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
        Variables{{"PMI_SIZE", ""}}, Variables{{"SLURM_STEP_NUM_TASKS", "4"}}}) {
    EXPECT_EQ(complaint(variables, 1), "");
  }
}

#if WEFT_WITH_MPI
TEST(BootstrapFromEnvironment, AnotherMpisLauncherIsAnErrorAndNotOneRank) {
  auto const exits = test::run_forked(1, [](int) {
    forget_launchers();
    setenv("PMI_SIZE", "2", 1);  // as MPICH's mpiexec -n 2 would
    return launch({}, [](Communicator&) { return 0; });
  });
  EXPECT_NE(exits[0].code, 0);
  EXPECT_EQ(exits[0].output.rfind("weft: PMI_SIZE=2 says that", 0), 0U) << exits[0].output;
  EXPECT_EQ(exits[0].output.find('\n'), exits[0].output.size() - 1) << exits[0].output;
}
#else
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
