#include "weft/checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <limits>
#include <thread>

#include "checkpoint/sample_model.hpp"
#include "checkpoint/save_files.hpp"
#include "examples/temporary_folder.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

void save(Communicator& world, std::string const& folder, std::vector<CheckpointTensor> const& tensors,
          CheckpointInfo const& info = {}) {
  CheckpointSaver saver(world, folder);
  saver.save(tensors, info);
  saver.wait();
}

TEST(CheckpointTest, WhatAnyRanksSavedAnyOthersRead) {
  SampleModel const model = sample_model(1);
  for (int const ranks : {1, 2, 3, 4}) {
    TemporaryFolder const folder;
    run_thread_ranks(ranks, [&](Communicator& world) {
      save(world, folder.file("ck"), random_ranges(model, world.rank(), ranks, 7), {.step = ranks});
    });
    for (int const readers : {1, 2, 3}) {
      run_thread_ranks(readers, [&](Communicator& world) {
        Checkpoint const checkpoint = Checkpoint::open(world, folder.file("ck"));
        EXPECT_EQ(checkpoint.info().step, ranks);
        EXPECT_EQ(difference(checkpoint, model), "") << ranks << " ranks";
      });
    }
  }
}

TEST(CheckpointTest, AnyRangeIsReadFromWhateverFilesHaveIt) {
  SampleModel const model = sample_model(2);
  TemporaryFolder const folder;
  run_thread_ranks(
      3, [&](Communicator& world) { save(world, folder.file("ck"), random_ranges(model, world.rank(), 3, 8)); });
  Checkpoint const checkpoint = Checkpoint::open(folder.file("ck"));
  std::mt19937 random(9);
  for (auto const& [name, tensor] : model) {
    std::size_t const size = size_of(tensor.dtype);
    for (int round = 0; round < 30; ++round) {
      std::size_t const first = random() % (tensor.count() + 1);
      std::size_t const count = random() % (tensor.count() - first + 1);
      std::vector<std::byte> values(count * size + 1, std::byte{0x77});
      checkpoint.read({name, first, {values.data(), count, tensor.dtype}});
      EXPECT_TRUE(std::equal(values.begin(), values.end() - 1, tensor.bytes.begin() + static_cast<long>(first * size)))
          << name << " [" << first << ", +" << count << ')';
      EXPECT_EQ(values.back(), std::byte{0x77});
    }
  }
}

TEST(CheckpointTest, OnlyBlocksThatARangeTouchesAreRead) {
  SampleModel const model = sample_model(3);  // embedding.weight: 2.8 MB, three blocks
  TemporaryFolder const folder;
  run_thread_ranks(1, [&](Communicator& world) { save(world, folder.file("ck"), whole_tensors(model)); });
  Checkpoint const checkpoint = Checkpoint::open(folder.file("ck"));
  // What is not read is not missed: damage in the second block shows only to those who need it.
  SaveFiles files(folder.file("ck"));
  auto const [path, offset] = files.place_of("embedding.weight");
  files.flip(path, offset + (1U << 20U) + 5);
  std::vector<float> values(1 << 18);
  BufferView const all{std::span(values)};
  checkpoint.read({"embedding.weight", 0, all});
  checkpoint.read({"embedding.weight", 2 << 18, all.slice(0, 100)});
  expect_error(ErrorCode::invalid_argument, {path.c_str(), "tensor embedding.weight", "[262144, 524288)", "damaged"},
               [&] {
                 checkpoint.read({"embedding.weight", (2 << 18) - 1, all.slice(0, 2)});
               });
}

TEST(CheckpointTest, ValuesAreReadInAnyFloatingPointType) {
  std::vector<float> const values{0, 1.0F, -2.5F, 3.14159F, 1e-3F, 65504, 1e20F, 1.00390625F};
  std::vector<BFloat16> brain;
  for (float const value : values) brain.push_back(to_bfloat16(value));
  TemporaryFolder const folder;
  run_thread_ranks(1, [&](Communicator& world) {
    save(world, folder.file("ck"),
         {{"f", {values.size()}, 0, std::span(values)}, {"b", {brain.size()}, 0, std::span<BFloat16 const>(brain)}});
  });
  Checkpoint const checkpoint = Checkpoint::open(folder.file("ck"));
  std::vector<Half> halves(values.size());
  std::vector<double> doubles(values.size());
  std::vector<float> floats(values.size());
  std::vector<BFloat16> rounded(values.size());
  checkpoint.read({"f", 0, std::span(halves)});
  checkpoint.read({"f", 0, std::span(doubles)});
  checkpoint.read({"f", 0, std::span(rounded)});
  checkpoint.read({"b", 0, std::span(floats)});
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(halves[i].bits, to_half(values[i]).bits) << i;
    EXPECT_EQ(doubles[i], static_cast<double>(values[i])) << i;
    EXPECT_EQ(rounded[i].bits, brain[i].bits) << i;
    EXPECT_EQ(floats[i], to_float(brain[i])) << i;
  }
}

TEST(CheckpointTest, InfoComesBack) {
  TemporaryFolder const folder;
  SampleModel const model = sample_model(4, 10);
  CheckpointInfo const info{
      .step = 1234567890123,
      .optimizer = {AdamWOptions{.lr = 0.1, .beta2 = 0.95, .amsgrad = true}, LionOptions{.lr = 3e-5}, SgdOptions{},
                    LambOptions{}, AdagradOptions{}, AdamOptions{}},
      .metadata = {{"text", "caf\xc3\xa9 \"x\"\n"}, {"", "empty"}}};
  run_thread_ranks(2, [&](Communicator& world) {
    save(world, folder.file("deep/er/ck"), random_ranges(model, world.rank(), 2, 1), info);
  });
  Checkpoint const checkpoint = Checkpoint::open(folder.file("deep/er/ck"));
  EXPECT_EQ(checkpoint.info().step, info.step);
  EXPECT_EQ(checkpoint.info().metadata, info.metadata);
  ASSERT_EQ(checkpoint.info().optimizer.size(), 6U);
  auto const& adamw = std::get<AdamWOptions>(checkpoint.info().optimizer[0]);
  EXPECT_EQ(adamw.lr, 0.1);
  EXPECT_EQ(adamw.beta2, 0.95);
  EXPECT_TRUE(adamw.amsgrad);
  EXPECT_EQ(std::get<LionOptions>(checkpoint.info().optimizer[1]).lr, 3e-5);
}

TEST(CheckpointTest, SharesOfReplicasAreAllOnceAndEqual) {
  SampleModel const model = sample_model(5, 3'000'000);
  auto const whole = whole_tensors(model);
  std::size_t const total = checkpoint_copy_bytes(whole);
  for (int const ranks : {1, 2, 3, 5, 8}) {
    TemporaryFolder const folder;
    std::size_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t const bytes = checkpoint_copy_bytes(share_of(whole, rank, ranks));
      sum += bytes;
      EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(total) / ranks, 1 << 20);
    }
    EXPECT_EQ(sum, total);
    if (ranks > 5) continue;
    run_thread_ranks(
        ranks, [&](Communicator& world) { save(world, folder.file("ck"), share_of(whole, world.rank(), ranks)); });
    EXPECT_EQ(difference(Checkpoint::open(folder.file("ck")), model), "") << ranks;
  }
}

TEST(CheckpointTest, TrainingGoesOnWithOtherValues) {
  TemporaryFolder const folder;
  SampleModel model = sample_model(6, 3'000'000);
  SampleModel const saved = model;
  run_thread_ranks(1, [&](Communicator& world) {
    CheckpointSaver saver(world, folder.file("ck"));
    saver.save(whole_tensors(model), {});
    for (auto& [name, tensor] : model) std::ranges::fill(tensor.bytes, std::byte{0xff});
    saver.wait();
    EXPECT_FALSE(saver.saving());
  });
  EXPECT_EQ(difference(Checkpoint::open(folder.file("ck")), saved), "");
}

TEST(CheckpointTest, ALaterSaveReplacesTheOneBeforeAndNothingStays) {
  TemporaryFolder const folder;
  std::optional<Checkpoint> opened;
  SampleModel const first = sample_model(10);
  for (std::uint32_t seed : {10U, 11U, 12U}) {
    SampleModel const model = sample_model(seed);
    run_thread_ranks(2, [&](Communicator& world) {
      CheckpointSaver saver(world, folder.file("ck"));
      saver.save(random_ranges(first, world.rank(), 2, 3), {});
      saver.save(random_ranges(model, world.rank(), 2, seed), {.step = seed});  // waits for the one before
    });                                                                         // as the destructor does for this one
    EXPECT_EQ(difference(Checkpoint::open(folder.file("ck")), model), "");
    EXPECT_EQ(SaveFiles(folder.file("ck")).entries(), 2U);  // the index and one folder
    if (!opened) opened = Checkpoint::open(folder.file("ck"));
  }
  EXPECT_EQ(difference(*opened, first), "");  // what is open stays readable
}

TEST(CheckpointTest, MistakesAreRefusedOnAllRanksAlike) {
  TemporaryFolder const folder;
  std::vector<float> const values(10);
  std::span<float const> const all(values);
  auto const expect = [&](ErrorCode code, std::initializer_list<char const*> parts, auto const& tensors_of) {
    run_thread_ranks(3, [&](Communicator& world) {
      CheckpointSaver saver(world, folder.file("ck"));
      expect_error(code, parts, [&] { saver.save(std::vector<CheckpointTensor>(tensors_of(world.rank())), {}); });
      saver.wait();
    });
    EXPECT_EQ(SaveFiles(folder.file("ck")).entries(), 0U);
  };
  using Tensors = std::vector<CheckpointTensor>;
  expect(ErrorCode::mismatch, {"tensor w", "[20, 30)", "missing"}, [&](int rank) {
    return rank == 2 ? Tensors{} : Tensors{{"w", {30}, static_cast<std::size_t>(10 * rank), all}};
  });
  expect(ErrorCode::mismatch, {"tensor w", "element 9 is there twice"}, [&](int rank) {
    return Tensors{{"w", {29}, static_cast<std::size_t>(rank == 0 ? 0 : 10 * rank - 1), all}};
  });
  expect(ErrorCode::mismatch, {"tensor w", "rank 1", "[31]", "[30]"}, [&](int rank) {
    return Tensors{{"w", {rank == 0 ? 30U : 31U}, static_cast<std::size_t>(10 * rank), all}};
  });
  expect(ErrorCode::invalid_argument, {"tensor w", "[25, 35)", "30"}, [&](int rank) {
    return Tensors{{"w", {30}, static_cast<std::size_t>(rank == 1 ? 25 : 0), all}};
  });
  expect(ErrorCode::invalid_argument, {"__metadata__"}, [&](int /*rank*/) {
    return Tensors{{"__metadata__", {30}, 0, all}};
  });
  expect(ErrorCode::invalid_argument, {"UTF-8"}, [&](int /*rank*/) { return Tensors{{"\xff", {30}, 0, all}}; });
  expect(ErrorCode::invalid_argument, {"tensor w", "no memory"}, [&](int rank) {
    return Tensors{{"w", {30}, static_cast<std::size_t>(10 * rank), {nullptr, 10, DataType::f32}}};
  });
  expect(ErrorCode::unsupported, {"tensor w", "c128"}, [&](int /*rank*/) {
    return Tensors{{"w", {1}, 0, {values.data(), 1, DataType::c128}}};
  });
  expect(ErrorCode::invalid_argument, {"is called as a part"}, [&](int rank) {
    Tensors tensors{{"w", {30}, static_cast<std::size_t>(10 * rank), all}};
    if (rank == 0) tensors.push_back({"w[0:10]", {10}, 0, all});
    return tensors;
  });
}

TEST(CheckpointTest, OptionsThatCouldNotBeReadDoNotReplaceTheSaveBefore) {
  TemporaryFolder const folder;
  SampleModel const model = sample_model(5, 10);
  run_thread_ranks(2, [&](Communicator& world) {
    save(world, folder.file("ck"), random_ranges(model, world.rank(), 2, 1), {.step = 1});
    double const lr = world.rank() == 0 ? std::numeric_limits<double>::quiet_NaN() : 0.1;
    expect_error(ErrorCode::invalid_argument, {"AdamW", "lr is nan"}, [&] {
      save(world, folder.file("ck"), random_ranges(model, world.rank(), 2, 1),
           {.step = 2, .optimizer = {AdamWOptions{.lr = lr}}});
    });
  });
  EXPECT_EQ(Checkpoint::open(folder.file("ck")).info().step, 1);
}

TEST(CheckpointTest, ANameGivenTwiceOnOneRankIsSaid) {
  TemporaryFolder const folder;
  std::vector<float> const values(10);
  std::span<float const> const all(values);
  run_thread_ranks(2, [&](Communicator& world) {
    CheckpointSaver saver(world, folder.file("ck"));
    auto const expect = [&](std::initializer_list<char const*> parts, std::vector<CheckpointTensor> const& of_rank_1) {
      expect_error(ErrorCode::invalid_argument, parts,
                   [&] { saver.save(world.rank() == 1 ? of_rank_1 : std::vector<CheckpointTensor>{}, {}); });
    };
    expect({"tensor w", "named twice on one rank", "[20]", "[10]"}, {{"w", {20}, 0, all}, {"w", {10}, 0, all}});
    expect({"tensor w", "named twice on one rank", "element 0"}, {{"w", {10}, 0, all}, {"w", {10}, 0, all}});
    // Two ranges of one tensor are no mistake.
    saver.save(std::vector<CheckpointTensor>{{"w", {20}, 0, all}, {"w", {20}, 10, all}}, {});
  });
}

TEST(CheckpointTest, WhatMakesTensorsFailsOnAllRanksAlike) {
  TemporaryFolder const folder;
  run_thread_ranks(3, [&](Communicator& world) {
    CheckpointSaver saver(world, folder.file("ck"));
    auto const make = [&]() -> std::vector<CheckpointTensor> {
      if (world.rank() == 1) throw Error(ErrorCode::unsupported, "not on rank 1");
      return {};
    };
    expect_error(ErrorCode::unsupported, {"not on rank 1"}, [&] { saver.save(make, {}); });
  });
  EXPECT_EQ(SaveFiles(folder.file("ck")).entries(), 0U);
}

TEST(CheckpointTest, AFolderHasOneSaver) {
  TemporaryFolder const folder;
  run_thread_ranks(2, [&](Communicator& world) {
    CheckpointSaver const one(world, folder.file("ck"));
    expect_error(ErrorCode::system, {"another"}, [&] { CheckpointSaver const two(world, folder.file("ck")); });
  });
}

TEST(CheckpointTest, AFolderThatCannotBeIsRefusedOnAllRanks) {
  TemporaryFolder const folder;
  std::ofstream(folder.file("file")) << "x";
  run_thread_ranks(2, [&](Communicator& world) {
    expect_error(ErrorCode::system, {"file/ck", "create"},
                 [&] { CheckpointSaver const saver(world, folder.file("file/ck")); });
    expect_error(ErrorCode::invalid_argument, {"no name"}, [&] { CheckpointSaver const saver(world, ""); });
  });
}

}  // namespace
}  // namespace weft::test
