#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

#include "agreement.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using train_gpt::Inputs;

/// What three ranks say of inputs that `change` changed on rank 2; each differing text once.
std::set<std::string> said(std::function<void(Inputs&)> const& change) {
  std::mutex mutex;
  std::set<std::string> texts;
  run_thread_ranks(3, [&](Communicator& world) {
    Inputs inputs;
    inputs.text.source = "text";
    if (world.rank() == 2) change(inputs);
    std::string text;
    try {
      train_gpt::check_same_everywhere(world, inputs);
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      text = error.what();
    }
    std::lock_guard const lock(mutex);
    texts.insert(text);
  });
  return texts;
}

std::string differs(std::string const& what) {
  return "ranks 0 and 2 were started differently: " + what + " on rank 2; start all alike";
}

TEST(TrainGptAgreement, AllRanksSayTheSameOfWhatDiffers) {
  using Said = std::set<std::string>;
  EXPECT_EQ(said([](Inputs&) {}), Said{""});
  EXPECT_EQ(said([](Inputs& i) { i.options.strategy = "zero2"; }),
            Said{differs("--strategy is ddp on rank 0 and zero2")});
  EXPECT_EQ(said([](Inputs& i) { i.options.checkpoint = "ck"; }),
            Said{differs("--checkpoint is off on rank 0 and ck")});
  EXPECT_EQ(said([](Inputs& i) { i.options.step_schedule = "weft"; }),
            Said{differs("--schedule is off on rank 0 and weft")});
  EXPECT_EQ(said([](Inputs& i) { i.options.save = "file"; }), Said{differs("--save is off on rank 0 and on")});
}

TEST(TrainGptAgreement, ACheckpointIsNamedBeforeWhatItBringsAlong) {
  std::set<std::string> const texts = said([](Inputs& inputs) {
    inputs.checkpoint.emplace();
    inputs.checkpoint->step = 7;
    inputs.options.lr = 0.5F;
  });
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_EQ(
      texts.begin()->rfind("ranks 0 and 2 were started differently: --resume is off on rank 0 and from step 7", 0), 0U)
      << *texts.begin();
}

TEST(TrainGptAgreement, WhatFailsOnRank0FailsAlike) {
  run_thread_ranks(3, [](Communicator& world) {
    int runs = 0;
    EXPECT_NO_THROW(train_gpt::alike(world, [&] { ++runs; }));
    EXPECT_EQ(runs, 1);
    try {
      train_gpt::alike(world, [&] {
        if (world.rank() == 0) throw std::runtime_error("disk full");
      });
      ADD_FAILURE() << "rank " << world.rank() << " knows nothing";
    } catch (std::runtime_error const& error) {
      EXPECT_STREQ(error.what(), "rank 0: disk full");
    }
  });
}

}  // namespace
}  // namespace weft::test
