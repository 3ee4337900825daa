// Units of equal size, as the blocks of a transformer are: a rank that uses them in another order than the others, or
// other ones, is found out by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/fully_sharded.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kUnits = 4;

struct Pass {
  std::vector<std::size_t> forward{0, 1, 2, 3};
  std::vector<std::size_t> backward{3, 2, 1, 0};
  bool held = false;  ///< under no_sync(), and followed by one that is not
};

/// A model of equal units, rank 0's values.
FullySharded equal_units(Communicator& world, FullyShardedOptions const& options) {
  std::vector<std::vector<float>> values;
  std::vector<ShardedUnit> units;
  for (std::size_t u = 0; u < kUnits; ++u) values.emplace_back(96, static_cast<float>(u + 1));
  for (std::size_t u = 0; u < kUnits; ++u) {
    units.push_back({fmt::format("layer {}", u), {{{std::span<float>(values[u])}, SgdOptions{.lr = 0}}}});
  }
  return {world, units, options};
}

/// Every unit has to have its own values, whatever other ranks do.
void run_pass(FullySharded& model, Pass const& pass) {
  auto const check = [&](std::size_t unit) {
    auto const view = model.parameter(unit);
    std::span<float const> const values(static_cast<float const*>(view.data), view.count);
    for (float const value : values) ASSERT_EQ(value, static_cast<float>(unit + 1));
  };
  for (std::size_t const unit : pass.forward) {
    model.before_forward(unit);
    check(unit);
    model.after_forward(unit);
  }
  for (std::size_t const unit : pass.backward) {
    model.before_backward(unit);
    check(unit);
    auto const view = model.gradient(unit);
    std::memset(view.data, 0, view.bytes());
    model.after_backward(unit);
  }
}

void run(FullySharded& model, Pass const& pass) {
  if (pass.held) {
    model.no_sync([&] { run_pass(model, pass); });
    run_pass(model, {});
  } else {
    run_pass(model, pass);
  }
  model.step();
}

/// What all ranks are told when rank 1 makes `odd` in step `when` of 3. No model is destroyed before all have been.
void expect_found_out(int ranks, FullyShardedOptions const& options, Pass const& odd, int when,
                      std::vector<std::string> const& words) {
  SCOPED_TRACE(
      fmt::format("{} ranks, prefetch {}, shard size {}, step {}", ranks, options.prefetch, options.shard_size, when));
  run_thread_ranks(ranks, [&](Communicator& world) {
    auto model = equal_units(world, options);
    std::string what;
    try {
      for (int step = 0; step < 3; ++step) run(model, world.rank() == 1 && step == when ? odd : Pass{.held = odd.held});
      ADD_FAILURE() << "rank " << world.rank() << " was told nothing";
    } catch (Error const& error) {
      what = error.what();
      EXPECT_EQ(ErrorCode::mismatch, error.code()) << what;
    }
    for (auto const& word : words) EXPECT_NE(std::string::npos, what.find(word)) << what << "\ndoes not say\n" << word;
    try {
      model.before_forward(0);
      ADD_FAILURE() << "went on";
    } catch (Error const& error) {
      EXPECT_EQ(what, error.what());
    }
    world.barrier();
  });
}

void expect_found_out_always(Pass const& odd, std::vector<std::string> const& words) {
  for (int const ranks : {2, 3}) {
    for (std::size_t const prefetch : {0U, 1U}) {
      for (int const when : {0, 2}) expect_found_out(ranks, {.prefetch = prefetch}, odd, when, words);
    }
  }
}

// What is gathered ahead may be the same, and then be gathered again.
TEST(FullyShardedOrder, ForwardInAnother) {
  Pass const odd{.forward = {0, 2, 1, 3}};
  expect_found_out_always(odd, {"unit 'layer 1' in ", "rank 1 made "});
  expect_found_out(2, {.prefetch = 0}, odd, 1, {"unit 'layer 1' in forward", "unit 'layer 2' in forward"});
}

// Not before, and not by a later call: the unit that ranks sent for alike is there.
TEST(FullyShardedOrder, TheTurnOfTheUnitThatDiffersThrows) {
  run_thread_ranks(2, [](Communicator& world) {
    auto model = equal_units(world, {.prefetch = 0});
    std::size_t const mine = world.rank() == 0 ? 1 : 2;
    model.before_forward(0);
    model.after_forward(0);
    try {
      model.before_forward(mine);
      ADD_FAILURE() << "gathered";
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::mismatch, error.code());
      EXPECT_EQ(0U, std::string(error.what()).find(fmt::format("gathering unit 'layer {}': call ", mine)))
          << error.what();
    }
    world.barrier();
  });
}

TEST(FullyShardedOrder, BackwardInAnother) {
  expect_found_out_always({.backward = {3, 1, 2, 0}},
                          {"unit 'layer 1' in backward", "unit 'layer 2' in backward", "rank 1 made "});
}

TEST(FullyShardedOrder, BackwardOfOneLeftOut) {
  expect_found_out_always({.backward = {3, 1, 0}},
                          {"unit 'layer 1' in backward", "unit 'layer 2' in backward", "rank 1 made "});
}

TEST(FullyShardedOrder, BackwardOfTheLastLeftOut) {
  expect_found_out_always({.backward = {3, 2, 1}}, {"unit 'layer 0' in backward", "rank 1 made barrier"});
}

TEST(FullyShardedOrder, OneLeftOutAltogether) {
  expect_found_out_always({.forward = {0, 2, 3}, .backward = {3, 2, 0}}, {"unit 'layer 1' in ", "rank 1 made "});
}

TEST(FullyShardedOrder, OneMore) {
  expect_found_out_always({.forward = {0, 1, 2, 1, 3}}, {"unit 'layer 1' in ", "rank 1 made "});
}

// Nothing is sent, and what is used is gathered already.
TEST(FullyShardedOrder, BackwardThatIsHeld) {
  std::vector<std::string> const words{"unit 'layer ", "rank 0 made ", "rank 1 made "};
  FullyShardedOptions const kept{.prefetch = 0, .reshard_after_forward = false};
  expect_found_out(2, kept, {.backward = {3, 2, 0, 1}, .held = true}, 2, words);
  expect_found_out(2, kept, {.backward = {3, 2, 1}, .held = true}, 2, words);
  expect_found_out(2, {.prefetch = 1}, {.backward = {3, 2, 0}, .held = true}, 2, words);
  expect_found_out(2, {.prefetch = 2}, {.backward = {2, 1, 0}, .held = true}, 2, words);
  for (HybridSum const sum : {HybridSum::by_group, HybridSum::rank_order}) {
    expect_found_out(4, {.shard_size = 1, .hybrid_sum = sum}, {.backward = {3, 2, 1}, .held = true}, 0,
                     {"backward 3 under no_sync", "unit 'layer 0' in backward", "made no more"});
  }
}

TEST(FullyShardedOrder, AllGroupsOfReplicasAreTold) {
  for (HybridSum const sum : {HybridSum::by_group, HybridSum::rank_order}) {
    for (Pass const& odd : {Pass{.forward = {0, 2, 1, 3}}, Pass{.backward = {3, 1, 2, 0}}, Pass{.backward = {3, 2, 0}},
                            Pass{.backward = {3, 2, 1}}}) {
      for (int const shard_size : {1, 2}) {
        FullyShardedOptions const options{.shard_size = shard_size, .hybrid_sum = sum};
        if (shard_size == 1 && odd.forward != Pass{}.forward) continue;  // nothing is gathered
        expect_found_out(4, options, odd, 1, {"differs between ranks", "rank "});
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
