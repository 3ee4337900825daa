// weft-doctor --paths on the dumps of a job.
#include <gtest/gtest.h>

#include "harness/ranks.hpp"
#include "tools/job.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

TEST(DoctorPaths, SaysWhichRankKeptACallFromZeroCopy) {
  DumpFolder const folder;
  CommunicatorOptions options;
  options.config = folder.config();
  auto const exits = run_forked_ranks(
      2,
      [](Communicator& world) {
        auto const shared = world.allocate(1U << 20U, DataType::f32);
        auto const own = Buffer::host(1U << 20U, DataType::f32);
        world.all_reduce(shared.view(), shared.view(), ReduceOp::sum);
        for (int i = 0; i < 3; ++i) {
          world.all_reduce(world.rank() == 1 ? own.view() : shared.view(), shared.view(), ReduceOp::max);
        }
        dump_flight_recorders();
        return 0;
      },
      options);
  expect_all_succeeded(exits);
  auto const result = run_doctor("--paths " + folder.path());
  EXPECT_EQ(0, result.code) << result.output;
  EXPECT_NE(std::string::npos, result.output.find("1 call of all_reduce(1048576 × f32, sum): zero copy"))
      << result.output;
  EXPECT_NE(std::string::npos,
            result.output.find("3 calls of all_reduce(1048576 × f32, max): copied: rank 1's send buffer"))
      << result.output;
  EXPECT_EQ(0, run_doctor("--paths --json " + folder.path()).code);
}

}  // namespace
}  // namespace weft::test
