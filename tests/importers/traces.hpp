#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "weft/error.hpp"
#include "weft/op_graph.hpp"

namespace weft::test {

inline std::string sample(std::string const& name) {
  std::ifstream in(std::string(WEFT_SOURCE_DIR) + "/tests/importers/data/" + name);
  EXPECT_TRUE(in) << name;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::string message_of(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was thrown";
}

inline void expect_names(std::string const& message, std::vector<std::string> const& parts) {
  for (auto const& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

/// The operator of a name; a failure where there is none.
inline std::size_t op_named(OpGraph const& graph, std::string const& name) {
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].name == name) return op;
  }
  ADD_FAILURE() << "there is no " << name;
  return 0;
}

/// Feeds what differs from `text` in a few places: nothing but Error may come out.
inline void survive_mutations(std::string const& text, int rounds,
                              std::function<void(std::string const&)> const& read) {
  std::mt19937 random(23);
  std::vector<std::string> const pieces = {"-1",
                                           "0",
                                           "1e999",
                                           "null",
                                           "\"\"",
                                           "[]",
                                           "{}",
                                           "99999999999999999999",
                                           "]",
                                           "}",
                                           ",",
                                           "true",
                                           "-",
                                           "\\u0000",
                                           "\"x\"",
                                           "[[[[[[[[[[1]]]]]]]]]]",
                                           "4611686018427387904"};
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string mutated = text;
    for (unsigned edit = 0; edit <= random() % 3; ++edit) {
      auto const at = random() % mutated.size();
      auto const& piece = pieces[random() % pieces.size()];
      switch (random() % 4) {
        case 0: mutated[at] = static_cast<char>(random() % 256); break;
        case 1: mutated.insert(at, piece); break;
        case 2: {  // a whole value
          auto const begin = mutated.find(':', at);
          auto const end = begin == std::string::npos ? begin : mutated.find_first_of(",}]", begin);
          if (end != std::string::npos) mutated.replace(begin + 1, end - begin - 1, piece);
          break;
        }
        default: mutated.erase(at, random() % 40);
      }
    }
    try {
      read(mutated);
    } catch (Error const& error) {
      ASSERT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 10);
  EXPECT_LT(refused, rounds);
}

}  // namespace weft::test
