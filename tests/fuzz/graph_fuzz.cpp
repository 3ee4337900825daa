// Any bytes at all as a graph in JSON: read_graph() either makes one that write_graph() writes and that is read back
// the same, or says where the text is wrong.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "weft/error.hpp"
#include "weft/op_graph_json.hpp"

namespace {

[[noreturn]] void fail(char const* what, std::string const& text) {
  std::fprintf(stderr, "%s: %s\n", what, text.c_str());
  std::abort();
}

std::string written(weft::OpGraph const& graph) {
  std::ostringstream text;
  write_graph(graph, text);
  return text.str();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::istringstream text(std::string(reinterpret_cast<char const*>(data), size));
  weft::OpGraph graph;
  try {
    graph = weft::read_graph(text, "fuzz.json");
  } catch (weft::Error const& error) {
    bool const says_where = std::string(error.what()).rfind("fuzz.json:", 0) == 0;
    if (error.code() != weft::ErrorCode::invalid_argument || !says_where)
      fail("not an error in the text", error.what());
    return 0;
  }
  std::string const first = written(graph);
  std::istringstream again(first);
  if (written(weft::read_graph(again, "fuzz.json")) != first) fail("read back as another graph", first);
  return 0;
}
