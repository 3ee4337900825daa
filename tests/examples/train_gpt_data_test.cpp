#include <gtest/gtest.h>

#include <fstream>

#include "data.hpp"
#include "temporary_folder.hpp"

namespace weft::test {
namespace {

using train_gpt::Batch;
using train_gpt::BatchSampler;
using train_gpt::Text;

Text counting_text(std::size_t bytes) {
  Text text{"counting", {}};
  for (std::size_t i = 0; i < bytes; ++i) text.bytes.push_back(static_cast<std::uint8_t>(i * 7 + i / 256));
  return text;
}

std::string message_of(std::string const& path, int seq) {
  try {
    (void)train_gpt::load_text(path, seq);
  } catch (std::runtime_error const& error) {
    return error.what();
  }
  return "";
}

TEST(BatchSampler, RanksShareOneGlobalBatch) {
  Text const text = counting_text(5000);
  for (int step : {0, 1, 17}) {
    Batch const whole = BatchSampler(text, 9, 12, 42, 0, 1).sample(step);
    for (int ranks : {2, 3, 4, 12}) {
      Batch joined;
      for (int rank = 0; rank < ranks; ++rank) {
        Batch const part = BatchSampler(text, 9, 12, 42, rank, ranks).sample(step);
        joined.inputs.insert(joined.inputs.end(), part.inputs.begin(), part.inputs.end());
        joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
      }
      EXPECT_EQ(joined.inputs, whole.inputs) << ranks << " ranks";
      EXPECT_EQ(joined.targets, whole.targets) << ranks << " ranks";
    }
  }
}

TEST(BatchSampler, TargetsFollowInputsAndStepsDiffer) {
  Text const text = counting_text(5000);
  BatchSampler const sampler(text, 9, 4, 1, 0, 1);
  Batch const batch = sampler.sample(3);
  ASSERT_EQ(batch.inputs.size(), 36U);
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    if (i % 9 != 8) {
      EXPECT_EQ(batch.targets[i], batch.inputs[i + 1]);
    }
  }
  EXPECT_NE(batch.inputs, sampler.sample(4).inputs);
  EXPECT_NE(batch.inputs, BatchSampler(text, 9, 4, 2, 0, 1).sample(3).inputs);
}

TEST(BatchSampler, ShortestTextHasOneSequence) {
  Text const text = counting_text(10);
  Batch const batch = BatchSampler(text, 9, 2, 1, 0, 1).sample(0);
  EXPECT_EQ(batch.inputs.front(), text.bytes[0]);
  EXPECT_EQ(batch.targets.back(), text.bytes[9]);
}

TEST(LoadText, SaysWhatIsWrongWithAFile) {
  TemporaryFolder const folder;
  EXPECT_NE(message_of(folder.file("none"), 8).find("no such file"), std::string::npos);
  EXPECT_NE(message_of(folder.file(""), 8).find("not a regular file"), std::string::npos);
  std::ofstream(folder.file("empty")).flush();
  EXPECT_NE(message_of(folder.file("empty"), 8).find("is empty"), std::string::npos);
  std::ofstream(folder.file("short")) << "12345678";
  EXPECT_NE(message_of(folder.file("short"), 8).find("at least 9"), std::string::npos);
  EXPECT_EQ(message_of(folder.file("short"), 7), "");
}

}  // namespace
}  // namespace weft::test
