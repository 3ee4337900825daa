#include "checkpoint/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "checkpoint/xxh64.hpp"
#include "examples/temporary_folder.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

std::uint64_t hash(std::string const& text) {
  return xxh64(std::as_bytes(std::span(text)));
}

// From the specification's and other implementations' test vectors.
TEST(Xxh64Test, KnownValues) {
  EXPECT_EQ(hash(""), 0xef46db3751d8e999U);
  EXPECT_EQ(hash("a"), 0xd24ec4f1a98c6e5bU);
  EXPECT_EQ(hash("abc"), 0x44bc2cf5ad770999U);
  EXPECT_EQ(hash("xxhash"), 0x32dd38952c4bc720U);
  EXPECT_EQ(hash("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1U);
}

class SafetensorsTest : public testing::Test {
 protected:
  /// A file of this header and so many bytes of values.
  [[nodiscard]] std::string file(std::string const& header, std::size_t values) const {
    std::uint64_t const length = header.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    return raw(bytes + header + std::string(values, 'v'));
  }
  [[nodiscard]] std::string raw(std::string const& bytes) const {
    std::string path = folder_.file("model.safetensors");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  void expect_refused(std::string const& path, std::vector<std::string> const& words) {
    try {
      (void)read_safetensors(File::open(path));
      ADD_FAILURE() << "was read; should name " << words.back();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      for (std::string const& word : words)
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }

  TemporaryFolder folder_;
};

TEST_F(SafetensorsTest, ReadsWhatOthersWrite) {
  // The example of the format's description, with spaces in its header and a type that we do not write first.
  auto const header = read_safetensors(File::open(file(
      R"( {"b":{"dtype":"F16","shape":[1,3],"data_offsets":[4,10]}, "__metadata__":{"k":"v"},"a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}}  )",
      10)));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].shape, (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(header.tensors[1].offset, header.tensors[0].offset + 4);
  EXPECT_EQ(header.metadata.at("k"), "v");
}

TEST_F(SafetensorsTest, WritesWhatItReads) {
  SafetensorsHeader header{{{"w", DataType::f64, {2, 2}, 4, 0}, {"b \"q\"", DataType::bf16, {3}, 3, 0}}, {{"x", "y"}}};
  std::string const start = encode_safetensors("model.safetensors", header);
  EXPECT_EQ(start.size() % 8, 0U);
  EXPECT_EQ(header.tensors[0].offset, start.size());
  auto const again = read_safetensors(File::open(raw(start + std::string(38, 'v'))));
  ASSERT_EQ(again.tensors.size(), 2U);
  EXPECT_EQ(again.tensors[1].name, "b \"q\"");
  EXPECT_EQ(again.tensors[1].offset, header.tensors[1].offset);
  EXPECT_EQ(again.metadata, header.metadata);
}

// To look through all of them for each would take minutes.
TEST_F(SafetensorsTest, ReadsManyTensors) {
  constexpr std::size_t kTensors = 300'000;
  SafetensorsHeader header;
  for (std::size_t i = 0; i < kTensors; ++i) header.tensors.push_back({std::to_string(i), DataType::u8, {0}, 0, 0});
  auto const again = read_safetensors(File::open(raw(encode_safetensors("model.safetensors", header))));
  EXPECT_EQ(again.tensors.size(), kTensors);
}

TEST_F(SafetensorsTest, WritesNoHeaderThatReadersRefuse) {
  // A control character is six bytes in JSON.
  std::string name;
  name.resize(17'000'000, '\1');
  SafetensorsHeader header{{{name, DataType::u8, {1}, 1, 0}}, {}};
  expect_error(ErrorCode::invalid_argument, {"model.safetensors", "1 tensors", "100000000", "more ranks"},
               [&] { (void)encode_safetensors("model.safetensors", header); });
}

TEST_F(SafetensorsTest, RefusesWhatIsDamaged) {
  expect_refused(raw("short"), {"5 bytes"});
  expect_refused(raw(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)), {"does not fit"});
  expect_refused(raw(std::string("\x03\0\0\0\0\0\0\0{}", 10)), {"does not fit"});
  expect_refused(file("{not json}", 0), {"JSON"});
  expect_refused(file("[]", 0), {"no JSON object"});
  expect_refused(file("\xff\xfe", 0), {"JSON"});
  expect_refused(file(std::string(100'000, '['), 0), {"JSON"});
  auto const tensor = [](std::string const& rest) { return "{\"w\":{" + rest + "}}"; };
  expect_refused(file(tensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4), {"tensor w", "type F31"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4), {"tensor w", "shape"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4), {"tensor w", "4 bytes", "[2]"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
                 {"tensor w"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4), {"tensor w", "[0, 8)", "has 4"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 8), {"tensor w", "[4, 0)"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 8), {"tensor w", "data_offsets"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[1])"), 8), {"tensor w", "data_offsets"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 8), {"4 bytes behind"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8), {"tensor w", "begins at"});
  expect_refused(
      file(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
          6),
      {"tensor b", "begins at"});
  expect_refused(
      file(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          4),
      {"has a twice"});
  expect_refused(file(R"({"__metadata__":{"a":1}})", 0), {"__metadata__"});
  expect_refused(file(tensor(R"("dtype":"F32","shape":[1e999],"data_offsets":[0,4])"), 4), {"1e999"});
  // To print it would take more stack than there is.
  std::string const deep = std::string(500'000, '[') + std::string(500'000, ']');
  expect_refused(file(tensor(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + deep), 4), {"deep"});
  expect_refused(folder_.file(""), {"no regular file"});
}

}  // namespace
}  // namespace weft::test
