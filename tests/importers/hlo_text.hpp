#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "weft/error.hpp"
#include "weft/import_hlo.hpp"

namespace weft::test {

inline ImportedHlo import_text(std::string const& text, ImportHloOptions const& options = {}) {
  std::istringstream stream(text);
  return import_hlo(stream, "test.hlo", options);
}

/// What import_hlo() says of a text that it refuses.
inline std::string refusal(std::string const& text, ImportHloOptions const& options = {}) {
  try {
    static_cast<void>(import_text(text, options));
  } catch (Error const& error) {
    return error.code() == ErrorCode::invalid_argument ? error.what() : "another kind of error";
  }
  return "nothing was thrown";
}

inline std::filesystem::path hlo_folder() {
  char const* const data = std::getenv("WEFT_TEST_DATA");
  return (data != nullptr ? std::filesystem::path(data) : std::filesystem::path(WEFT_SOURCE_DIR) / "../shared/data") /
         "hlo";
}

}  // namespace weft::test
