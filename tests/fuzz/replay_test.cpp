// A fuzz target without a fuzzer: its corpus as it is, and with some bytes changed, the same ones every time.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace weft::test {
namespace {

void feed(std::string const& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<std::uint8_t const*>(text.data()), text.size());
}

std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  for (auto const& entry : std::filesystem::directory_iterator(WEFT_FUZZ_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

/// One of: a byte changed, a piece left out, a piece said twice, a piece of another text in between, a number changed.
std::string changed(std::string text, std::string const& other, std::mt19937& random) {
  auto const below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  auto const at = below(text.size());
  auto const length = below(std::min<std::size_t>(40, text.size() - at));
  switch (below(5)) {
    case 0: text[at] = static_cast<char>(below(256)); break;
    case 1: text.erase(at, length); break;
    case 2: text.insert(at, text.substr(at, length)); break;
    case 3: text.insert(at, other.substr(below(other.size()), length)); break;
    default: {
      auto const digit = text.find_first_of("0123456789", at);
      if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(10));
    }
  }
  return text;
}

TEST(FuzzReplay, CorpusAndWhatIsCloseToIt) {
  auto const texts = corpus();
  ASSERT_FALSE(texts.empty()) << WEFT_FUZZ_CORPUS;
  std::mt19937 random(20240607);
  for (auto const& text : texts) {
    feed(text);
    ASSERT_FALSE(text.empty());
    for (int round = 0; round < 1000; ++round) {
      std::string other = text;
      for (int changes = 0; changes < 1 + round % 4; ++changes) {
        other = changed(other, texts[random() % texts.size()], random);
        if (other.empty()) break;
      }
      feed(other);
    }
  }
}

}  // namespace
}  // namespace weft::test
