#include "weft_doctor/paths.hpp"

#include <gtest/gtest.h>

namespace weft::doctor {
namespace {

constexpr char const* kDump =
    R"_({"weft_flight": 1, "communicator": "c0ffee", "name": "world", "rank": RANK, "size": 2, "pid": 7, "host": "node1",
"written_ns": 100, "calls": [
{"sequence": 1, "call": "barrier()", "state": "finished", "path": null, "enqueued_ns": null, "started_ns": 1, "finished_ns": 2},
{"sequence": 2, "call": "all_reduce(9 × f32, sum)", "state": "finished", "path": "zero copy", "enqueued_ns": null,
 "started_ns": 3, "finished_ns": 4},
{"sequence": 3, "call": "all_reduce(9 × f32, sum)", "state": "finished", "path": "copied: rank 1's", "enqueued_ns": null,
 "started_ns": 5, "finished_ns": 6},
{"sequence": 4, "call": "all_reduce(9 × f32, sum)", "state": "finished", "path": "copied: rank 1's", "enqueued_ns": null,
 "started_ns": 7, "finished_ns": 8}
]})_";

Dump dump_of(int rank) {
  std::string text = kDump;
  return parse_dump("a.json", text.replace(text.find("RANK"), 4, std::to_string(rank)));
}

TEST(CallPaths, AreCountedOnceForAllRanksTheMostFrequentFirst) {
  auto const paths = summarise_paths({dump_of(0), dump_of(1)});
  ASSERT_EQ(2U, paths.size());
  EXPECT_EQ("copied: rank 1's", paths[0].path);
  EXPECT_EQ(2U, paths[0].calls);
  EXPECT_EQ("world", paths[0].name);
  EXPECT_EQ("zero copy", paths[1].path);
  EXPECT_EQ(1U, paths[1].calls);
}

TEST(CallPaths, NothingIsToldOfDumpsWithoutPaths) {
  auto dump = dump_of(0);
  for (auto& call : dump.calls) call.path.clear();
  EXPECT_TRUE(summarise_paths({dump}).empty());
}

}  // namespace
}  // namespace weft::doctor
