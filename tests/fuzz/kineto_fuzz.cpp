// Any bytes at all as a profile: import_kineto() either makes a graph that check_graph() takes or says where the text
// is wrong.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "weft/error.hpp"
#include "weft/import_kineto.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::istringstream text(std::string(reinterpret_cast<char const*>(data), size));
  try {
    auto const imported = weft::import_kineto(text, "fuzz.json");
    static_cast<void>(to_string(imported.report));
  } catch (weft::Error const& error) {
    // check_graph() does not know the source: its refusal would mean that the importer made a wrong graph.
    bool const says_where = std::string(error.what()).rfind("fuzz.json:", 0) == 0;
    if (error.code() == weft::ErrorCode::invalid_argument && says_where) return 0;
    std::fprintf(stderr, "not an error in the text: %s\n", error.what());
    std::abort();
  }
  return 0;
}
