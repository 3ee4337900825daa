#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "sharding/fully_sharded_training.hpp"
#include "weft/error.hpp"

// Mistakes, disagreements and lost ranks.

namespace weft::test {
namespace {

template <typename Call>
void expect_error(ErrorCode code, std::string const& part, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nexpected: " << part;
  }
}

std::vector<ShardedUnit> two_units(Parameters const& parameters) {
  std::vector<BufferView> const& views = parameters.views();
  return {{"first", {{{views[0], views[1]}, SgdOptions{}}}}, {"second", {{{views[2]}, SgdOptions{}}}}};
}

TEST(FullyShardedErrors, CallsOutOfTurnNameUnitAndCall) {
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const parameters(std::vector<TensorSpec>{{10}, {20}, {30}});
    FullySharded model(world, two_units(parameters));
    auto const refuses = [](std::string const& part, auto&& call) {
      expect_error(ErrorCode::invalid_argument, part, call);
    };
    refuses("after_forward: unit 1 'second' is not in use", [&] { model.after_forward(1); });
    refuses("after_backward: unit 0 'first' is not in use", [&] { model.after_backward(0); });
    refuses("before_backward: unit 0 'first' had no forward", [&] { model.before_backward(0); });
    refuses("parameter: unit 1 'second' is not in use", [&] { (void)model.parameter(2); });
    refuses("step: no unit had a backward", [&] { model.step(); });
    refuses("reduce: no unit had a backward", [&] { model.reduce(); });
    refuses("before_forward: unit 2 of 2", [&] { model.before_forward(2); });
    refuses("parameter: index 3 of 3", [&] { (void)model.parameter(3); });
    refuses("call reduce() first", [&] { (void)model.measure_gradients(); });
    model.before_forward(0);
    refuses("before_forward: unit 0 'first' is in use already", [&] { model.before_forward(0); });
    refuses("before_backward: unit 0 'first' is in use already", [&] { model.before_backward(0); });
    refuses("after_backward: unit 0 'first' is not in use; call before_backward()", [&] { model.after_backward(0); });
    refuses("gradient: unit 0 'first' is not in backward", [&] { (void)model.gradient(1); });
    refuses("step: unit 0 'first' is in use; call after_forward()", [&] { model.step(); });
    refuses("no_sync: unit 0 'first' is in use", [&] { model.no_sync([] {}); });
    model.after_forward(0);
    model.before_backward(0);
    refuses("reduce: unit 0 'first' is in use; call after_backward()", [&] { model.reduce(); });
    for (std::size_t i = 0; i < 2; ++i) std::memset(model.gradient(i).data, 0, model.gradient(i).bytes());
    model.after_backward(0);
    refuses("gradient: unit 0 'first' is not in backward", [&] { (void)model.gradient(0); });
    model.reduce();
    refuses("before_backward: unit 0 'first' comes after reduce()", [&] { model.before_backward(0); });
    refuses("set_parameter: 3 elements for parameter 0, which has 10", [&] {
      std::vector<float> const values(3);
      model.set_parameter(0, values);
    });
    refuses("FullySharded::state: state 0 of parameter 0, which has 0", [&] { (void)model.state(0, 0); });
    refuses("FullySharded::set_state_shard: state 3 of parameter 0", [&] { model.set_state_shard(0, 3, {}); });
    refuses("FullySharded::options: group 9 of 2", [&] { (void)model.options(9); });
    refuses("FullySharded::set_lr: group 9 of 2", [&] { model.set_lr(9, 0.1); });
    refuses("SGD: lr is -5", [&] { model.set_lr(-5); });
    refuses("SGD: lr is nan", [&] { model.set_lr(1, std::nan("")); });
    refuses("FullySharded::set_options: group 9 of 2", [&] { model.set_options(9, SgdOptions{}); });
    refuses("FullySharded::set_options: group 0 is SGD with 0 states",
            [&] { model.set_options(0, SgdOptions{.momentum = 0.9}); });
    refuses("FullySharded::set_step_count: -7 steps", [&] { model.set_step_count(-7); });
    model.step();  // none of it did any harm
    EXPECT_EQ(model.step_count(), 1);
    refuses("before_backward: unit 0 'first' had no forward since the last step", [&] { model.before_backward(0); });
  });
}

TEST(FullyShardedErrors, AnErrorInTheMiddleOfATurnLeavesNestedNoSync) {
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const parameters(std::vector<TensorSpec>{{10}, {20}, {30}});
    FullySharded model(world, two_units(parameters));
    auto const interrupted = [&] {
      model.before_forward(0);
      throw std::runtime_error("out of data");
    };
    EXPECT_THROW(model.no_sync([&] { model.no_sync(interrupted); }), std::runtime_error);
    model.after_forward(0);
    model.before_backward(0);
    for (std::size_t i = 0; i < 2; ++i) std::memset(model.gradient(i).data, 0, model.gradient(i).bytes());
    model.after_backward(0);
    EXPECT_FALSE(model.holds_gradients(0)) << "still without communication";
    model.step();
  });
}

TEST(FullyShardedErrors, UnitsInUseTogetherMustFit) {
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const parameters(std::vector<TensorSpec>{{100}, {100}, {3000}});
    FullySharded model(world, two_units(parameters), {.prefetch = 0, .gradient_units = 1});
    model.before_forward(0);
    expect_error(ErrorCode::invalid_argument, "no room to gather unit 'second'", [&] { model.before_forward(1); });
    model.after_forward(0);
    model.before_forward(1);
    model.after_forward(1);

    FullySharded roomy(world, two_units(parameters),
                       {.prefetch = 1, .gather_cap = 16'000, .gradient_units = 1, .gradient_cap = 16'000});
    for (std::size_t const unit : {0U, 1U}) roomy.before_forward(unit);
    for (std::size_t const unit : {1U, 0U}) roomy.after_forward(unit);
    for (std::size_t const unit : {0U, 1U}) roomy.before_backward(unit);
    std::memset(roomy.gradient(2).data, 0, roomy.gradient(2).bytes());
    for (std::size_t const index : {0U, 1U}) roomy.mark_unused(index);
    for (std::size_t const unit : {1U, 0U}) roomy.after_backward(unit);
    roomy.step();

    expect_error(ErrorCode::invalid_argument, "more than memory can hold", [&] {
      FullySharded(world, two_units(parameters), {.gradient_cap = std::numeric_limits<std::size_t>::max()});
    });

    FullySharded wide(world, two_units(parameters), {.prefetch = 1, .gradient_units = 1});
    for (std::size_t unit = 0; unit < 2; ++unit) {
      wide.before_forward(unit);
      wide.after_forward(unit);
    }
    wide.before_backward(1);
    expect_error(ErrorCode::invalid_argument, "no room for the gradients of unit 'first'",
                 [&] { wide.before_backward(0); });
    std::memset(wide.gradient(2).data, 0, wide.gradient(2).bytes());
    wide.after_backward(1);
    wide.before_backward(0);
    for (std::size_t i = 0; i < 2; ++i) std::memset(wide.gradient(i).data, 0, wide.gradient(i).bytes());
    wide.after_backward(0);
    wide.step();
  });
}

TEST(FullyShardedErrors, WhatARankCanSeeItRefusesNamingUnitAndParameter) {
  run_thread_ranks(2, [](Communicator& world) {
    std::string const me = "rank " + std::to_string(world.rank());
    Parameters const parameters(std::vector<TensorSpec>{{10}, {20}, {30}});
    auto const refuse = [&](auto&& change, FullyShardedOptions const& options, ErrorCode code,
                            std::string const& part) {
      auto units = two_units(parameters);
      change(units);
      expect_error(code, part, [&] { FullySharded const model(world, units, options); });
    };
    auto const nothing = [](auto&) {};
    refuse([](auto& units) { units[1].groups[0].parameters[0].data = nullptr; }, {}, ErrorCode::invalid_argument,
           me + ": fully sharded: parameter 2, in unit 'second', has 30 elements but no memory");
    refuse([](auto& units) { units[0].groups[0].parameters[1].dtype = DataType::i32; }, {}, ErrorCode::unsupported,
           me + ": fully sharded: parameter 1, in unit 'first', is i32");
    refuse([](auto& units) { units[0].groups[0].options = SgdOptions{.lr = -1}; }, {}, ErrorCode::invalid_argument,
           "lr");
    refuse([](auto& units) { units[1].groups[0].parameters[0] = units[0].groups[0].parameters[1]; }, {},
           ErrorCode::invalid_argument,
           me + ": fully sharded: parameters 1, in unit 'first', and 2, in unit 'second', share memory");
    refuse([](auto& units) { units[1].name = "first"; }, {}, ErrorCode::invalid_argument,
           me + ": fully sharded: units 0 and 1 are both named 'first'");
    refuse([](auto& units) { units[1].name = ""; }, {}, ErrorCode::invalid_argument,
           me + ": fully sharded: unit 1 has no name");
    refuse(nothing, {.gather_cap = 100}, ErrorCode::invalid_argument, "unit 'first' is 256 bytes gathered");
    refuse(nothing, {.gradient_units = 0}, ErrorCode::invalid_argument, "gradient_units is 0");
    refuse(nothing, {.shard_size = 3}, ErrorCode::invalid_argument, "shard_size 3 does not divide 2 ranks");
    refuse(nothing, {.shard_size = -1}, ErrorCode::invalid_argument, "shard_size -1 does not divide 2 ranks");
    refuse(nothing, {.gradients = {.max_norm = 0}}, ErrorCode::invalid_argument, "max_norm");
  });
}

TEST(FullyShardedErrors, RanksThatDifferLearnInWhat) {
  run_thread_ranks(3, [](Communicator& world) {
    bool const odd = world.rank() == 1;
    auto const differs = [&](std::string const& what, std::vector<ShardedUnit> const& units,
                             FullyShardedOptions const& options = {}) {
      expect_error(ErrorCode::mismatch, "rank 1 differs from rank 0: " + what,
                   [&] { FullySharded const model(world, units, options); });
    };
    Parameters const good(std::vector<TensorSpec>{{10}, {20}, {30}});
    Parameters const other(std::vector<TensorSpec>{{10}, {odd ? 21U : 20U}, {30}});
    differs("parameter 1, in unit 'first'", two_units(other));
    auto units = two_units(good);
    if (odd) units[1].name = "last";
    differs("unit 1 ", units);
    units = two_units(good);
    if (odd) units.pop_back();
    differs("the number of units", units);
    units = two_units(good);
    units[1].groups[0].options = SgdOptions{.lr = odd ? 0.1 : 0.2};
    differs("group 0 of unit 'second'", units);
    units = two_units(good);
    if (odd) std::swap(units[0].groups[0].parameters[0], units[0].groups[0].parameters[1]);
    differs("parameter 0, in unit 'first'", units);
    differs("prefetch", two_units(good), {.prefetch = odd ? 1U : 2U});
    differs("reduce_type", two_units(good),
            {.reduce_type = odd ? std::optional(DataType::f32) : std::optional<DataType>()});
    differs("gather_cap", two_units(good), {.gather_cap = odd ? 4096U : 8192U});
    differs("gradient_cap", two_units(good), {.gradient_cap = odd ? 4096U : 8192U});
    differs("shard_size", two_units(good), {.shard_size = odd ? 1 : 3});
    differs("gradients.max_norm", two_units(good), {.gradients = {.max_norm = odd ? 1.0 : 2.0}});
    differs("hybrid_sum (rank 0: by_group, rank 1: rank_order)", two_units(good),
            {.hybrid_sum = odd ? HybridSum::rank_order : HybridSum::by_group});
    differs("gradients.norm_type (rank 0: l2, rank 1: inf)", two_units(good),
            {.gradients = {.norm_type = odd ? NormType::inf : NormType::l2}});
    differs("reshard_after_forward", two_units(good), {.reshard_after_forward = odd});
    FullySharded const model(world, two_units(good));  // the communicator goes on
  });
}

enum class Moment { at_once, in_forward, in_backward, before_step, after_step };

// Wherever a rank leaves, the others learn of it, whatever they try next, and are torn down.
TEST(FullyShardedErrors, ALostRankEndsItForTheOthers) {
  Training const t{.specs = model(9, 64), .first = AdamWOptions{}, .second = SgdOptions{}};
  for (int const shard_size : {0, 2}) {
    for (Moment const moment :
         {Moment::at_once, Moment::in_forward, Moment::in_backward, Moment::before_step, Moment::after_step}) {
      run_thread_ranks(4, [&](Communicator& world) {
        Parameters const start(t.specs);
        FullySharded sharded(world, units_of(start, t, 3), {.shard_size = shard_size});
        run_pass(sharded, t, world.rank(), 0, 0);
        sharded.step();
        if (world.rank() == 3) {
          if (moment == Moment::at_once) return;
          sharded.before_forward(0);
          if (moment == Moment::in_forward) return;
          sharded.after_forward(0);
          for (std::size_t unit = 1; unit < sharded.unit_count(); ++unit) {
            sharded.before_forward(unit);
            sharded.after_forward(unit);
          }
          sharded.before_backward(sharded.unit_count() - 1);
          if (moment == Moment::in_backward) return;
          sharded.after_backward(sharded.unit_count() - 1);
          for (std::size_t unit = sharded.unit_count() - 1; unit-- > 0;) {
            sharded.before_backward(unit);
            sharded.after_backward(unit);
          }
          if (moment == Moment::before_step) return;
          sharded.step();
          return;
        }
        std::string first;
        for (int attempt = 0; attempt < 2; ++attempt) {
          try {
            for (std::size_t step = 1; step < 5; ++step) {
              run_pass(sharded, t, world.rank(), step, 0);
              sharded.step();
            }
            ADD_FAILURE() << "went on without rank 3";
          } catch (Error const& error) {
            EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
            if (attempt == 0) first = error.what();
            EXPECT_EQ(error.what(), first);  // what it met is what it says from then on
          }
        }
      });
    }
  }
}

// A rank is lost while the other has work under way and looks at nothing more: the log says who, and that once.
template <typename Pass>
std::string log_of_a_loss(Pass const& pass) {
  testing::internal::CaptureStderr();
  run_thread_ranks(2, pass);
  return testing::internal::GetCapturedStderr();
}

TEST(FullyShardedErrors, ALossWhileItIsDestroyedIsLoggedWithItsCause) {
  std::string const log = log_of_a_loss([](Communicator& world) {
    Parameters const parameters(std::vector<TensorSpec>{{10}, {20}, {30}});
    FullySharded model(world, two_units(parameters));
    for (std::size_t unit = 0; unit < 2; ++unit) {
      model.before_forward(unit);
      model.after_forward(unit);
    }
    model.before_backward(1);
    if (world.rank() == 1) return;
    std::memset(model.gradient(2).data, 0, model.gradient(2).bytes());
    model.after_backward(1);
  });
  EXPECT_NE(log.find("fully sharded: its last gradients did not arrive: "), std::string::npos) << log;
  EXPECT_NE(log.find("rank 1 "), std::string::npos) << log;
  EXPECT_EQ(log.find("too early"), std::string::npos) << log;
}

TEST(ZeroErrors, ALossWhileItIsDestroyedIsLoggedOnceWithItsCause) {
  std::string const log = log_of_a_loss([](Communicator& world) {
    Parameters const parameters(std::vector<TensorSpec>{{1000}, {2000}, {3000}});
    ZeroOptions options;
    options.buckets.limits = {1000, 1000, 1000};
    options.buckets.rebuild = false;
    ZeroOptimizer zero(world, {{parameters.views(), SgdOptions{}}}, options);
    ASSERT_GT(zero.plan().buckets.size(), 1U);
    if (world.rank() == 0) zero.share_parameters();
  });
  std::string const line = "zero optimizer: its last parameters did not arrive: ";
  ASSERT_NE(log.find(line), std::string::npos) << log;
  EXPECT_EQ(log.find(line, log.find(line) + 1), std::string::npos) << log;
  EXPECT_NE(log.find("rank 1 "), std::string::npos) << log;
  EXPECT_EQ(log.find("too early"), std::string::npos) << log;
}

}  // namespace
}  // namespace weft::test
