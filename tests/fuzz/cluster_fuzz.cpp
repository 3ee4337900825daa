// Any bytes at all as a cluster in JSON: read_cluster() either makes one that can be planned for and written again, or
// says what is wrong.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "weft/cluster.hpp"
#include "weft/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::istringstream text(std::string(reinterpret_cast<char const*>(data), size));
  weft::Cluster cluster;
  try {
    cluster = weft::read_cluster(text, "fuzz.json");
  } catch (weft::Error const& error) {
    bool const says_where = std::string(error.what()).rfind("fuzz.json:", 0) == 0;
    if (error.code() == weft::ErrorCode::invalid_argument && says_where) return 0;
    std::fprintf(stderr, "not an error in the text: %s\n", error.what());
    std::abort();
  }
  weft::check_cluster(cluster);
  std::stringstream again;
  write_cluster(cluster, again);
  static_cast<void>(weft::read_cluster(again, "fuzz.json"));
  return 0;
}
