// How buffers are cut into parts.
#include "collectives/partition.hpp"

#include <gtest/gtest.h>

#include <cstddef>

namespace weft {
namespace {

TEST(Partition, PartsOfTheMostElementsFit) {
  for (std::size_t const bytes : {std::size_t{512}, std::size_t{65'536}, std::size_t{524'288}, std::size_t{349'504}}) {
    for (std::size_t element = 1; element <= 256; ++element) {
      for (std::size_t parts = 1; parts <= 9; ++parts) {
        auto const most = most_for_parts(bytes, parts, element);
        ASSERT_GT(most, 0U) << element;
        for (auto const count : {most, most - 1, most / 2 + 1}) {
          std::size_t end = 0;
          for (std::size_t index = 0; index < parts; ++index) {
            auto const part = part_of(count, index, parts, element);
            ASSERT_LE(part.count * element, bytes) << parts << " parts of " << count << " × " << element << " B";
            ASSERT_EQ(end, part.first);
            end += part.count;
          }
          ASSERT_EQ(count, end);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
