// Every function with every mistake a single rank can make. Each is told by an Error with rank, function and number,
// and nothing is sent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <functional>
#include <limits>
#include <thread>

#include "collectives/bad_calls_functions.hpp"
#include "harness/ranks.hpp"
#include "runtime/stream_impl.hpp"

namespace weft::test {
namespace {

/// A stream of a device that is not there.
class ForeignStream final : public Stream::Impl {
 public:
  void enqueue(std::function<void()> /*task*/) override {
    ADD_FAILURE() << "a task reached a stream of another device";
  }
  void synchronize() override {}
  [[nodiscard]] Device device() const noexcept override { return {DeviceType::cuda, 0}; }
  [[nodiscard]] bool on_worker() const noexcept override { return false; }
};

/// A mistake: whom it can happen to, and how the arguments come to have it.
struct Mistake {
  std::string name;
  std::function<bool(Function const&)> applies;
  std::function<void(Arguments&, Function const&, int rank)> make;
  std::string said;  ///< by the message
  ErrorCode code = ErrorCode::invalid_argument;
};

bool sends(Function const& f) {
  return f.sends > 0;
}
bool recvs(Function const& f) {
  return f.recvs > 0;
}
bool both(Function const& f) {
  return sends(f) && recvs(f);
}
bool reduces(Function const& f) {
  return f.reduces;
}
bool rooted(Function const& f) {
  return f.rooted;
}
bool divided(Function const& f) {
  return f.has_parts();
}

constexpr auto kHuge = std::numeric_limits<std::size_t>::max() / 2;
constexpr Device kDevice{DeviceType::cuda, 0};
constexpr auto kNoType = static_cast<DataType>(99);

void do_nothing(void* /*accumulator*/, void const* /*next*/, std::size_t /*count*/, void* /*context*/) {}

void add_buffer_mistakes(std::vector<Mistake>& all) {
  using A = Arguments;
  using F = Function;
  all.push_back({"null send", sends, [](A& a, F const&, int) { a.send.data = nullptr; }, "null"});
  all.push_back({"null recv", recvs, [](A& a, F const&, int) { a.recv.data = nullptr; }, "null"});
  all.push_back({"no type of send", sends, [](A& a, F const&, int) { a.send.dtype = kNoType; }, "data type 99"});
  all.push_back({"no type of recv", recvs, [](A& a, F const&, int) { a.recv.dtype = kNoType; }, "data type 99"});
  all.push_back({"send too long for any memory", sends, [](A& a, F const&, int) { a.send.count = kHuge; }, "memory"});
  all.push_back({"recv too long for any memory", recvs, [](A& a, F const&, int) { a.recv.count = kHuge; }, "memory"});
  all.push_back({"types differ", [](F const& f) { return both(f) && !f.is_message; },
                 [](A& a, F const&, int) { a.send.dtype = DataType::i32; }, "send is i32 but recv is f32"});
  all.push_back({"recv one short",
                 [](F const& f) { return both(f) && !f.is_message && std::string(f.name) != "scatter_v"; },
                 [](A& a, F const&, int) { --a.recv.count; }, "elements"});
  // A divided buffer may be longer than its parts; what comes in parts from others, only they know.
  all.push_back(
      {"recv one long",
       [](F const& f) { return both(f) && !f.is_message && !f.recvs_parts && std::string(f.name) != "scatter_v"; },
       [](A& a, F const&, int) { ++a.recv.count; }, "elements"});
  all.push_back({"send one short",
                 [](F const& f) { return both(f) && !f.is_message && std::string(f.name) != "gather_v"; },
                 [](A& a, F const&, int) { --a.send.count; }, "elements"});
  all.push_back(
      {"send one long",
       [](F const& f) { return both(f) && !f.is_message && !f.sends_parts && std::string(f.name) != "gather_v"; },
       [](A& a, F const&, int) { ++a.send.count; }, "elements"});
  all.push_back({"overlap", both,
                 [](A& a, F const&, int) {
                   // One element past whatever in place would be.
                   a.recv.data = const_cast<float*>(static_cast<float const*>(a.send.data)) + 1;
                 },
                 "overlap"});
  all.push_back({"only send on a device", both, [](A& a, F const&, int) { a.send.device = kDevice; }, "cuda"});
  all.push_back({"only recv on a device", both, [](A& a, F const&, int) { a.recv.device = kDevice; }, "cuda"});
#ifndef WEFT_WITH_CUDA
  all.push_back({"memory on a device", [](F const& f) { return sends(f) || recvs(f); },
                 [](A& a, F const&, int) { a.send.device = a.recv.device = kDevice; }, "WEFT_WITH_CUDA",
                 ErrorCode::unsupported});
#endif
}

void add_other_mistakes(std::vector<Mistake>& all) {
  using A = Arguments;
  using F = Function;
  auto const everywhere = [](F const&) { return true; };
  for (int const root : {-1, kBadCallRanks, INT_MAX, INT_MIN}) {
    all.push_back({fmt::format("root {}", root), rooted, [root](A& a, F const&, int) { a.root = root; },
                   fmt::format("root {}", root)});
    all.push_back({fmt::format("to {}", root), [](F const& f) { return f.is_message && f.sends > 0; },
                   [root](A& a, F const&, int) { a.root = root; }, fmt::format("no rank {}", root)});
    all.push_back({fmt::format("from {}", root), [](F const& f) { return f.is_message && f.recvs > 0; },
                   [root](A& a, F const&, int) { a.from = root; }, fmt::format("no rank {}", root)});
  }
  all.push_back({"to and from oneself", [](F const& f) { return f.is_message && !both(f); },
                 [](A& a, F const&, int rank) { a.root = a.from = rank; }, "itself"});
  all.push_back({"a stream of a device", everywhere,
                 [](A& a, F const&, int) { a.options.stream = Stream(std::make_shared<ForeignStream>()); },
                 "CPU stream", ErrorCode::unsupported});
  for (auto const ms : {std::int64_t{-1}, std::int64_t{0}, std::chrono::milliseconds::max().count()}) {
    all.push_back({fmt::format("a timeout of {} ms", ms), everywhere,
                   [ms](A& a, F const&, int) { a.options.timeout = std::chrono::milliseconds(ms); },
                   fmt::format("the timeout is {} ms", ms)});
  }
}

void add_reduction_mistakes(std::vector<Mistake>& all) {
  using A = Arguments;
  using F = Function;
  auto const with = [](Reduction how) { return [how](A& a, F const&, int) { a.how = how; }; };
  all.push_back({"no operator", reduces, with(static_cast<ReduceOp>(42)), "reduce op 42"});
  all.push_back({"bits of floats", reduces, with(ReduceOp::bxor), "bxor has no meaning for f32"});
  all.push_back({"no function", reduces, with(ReduceOp::user), "function"});
  all.push_back({"null function", reduces, with(Reduction::user(nullptr)), "function"});
  all.push_back({"elements too large", reduces, with(Reduction::user(do_nothing, nullptr, 264)), "at most 256"});
  all.push_back({"elements that do not fit", reduces, with(Reduction::user(do_nothing, nullptr, 16)), "whole number"});
  all.push_back({"a fraction of integers", reduces,
                 [](A& a, F const&, int) {
                   a.send.dtype = a.recv.dtype = DataType::i32;
                   a.how = Reduction::premul_sum(0.5);
                 },
                 "0.5 is not a value of i32"});
  all.push_back({"smallest complex number", reduces,
                 [](A& a, F const&, int) {
                   a.send.dtype = a.recv.dtype = DataType::c64;
                   a.how = ReduceOp::min;
                 },
                 "min has no meaning for c64"});
  all.push_back({"average of truth", reduces,
                 [](A& a, F const&, int) {
                   a.send.dtype = a.recv.dtype = DataType::boolean;
                   a.how = ReduceOp::avg;
                 },
                 "avg has no meaning"});
  all.push_back({"average of some", [](F const& f) { return std::string(f.name).find("scan") != std::string::npos; },
                 with(ReduceOp::avg), "avg has no meaning"});
}

void add_part_mistakes(std::vector<Mistake>& all) {
  using A = Arguments;
  using F = Function;
  all.push_back({"a part too few", divided, [](A& a, F const&, int) { a.counts.pop_back(); }, "3 counts"});
  all.push_back({"a part too many", divided, [](A& a, F const&, int) { a.counts.push_back(0); }, "3 counts"});
  all.push_back({"no parts", divided, [](A& a, F const&, int) { a.counts.clear(); }, "3 counts"});
  all.push_back({"an offset too few", divided, [](A& a, F const&, int) { a.offsets = {0, 6}; }, "3 counts"});
  all.push_back({"a part outside", divided, [](A& a, F const&, int) { a.counts[1] = 13; }, "outside"});
  all.push_back({"a part far outside", divided, [](A& a, F const&, int) { a.counts[2] = kHuge; }, "outside"});
  all.push_back({"parts beyond all numbers", divided,
                 [](A& a, F const&, int) {
                   a.counts = {2 * kHuge + 1, 2 * kHuge + 1, 20};  // together 18, if nobody looked
                 },
                 "outside"});
  all.push_back({"an offset outside", divided, [](A& a, F const&, int) { a.offsets = {0, 6, 13}; }, "outside"});
  all.push_back({"an offset beyond all numbers", divided,
                 [](A& a, F const&, int) {
                   a.offsets = {0, 6, 2 * kHuge - 2};
                 },
                 "outside"});
  all.push_back({"parts over one another", [](F const& f) { return f.recvs_parts; },
                 [](A& a, F const&, int) {
                   a.offsets = {0, 5, 12};
                 },
                 "overlap"});
}

std::vector<Mistake> const& all_mistakes() {
  static auto const mistakes = [] {
    std::vector<Mistake> all;
    add_buffer_mistakes(all);
    add_other_mistakes(all);
    add_reduction_mistakes(all);
    add_part_mistakes(all);
    return all;
  }();
  return mistakes;
}

void expect_told(Mistake const& mistake, std::string const& who, Error const& error) {
  std::string const what = error.what();
  EXPECT_EQ(mistake.code, error.code()) << what;
  EXPECT_EQ(0U, what.find(who)) << what << "\ndoes not begin with\n" << who;
  EXPECT_NE(std::string::npos, what.find(mistake.said)) << what << "\ndoes not say\n" << mistake.said;
  EXPECT_EQ(std::string::npos, what.find('\n')) << what;
}

/// Makes every bad call once; returns how many.
int make_bad_calls(Communicator& world, std::string const& called) {
  GoodArguments good(world.rank());
  int made = 0;
  for (auto const& function : all_functions()) {
    for (auto const& mistake : all_mistakes()) {
      if (!mistake.applies(function)) continue;
      SCOPED_TRACE(fmt::format("{}: {}", function.name, mistake.name));
      ++made;
      auto arguments = good.of(function);
      if (function.rooted) arguments.root = world.rank();
      mistake.make(arguments, function, world.rank());
      auto const who = fmt::format("rank {}{}: {}, {}call 1: ", world.rank(), called, function.name,
                                   function.is_message ? "point-to-point " : "");
      try {
        function.call(world, arguments).wait();
        ADD_FAILURE() << "nothing was thrown";
      } catch (Error const& error) {
        expect_told(mistake, who, error);
      }
    }
  }
  EXPECT_EQ(std::vector<float>(100, 2.0F), good.recv());
  return made;
}

/// Every function once, with good arguments.
void make_good_calls(Communicator& world) {
  GoodArguments good(world.rank());
  for (auto const& function : all_functions()) {
    SCOPED_TRACE(function.name);
    auto arguments = good.of(function);
    auto const name = std::string(function.name);
    // One message: in a circle of blocking ones somebody has to begin.
    if (name == "send" && world.rank() != 0) continue;
    if (name == "recv" && world.rank() != 1) continue;
    EXPECT_NO_THROW(function.call(world, arguments).wait());
  }
  EXPECT_EQ(1.0F, good.recv()[0]) << "send_recv was the last";
}

TEST(BadCalls, EveryMistakeIsToldByRankFunctionAndNumberAndNothingIsSent) {
  run_thread_ranks(kBadCallRanks, [](Communicator& world) {
    auto const made = make_bad_calls(world, "");
    EXPECT_GE(made, 200);
    if (world.rank() == 0) fmt::print("{} bad calls\n", made);
    make_good_calls(world);
  });
}

TEST(BadCalls, TheCommunicatorsNameIsTold) {
  run_thread_ranks(kBadCallRanks, [](Communicator& world) { make_bad_calls(world, " of gradients"); },
                   {.name = "gradients"});
}

TEST(BadCalls, OfAMovedFromCommunicator) {
  run_thread_ranks(kBadCallRanks, [](Communicator& world) {
    auto moved = std::move(world);
    GoodArguments good(moved.rank());
    auto const expect_error = [](char const* name, auto const& call) {
      SCOPED_TRACE(name);
      try {
        call();
        ADD_FAILURE() << "nothing was thrown";
      } catch (Error const& error) {
        EXPECT_EQ(ErrorCode::invalid_argument, error.code());
        EXPECT_NE(std::string::npos, std::string(error.what()).find("moved from")) << error.what();
      }
    };
    // NOLINTBEGIN(bugprone-use-after-move): what is tested
    for (auto const& function : all_functions())
      expect_error(function.name, [&] { function.call(world, good.of(function)); });
    expect_error("allocate", [&] { (void)world.allocate(4, DataType::f32); });
    expect_error("split", [&] { (void)world.split(0); });
    expect_error("duplicate", [&] { (void)world.duplicate({}); });
    expect_error("options", [&] { (void)world.options(); });
    EXPECT_EQ(-1, world.rank());
    EXPECT_EQ(0, world.size());
    world.abort("nobody listens");
    // NOLINTEND(bugprone-use-after-move)
    make_good_calls(moved);
    world = std::move(moved);
  });
}

TEST(BadCalls, FromASecondThreadDuringABlockingCall) {
  std::atomic<int> waiting{0};
  std::atomic<bool> refused{false};
  CommunicatorOptions options;
  options.progress = [&] { ++waiting; };
  run_thread_ranks(
      2,
      [&](Communicator& world) {
        if (world.rank() == 1) {
          refused.wait(false);
          world.barrier();
        } else {
          std::thread first([&] { world.barrier(); });
          while (waiting == 0) std::this_thread::yield();
          float value = 1;
          BufferView const one{&value, 1, DataType::f32};
          Stream const stream = Stream::cpu();
          for (CollectiveOptions const& how : {CollectiveOptions{}, CollectiveOptions{.stream = stream}}) {
            try {
              world.all_reduce(one, one, ReduceOp::sum, how).wait();
              ADD_FAILURE() << "nothing was thrown";
            } catch (Error const& error) {
              EXPECT_EQ(ErrorCode::invalid_argument, error.code());
              EXPECT_NE(std::string::npos, std::string(error.what()).find("another thread of this rank"))
                  << error.what();
            }
          }
          refused = true;
          refused.notify_all();
          first.join();
        }
        world.barrier();  // the communicator goes on
      },
      options);
}

TEST(BadCalls, WithoutBuffers) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const expect_error = [&](std::string const& words, auto const& call) {
      try {
        call();
        ADD_FAILURE() << "nothing was thrown, not even " << words;
      } catch (Error const& error) {
        EXPECT_EQ(ErrorCode::invalid_argument, error.code());
        EXPECT_NE(std::string::npos, std::string(error.what()).find(words)) << error.what();
      }
    };
    auto const who = fmt::format("rank {}: ", world.rank());
    expect_error(who + "allocate, call 1: ", [&] { (void)world.allocate(4, kNoType); });
    expect_error(who + "allocate, call 1: ", [&] { (void)world.allocate(kHuge, DataType::f32); });
    expect_error(who + "split, call 1: color -2", [&] { (void)world.split(-2); });
    expect_error("bootstrap is null", [] { (void)Communicator::create(nullptr); });
    world.barrier();
    expect_error(who + "allocate, call 2: ", [&] { (void)world.allocate(4, kNoType); });
  });
}

}  // namespace
}  // namespace weft::test
