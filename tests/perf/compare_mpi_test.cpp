// --compare mpi, which needs ranks that mpirun has started.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "harness/shell.hpp"

namespace {

TEST(CompareMpi, MeasuresTypesThatMpiLacksWithoutIt) {
  auto const outcome = weft::test::run_shell("timeout 90 " WEFT_MPIRUN " --oversubscribe -np 2 " WEFT_ALL_REDUCE_PERF
                                             " -d all -o all -b 64 -e 64 -n 1 -w 1 --rounds 1 --compare mpi");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  std::map<std::string, bool> compared;  // by type and reduction
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string field; words >> field;) fields.push_back(field);
    if (fields.empty() || fields[0] != "64") continue;
    compared[fields[2] + " " + fields[3]] = fields[fields.size() - 2] != "n/a";
  }
  // A time may be n/a by chance as well, where it drowned in noise.
  for (auto const* lacking : {"half sum", "bfloat16 max", "float avg"}) {
    ASSERT_EQ(compared.count(lacking), 1U) << lacking << "\n" << outcome.output;
    EXPECT_FALSE(compared[lacking]) << lacking << "\n" << outcome.output;
  }
  EXPECT_NE(outcome.output.find("MPI has no such data type"), std::string::npos) << outcome.output;
}

}  // namespace
