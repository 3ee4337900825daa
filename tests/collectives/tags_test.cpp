// Calls that are alike but for what they are about: ranks whose tags differ are told so, before anything moves.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kCount = 12;

/// One call of a rank, and what it got.
struct Tagged {
  char const* name;
  bool shows_tag;
  std::function<Work(Communicator&, std::vector<float> const&, std::vector<float>&, CollectiveOptions const&)> call;
};

/// Every kind of call that may have a tag, of kCount elements.
std::vector<Tagged> tagged_calls() {
  using In = std::vector<float> const&;
  using Out = std::vector<float>&;
  using How = CollectiveOptions const&;
  auto const part = [](Communicator& world) { return kCount / static_cast<std::size_t>(world.size()); };
  auto const equal = [=](Communicator& world) {
    return std::vector<std::size_t>(static_cast<std::size_t>(world.size()), part(world));
  };
  return {
      {"barrier", true, [](Communicator& world, In, Out, How how) { return world.barrier(how); }},
      {"all_reduce", true,
       [](Communicator& world, In in, Out out, How how) {
         return world.all_reduce(std::span(in), std::span(out), ReduceOp::sum, how);
       }},
      {"reduce_scatter", true,
       [=](Communicator& world, In in, Out out, How how) {
         return world.reduce_scatter(std::span(in), std::span(out).first(part(world)), ReduceOp::sum, how);
       }},
      {"all_gather", true,
       [=](Communicator& world, In in, Out out, How how) {
         return world.all_gather(std::span(in).first(part(world)), std::span(out), how);
       }},
      {"all_to_all", true,
       [](Communicator& world, In in, Out out, How how) {
         return world.all_to_all(std::span(in), std::span(out), how);
       }},
      {"scan", true,
       [](Communicator& world, In in, Out out, How how) {
         return world.scan(std::span(in), std::span(out), ReduceOp::sum, how);
       }},
      {"reduce_scatter_v", false,
       [=](Communicator& world, In in, Out out, How how) {
         auto const counts = equal(world);
         return world.reduce_scatter(std::span(in), std::span(out).first(part(world)), Parts{counts, {}}, ReduceOp::sum,
                                     how);
       }},
      {"all_gather_v", false,
       [=](Communicator& world, In in, Out out, How how) {
         auto const counts = equal(world);
         return world.all_gather(std::span(in).first(part(world)), std::span(out), Parts{counts, {}}, how);
       }},
  };
}

/// What Error{mismatch} `body` throws; empty: none.
template <typename Body>
std::string mismatch_of(Body&& body) {
  try {
    body();
  } catch (Error const& error) {
    EXPECT_EQ(ErrorCode::mismatch, error.code()) << error.what();
    return error.what();
  }
  return {};
}

void expect_words(std::string const& what, std::vector<std::string> const& words) {
  EXPECT_FALSE(what.empty()) << "nothing was thrown";
  for (auto const& word : words) EXPECT_NE(std::string::npos, what.find(word)) << what << "\ndoes not say\n" << word;
}

TEST(Tags, RanksWhoseTagsDifferAreTold) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      auto const own = static_cast<float>(world.rank() + 1);
      std::vector<float> const in(kCount, own);
      auto const odd = world.rank() == ranks - 1;
      auto const stream = Stream::cpu();
      for (auto const& tagged : tagged_calls()) {
        for (std::uint32_t const other : {0U, 6U, 0x80000005U}) {
          for (bool const on_stream : {false, true}) {
            SCOPED_TRACE(fmt::format("{}, {} ranks, tag {}", tagged.name, ranks, other));
            std::vector<float> out(kCount, -1);
            CollectiveOptions how{.tag = odd ? other : 5};
            if (on_stream) how.stream = stream;
            auto const what = mismatch_of([&] { tagged.call(world, in, out, how).wait(); });
            expect_words(what, {fmt::format("rank {} made {}(", world.rank(), tagged.name), "nothing was moved"});
            if (tagged.shows_tag) expect_words(what, {"tag 5)"});
            if (tagged.shows_tag && other != 0) expect_words(what, {fmt::format("tag {})", other)});
            for (float const value : out) EXPECT_TRUE(value == -1 || value == own) << "another rank's data came";
          }
        }
        std::vector<float> out(kCount, -1);
        EXPECT_EQ("", mismatch_of([&] { tagged.call(world, in, out, {.tag = 5}).wait(); })) << tagged.name;
      }
      float sum = 1;
      world.all_reduce(std::span(&sum, 1), std::span(&sum, 1), ReduceOp::sum);  // the communicator goes on
      EXPECT_EQ(static_cast<float>(ranks), sum);
    });
  }
}

TEST(Tags, CallsOfAGroupAndFusedOnesHaveTheirOwn) {
  run_thread_ranks(3, [](Communicator& world) {
    auto const odd = world.rank() == 1;
    std::vector<float> values(4, 1);
    auto const reduce_all = [&](Stream const& stream, bool differs) {
      for (std::uint32_t i = 0; i < values.size(); ++i) {
        auto const view = std::span(values).subspan(i, 1);
        world.all_reduce(view, view, ReduceOp::sum, {.stream = stream, .tag = i / 2 + (differs && i == 3 ? 7U : 0U)});
      }
    };
    auto stream = Stream::cpu();
    auto const in_group = [&](bool differs) {
      Group group(world, {.stream = stream});
      reduce_all(stream, differs);
      group.end().wait();
    };
    in_group(false);
    EXPECT_EQ(values, std::vector<float>(4, 3));
    expect_words(mismatch_of([&] { in_group(odd); }), {"tag 1)", "tag 8)"});
    world.fuse(stream);
    std::fill(values.begin(), values.end(), 1.F);
    reduce_all(stream, false);
    stream.synchronize();
    EXPECT_EQ(values, std::vector<float>(4, 3));
  });
}

TEST(Tags, CallsWithARootMessagesAndGroupsHaveNone) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 1;
    std::span<float> const view(&value, 1);
    auto const refuses = [](auto&& call) {
      try {
        call();
        ADD_FAILURE() << "accepted";
      } catch (Error const& error) {
        EXPECT_EQ(ErrorCode::invalid_argument, error.code()) << error.what();
        EXPECT_NE(std::string::npos, std::string(error.what()).find("tag")) << error.what();
      }
    };
    refuses([&] { world.broadcast(view, 0, {.tag = 1}); });
    refuses([&] { world.reduce(view, view, ReduceOp::sum, 0, {.tag = 1}); });
    refuses([&] { world.send(view, 1 - world.rank(), {.tag = 1}); });
    refuses([&] { Group const group(world, {.tag = 1}); });
    world.barrier();
  });
}

}  // namespace
}  // namespace weft::test
