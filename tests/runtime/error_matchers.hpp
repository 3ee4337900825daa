#pragma once

#include <gtest/gtest.h>

#include <string>

#include "weft/error.hpp"

namespace weft::test {

/// Expects `call` to throw Error{code} whose message contains every one of `parts`.
template <typename Call>
void expect_error(ErrorCode code, std::initializer_list<char const*> parts, Call const& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (Error const& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code));
    for (auto const* part : parts) EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace weft::test
