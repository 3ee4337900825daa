#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "checkpoint/sample_model.hpp"
#include "checkpoint/save_files.hpp"
#include "checkpoint/xxh64.hpp"
#include "examples/temporary_folder.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/checkpoint.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using Json = nlohmann::json;

/// A checkpoint of three ranks, to be damaged.
class CheckpointDamageTest : public testing::Test {
 protected:
  CheckpointDamageTest() : files_(folder_.file("ck")) {
    run_thread_ranks(3, [&](Communicator& world) {
      CheckpointSaver saver(world, folder_.file("ck"));
      saver.save(random_ranges(model_, world.rank(), 3, 21), {.step = 5, .optimizer = {AdamWOptions{}}});
    });
    std::filesystem::copy(folder_.file("ck"), folder_.file("good"), std::filesystem::copy_options::recursive);
  }

  void repair() {
    std::filesystem::remove_all(folder_.file("ck"));
    std::filesystem::copy(folder_.file("good"), folder_.file("ck"), std::filesystem::copy_options::recursive);
  }

  /// Empty when all was read and equal; else why not.
  [[nodiscard]] std::string verdict() const {
    try {
      std::string wrong = difference(Checkpoint::open(folder_.file("ck")), model_);
      EXPECT_EQ(wrong, "");
      return wrong;
    } catch (Error const& error) {
      EXPECT_NE(std::string(error.what()).find(folder_.file("ck")), std::string::npos) << error.what();
      return error.what();
    }
  }

  /// Refused on every rank with the same words, which have all of `parts`.
  void expect_refused(ErrorCode code, std::initializer_list<char const*> parts) {
    std::vector<std::string> words(2);
    run_thread_ranks(2, [&](Communicator& world) {
      expect_error(code, parts, [&] {
        try {
          Checkpoint const checkpoint = Checkpoint::open(world, folder_.file("ck"));
          // Rank 0 reads everything, rank 1 nothing.
          std::vector<std::byte> bytes(model_.at("embedding.weight").bytes.size());
          std::vector<CheckpointRange> ranges;
          if (world.rank() == 0)
            ranges.push_back({"embedding.weight", 0, {bytes.data(), bytes.size() / 4, DataType::f32}});
          checkpoint.read(world, ranges);
        } catch (Error const& error) {
          words[static_cast<std::size_t>(world.rank())] = error.what();
          throw;
        }
      });
    });
    EXPECT_EQ(words[0], words[1]);
    EXPECT_EQ(words[0].find("json.exception"), std::string::npos) << words[0];  // the library's own words
    repair();
  }

  TemporaryFolder folder_;
  SampleModel model_ = sample_model(20, 300'000);
  SaveFiles files_;
};

TEST_F(CheckpointDamageTest, IsNamedWithFileTensorAndReason) {
  ASSERT_EQ(verdict(), "");
  std::string const shard = files_.shards()[1];
  std::string const bytes = SaveFiles::read(shard);

  SaveFiles::write(shard, bytes.substr(0, bytes.size() - 1));
  expect_refused(ErrorCode::invalid_argument, {shard.c_str(), "tensor"});
  SaveFiles::write(shard, bytes + "x");
  expect_refused(ErrorCode::invalid_argument, {shard.c_str(), "1 bytes behind"});
  SaveFiles::write(shard, "");
  expect_refused(ErrorCode::invalid_argument, {shard.c_str(), "0 bytes"});
  SaveFiles::write(shard, SaveFiles::read(files_.shards()[0]));
  expect_refused(ErrorCode::invalid_argument, {shard.c_str(), "is missing"});
  std::filesystem::remove(shard);
  expect_refused(ErrorCode::system, {shard.c_str(), "No such file"});
  SaveFiles::flip(shard, bytes.size() - 1);
  EXPECT_NE(verdict().find("damaged"), std::string::npos);
  repair();

  std::filesystem::remove(files_.index());
  expect_refused(ErrorCode::system, {files_.index().c_str(), "No such file"});
  SaveFiles::write(files_.index(), R"({"metadata":{},"weight_map":{}})");
  expect_refused(ErrorCode::invalid_argument, {files_.index().c_str(), "not written by Weft"});
  SaveFiles::write(files_.index(), "{");
  expect_refused(ErrorCode::invalid_argument, {files_.index().c_str(), "JSON", "byte 2", "from a copy"});
  std::string const deep = std::string(500'000, '[') + std::string(500'000, ']');
  SaveFiles::write(files_.index(), R"({"xxh64":"0","weft":)" + deep + '}');
  expect_refused(ErrorCode::invalid_argument, {files_.index().c_str(), "deep", "from a copy"});
  SaveFiles::write(files_.index(), R"({"xxh64":"0","weft":1e999})");
  expect_refused(ErrorCode::invalid_argument, {files_.index().c_str(), "1e999"});
  std::string index = SaveFiles::read(files_.index());
  index.replace(index.find("\"step\": 5"), 9, "\"step\": 6");
  SaveFiles::write(files_.index(), index);
  expect_refused(ErrorCode::invalid_argument, {files_.index().c_str(), "checksum"});
  std::filesystem::remove_all(folder_.file("ck"));
  expect_refused(ErrorCode::system, {files_.index().c_str(), "No such file", "check that the path is right"});
}

TEST_F(CheckpointDamageTest, FilesOfAnotherSaveAreForeign) {
  run_thread_ranks(3, [&](Communicator& world) {
    CheckpointSaver saver(world, folder_.file("other"));
    saver.save(random_ranges(model_, world.rank(), 3, 21), {.step = 6});
  });
  std::string const shard = files_.shards()[2];
  std::filesystem::copy_file(SaveFiles(folder_.file("other")).shards()[2], shard,
                             std::filesystem::copy_options::overwrite_existing);
  expect_refused(ErrorCode::invalid_argument, {shard.c_str(), "another save"});
}

// An index whose checksum is right and whose contents are not, as another program may write it.
TEST_F(CheckpointDamageTest, WhatAnIndexSaysIsChecked) {
  auto const expect = [&](std::initializer_list<char const*> parts, auto const& change) {
    Json json = Json::parse(SaveFiles::read(files_.index()));
    change(json["weft"]);
    json.erase("xxh64");
    std::string const text = json.dump();
    std::uint64_t const sum = xxh64(std::as_bytes(std::span(text)));
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016lx", static_cast<unsigned long>(sum));
    json["xxh64"] = digits;
    SaveFiles::write(files_.index(), json.dump());
    expect_refused(ErrorCode::invalid_argument, parts);
  };
  auto const tensor = [](Json& weft) -> Json& { return weft["tensors"]["embedding.weight"]; };
  expect({"tensor embedding.weight", "missing"}, [&](Json& weft) { tensor(weft)["parts"].erase(1); });
  expect({"tensor embedding.weight", "twice"},
         [&](Json& weft) { tensor(weft)["parts"].push_back(tensor(weft)["parts"][1]); });
  expect({"tensor embedding.weight", "the tensor 300000"},
         [&](Json& weft) { tensor(weft)["parts"][0]["count"] = 1U << 31U; });
  expect({"tensor embedding.weight", "F33"}, [&](Json& weft) { tensor(weft)["dtype"] = "F33"; });
  expect({"tensor embedding.weight", "shape"}, [&](Json& weft) { tensor(weft)["shape"] = {1U << 31U, 1L << 40U}; });
  expect({"tensor embedding.weight", "file 3"}, [&](Json& weft) { tensor(weft)["parts"][0]["file"] = 3; });
  expect({"tensor embedding.weight", "checksums"},
         [&](Json& weft) { tensor(weft)["parts"][0]["xxh64"].push_back("0123456789abcdef"); });
  expect({"no checksum"}, [&](Json& weft) { tensor(weft)["parts"][0]["xxh64"][0] = "12x"; });
  expect({"tensor embedding.weight", "has another shape or type"}, [&](Json& weft) { tensor(weft)["dtype"] = "I32"; });
  expect({"version 2"}, [&](Json& weft) { weft["version"] = 2; });
  expect({"block"}, [&](Json& weft) { weft["block_bytes"] = 2; });
  expect({"../x"}, [&](Json& weft) { weft["files"][0] = "../x"; });
  expect({"/etc/passwd"}, [&](Json& weft) { weft["files"][0] = "/etc/passwd"; });
  expect({"unknown optimizer"}, [&](Json& weft) { weft["optimizer"][0]["name"] = "Adan"; });
  expect({"cannot be understood"}, [&](Json& weft) { weft["optimizer"][0].erase("lr"); });
  expect({"cannot be understood"}, [&](Json& weft) { weft.erase("step"); });
  expect({"cannot be understood"}, [&](Json& weft) { weft["tensors"] = "none"; });
}

TEST_F(CheckpointDamageTest, NoFlippedBitAndNoCutGoesUnnoticed) {
  std::mt19937 random(22);
  std::vector<std::string> targets = files_.shards();
  targets.push_back(files_.index());
  for (int round = 0; round < 60; ++round) {
    std::string const& path = targets[static_cast<std::size_t>(round) % targets.size()];
    std::string const bytes = SaveFiles::read(path);
    // Half of them near the start, where headers are.
    std::size_t const offset = random() % (round % 8 < 4 ? std::min<std::size_t>(bytes.size(), 2000) : bytes.size());
    if (round % 3 == 0) {
      SaveFiles::write(path, bytes.substr(0, offset));
      // All that the index has behind its last character is a line's end.
      if (path != files_.index() || offset + 1 < bytes.size()) {
        EXPECT_NE(verdict(), "") << path << " cut at " << offset;
      }
    } else {
      SaveFiles::flip(path, offset, static_cast<unsigned char>(1U << (random() % 8)));
      // Spaces between an index's tokens may be other white space, and in a header's padding.
      (void)verdict();  // whatever was read had the right values
    }
    SaveFiles::write(path, bytes);
  }
  EXPECT_EQ(verdict(), "");
}

}  // namespace
}  // namespace weft::test
