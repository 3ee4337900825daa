#include "scheduler/memory/placed_lives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "scheduler/planned_buffers.hpp"

namespace weft {
namespace {

TEST(PlacedLives, ThoseBesideABufferAreFound) {
  std::mt19937_64 random(7);
  for (int const count : {1, 2, 7, 64, 200}) {
    auto const buffers = test::random_buffers({.count = count, .moments = 40, .most_bytes = 9}, random);
    Sections const sections = make_sections(buffers);
    std::vector<int> order(buffers.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::erase_if(order, [&](int i) { return sections.shapes[static_cast<std::size_t>(i)].pieces.empty(); });

    PlacedLives lives(sections, order);
    std::vector<int> placed;
    for (int const buffer : order) {
      Shape const& shape = sections.shapes[static_cast<std::size_t>(buffer)];
      std::vector<int> expected;
      std::copy_if(placed.begin(), placed.end(), std::back_inserter(expected), [&](int other) {
        Shape const& beside = sections.shapes[static_cast<std::size_t>(other)];
        return beside.begin() < shape.end() && shape.begin() < beside.end();
      });
      std::vector<int> found;
      lives.visit_beside(shape, [&](int other) { found.push_back(other); });
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      EXPECT_EQ(found, expected) << "beside buffer " << buffer << " of " << count << ", seed 7";
      lives.add(buffer);
      placed.push_back(buffer);
    }
  }
}

}  // namespace
}  // namespace weft
