// What a run says of itself: the table, --report-json and --trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "small_runs.hpp"

namespace weft::test {
namespace {

struct Piece {
  double start;
  double end;
};

/// Milliseconds during which some piece of `a` (and, when given, some piece of `b`) is active; counts at every
/// boundary.
double active_ms(std::vector<Piece> const& a, std::vector<Piece> const* b) {
  std::vector<double> cuts;
  for (std::vector<Piece> const* pieces : {&a, b != nullptr ? b : &a}) {
    for (Piece const& piece : *pieces) cuts.insert(cuts.end(), {piece.start, piece.end});
  }
  std::ranges::sort(cuts);
  auto const covered = [](std::vector<Piece> const& pieces, double at) {
    return std::ranges::any_of(pieces, [at](Piece const& p) { return p.start <= at && at < p.end; });
  };
  double total = 0;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    double const middle = (cuts[i] + cuts[i + 1]) / 2;
    if (covered(a, middle) && (b == nullptr || covered(*b, middle))) total += cuts[i + 1] - cuts[i];
  }
  return total;
}

class Traces : public testing::TestWithParam<char const*> {};

INSTANTIATE_TEST_SUITE_P(TrainGpt, Traces, testing::ValuesIn(strategies()),
                         [](auto const& strategy) { return std::string(strategy.param); });

TEST_P(Traces, HiddenPercentFollowsFromTheTrace) {
  TemporaryFolder const folder;
  Json const run = report_of(folder, "--steps 12 --ranks 2 --link 50us:100MB/s --strategy " + std::string(GetParam()) +
                                         small_buckets(GetParam()) + " --trace " + folder.file("trace"))["runs"][0];
  EXPECT_NE(run["link"].get<std::string>().find("emulated"), std::string::npos);
  std::map<int, std::map<std::string, std::vector<Piece>>> steps;  // step → lane → pieces of rank 0
  Json const trace = Json::parse(read_file(folder.file("trace")));
  for (Json const& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == 0) {
      double const start = event["ts"].get<double>() / 1e3;
      int const step = std::stoi(event["name"].get<std::string>().substr(5));
      steps[step][event["cat"]].push_back({start, start + event["dur"].get<double>() / 1e3});
    }
  }
  ASSERT_EQ(steps.size(), 12U);
  ASSERT_EQ(run["steps"].size(), 12U);
  for (Json const& figures : run["steps"]) {
    auto& lanes = steps.at(figures["step"].get<int>() + 1);
    double const communication = active_ms(lanes["communication"], nullptr);
    double const hidden = active_ms(lanes["communication"], &lanes["compute"]);
    EXPECT_GT(communication, 0.5);
    EXPECT_NEAR(communication, figures["communication_ms"], 0.01);
    EXPECT_NEAR(hidden, figures["hidden_ms"], 0.01);
    EXPECT_NEAR(100 * hidden / communication, figures["hidden_percent"], 0.5);
  }
}

TEST(TrainGpt, CompareRunsEveryVariantFromTheSameStart) {
  TemporaryFolder const folder;
  Json const runs = report_of(folder, "--steps 6 --ranks 2 --compare --link auto --bucket-mb 0.03")["runs"];
  std::vector<std::string> names;
  for (Json const& run : runs) {
    names.push_back(run["name"]);
    EXPECT_GT(run["step_ms"].get<double>(), 0.0);
    EXPECT_GT(run["tokens_per_s"].get<double>(), 0.0);
    if (run["name"] != "compute only") {
      EXPECT_EQ(run["losses"], runs[0]["losses"]) << run["name"];
      EXPECT_NE(run["link"].get<std::string>().find("emulated"), std::string::npos);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"weft", "no overlap", "no bucketing", "compute only"}));
  EXPECT_EQ(runs[1]["hidden_ms"].get<double>(), 0.0);  // nothing overlaps where overlap is off
}

std::vector<std::string> words_of(std::string const& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string line_starting(std::string const& text, std::string const& start) {
  std::size_t const at = ("\n" + text).find("\n" + start);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(TrainGpt, TheReportHasEveryPrintedFigureUnderItsName) {
  TemporaryFolder const folder;
  ProgramResult const result = run_train_gpt(
      kSmall + "--steps 6 --ranks 2 --compare --link 50us:100MB/s --report-json " + folder.file("report"));
  ASSERT_EQ(result.code, 0) << result.error;
  Json const runs = Json::parse(read_file(folder.file("report")))["runs"];
  struct Column {
    std::string name;
    std::string key;
    double precision;
  };
  std::vector<Column> const columns{{"step ms", "step_ms", 0.0051},
                                    {"compute ms", "compute_ms", 0.0051},
                                    {"communication ms", "communication_ms", 0.0051},
                                    {"hidden %", "hidden_percent", 0.051},
                                    {"exposed ms", "exposed_ms", 0.0051},
                                    {"tokens/s", "tokens_per_s", 0.51},
                                    {"vs weft", "vs_weft", 0.00051},
                                    {"bound ms", "bound_ms", 0.0051},
                                    {"step/bound", "step_over_bound", 0.00051}};
  std::string names;
  for (Column const& column : columns) names += column.name + " ";
  std::string printed;
  for (std::string const& word : words_of(line_starting(result.out, "run "))) printed += word + " ";
  EXPECT_EQ(printed, "run link " + names);

  for (Json const& run : runs) {
    std::vector<std::string> const words = words_of(line_starting(result.out, run["name"].get<std::string>() + " "));
    ASSERT_GT(words.size(), columns.size()) << result.out;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      EXPECT_NEAR(std::stod(words[words.size() - columns.size() + i]), run[columns[i].key].get<double>(),
                  columns[i].precision)
          << run["name"] << ' ' << columns[i].name;
    }
  }
}

TEST(TrainGpt, EveryKeyOfTheReportIsDocumented) {
  TemporaryFolder const folder;
  Json const report = report_of(folder, "--steps 6 --ranks 2 --compare --link auto");
  std::string const readme = read_file(TRAIN_GPT_README);
  ASSERT_GT(readme.size(), 1000U);
  Json const& run = report["runs"][0];
  for (Json const* object : {&run, &run["steps"][0], &run["last_step_buckets"][0]}) {
    for (auto const& [key, value] : object->items()) {
      bool const named =
          readme.find("`" + key + "`") != std::string::npos || readme.find("`" + key + "[]`") != std::string::npos;
      EXPECT_TRUE(named) << key << " is not explained in examples/train_gpt/README.md";
    }
  }
}

}  // namespace
}  // namespace weft::test
