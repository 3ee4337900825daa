#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <random>

#include "checkpoint.hpp"
#include "temporary_folder.hpp"

namespace weft::test {
namespace {

using train_gpt::Checkpoint;

Checkpoint example() {
  Checkpoint checkpoint;
  checkpoint.model = {.layers = 1, .width = 8, .heads = 2, .seq = 4};
  checkpoint.batch = 6;
  checkpoint.lr = 0.1F;
  checkpoint.seed = 77;
  checkpoint.text_fingerprint = 0xFEDCBA9876543210ULL;
  checkpoint.optimizer = "lion";
  checkpoint.weight_decay = 0.25;
  checkpoint.clip = 3;
  checkpoint.warmup = 4;
  checkpoint.decay = "cosine";
  checkpoint.step = 12;
  checkpoint.applied = 11;
  checkpoint.scaler = {1024, 3, 1};
  std::mt19937 random(5);
  for (int i = 0; i < 301; ++i) checkpoint.values.push_back(static_cast<float>(random()) * 1e-9F);
  return checkpoint;
}

std::string read(std::string const& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string message_of(std::string const& path) {
  try {
    (void)train_gpt::load_checkpoint(path);
  } catch (std::runtime_error const& error) {
    return error.what();
  }
  return "";
}

TEST(Checkpoint, LoadsWhatWasSaved) {
  TemporaryFolder const folder;
  Checkpoint const saved = example();
  save_checkpoint(folder.file("a"), saved);
  Checkpoint const loaded = train_gpt::load_checkpoint(folder.file("a"));
  EXPECT_EQ(loaded.model, saved.model);
  EXPECT_EQ(loaded.batch, saved.batch);
  EXPECT_EQ(loaded.lr, saved.lr);
  EXPECT_EQ(loaded.seed, saved.seed);
  EXPECT_EQ(loaded.text_fingerprint, saved.text_fingerprint);
  EXPECT_EQ(loaded.step, saved.step);
  EXPECT_EQ(loaded.optimizer, saved.optimizer);
  EXPECT_EQ(loaded.weight_decay, saved.weight_decay);
  EXPECT_EQ(loaded.clip, saved.clip);
  EXPECT_EQ(loaded.warmup, saved.warmup);
  EXPECT_EQ(loaded.decay, saved.decay);
  EXPECT_EQ(loaded.applied, saved.applied);
  EXPECT_EQ(loaded.scaler, saved.scaler);
  EXPECT_EQ(loaded.values, saved.values);
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.tmp")));
}

TEST(Checkpoint, FindsEveryDamagedByteAndEveryCut) {
  TemporaryFolder const folder;
  save_checkpoint(folder.file("a"), example());
  std::string const good = read(folder.file("a"));
  for (std::size_t at = 0; at < good.size(); at += 7) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(folder.file("b"), std::ios::binary) << damaged;
    ASSERT_NE(message_of(folder.file("b")).find(folder.file("b")), std::string::npos) << "byte " << at;
    std::ofstream(folder.file("b"), std::ios::binary) << good.substr(0, at);
    ASSERT_NE(message_of(folder.file("b")).find(folder.file("b")), std::string::npos) << "cut at " << at;
  }
}

TEST(Checkpoint, SaysWhyItCannotBeReadOrWritten) {
  TemporaryFolder const folder;
  EXPECT_NE(message_of(folder.file("none")).find("No such file"), std::string::npos);
  std::ofstream(folder.file("text")) << std::string(100, 'x');
  EXPECT_NE(message_of(folder.file("text")).find("not a checkpoint"), std::string::npos);
  EXPECT_THROW(save_checkpoint(folder.file("no/such/folder"), example()), std::runtime_error);
  Checkpoint diverged = example();
  diverged.values[300] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(save_checkpoint(folder.file("diverged"), diverged), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(folder.file("diverged")));
}

TEST(Checkpoint, GivenOptionsMustAgree) {
  Checkpoint const checkpoint = example();
  train_gpt::Options options;
  options.resume = "file";
  adopt(options, checkpoint, checkpoint.text_fingerprint);
  EXPECT_EQ(options.model, checkpoint.model);
  EXPECT_EQ(options.seed, checkpoint.seed);
  EXPECT_EQ(options.effective_weight_decay(), 0.25);
  EXPECT_EQ(options.clip, 3);
  EXPECT_EQ(options.decay, "cosine");
  options.given.insert("--width");
  EXPECT_NO_THROW(adopt(options, checkpoint, checkpoint.text_fingerprint));
  options.model.width = 16;
  EXPECT_THROW(adopt(options, checkpoint, checkpoint.text_fingerprint), std::runtime_error);
  options.model.width = 8;
  EXPECT_THROW(adopt(options, checkpoint, 1), std::runtime_error);
  options.steps = 12;
  EXPECT_THROW(adopt(options, checkpoint, checkpoint.text_fingerprint), std::runtime_error);
}

}  // namespace
}  // namespace weft::test
