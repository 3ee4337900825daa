#include "weft_doctor/paths.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace weft::doctor {

std::vector<CallPath> summarise_paths(std::vector<Dump> const& dumps) {
  std::set<std::pair<std::string, std::uint64_t>> counted;
  std::map<std::tuple<std::string, std::string, std::string>, CallPath> kinds;
  for (auto const& dump : dumps) {
    for (auto const& call : dump.calls) {
      if (call.path.empty() || !counted.emplace(dump.communicator, call.sequence).second) continue;
      auto& kind = kinds[{dump.communicator, call.text, call.path}];
      kind = {dump.communicator, dump.name, call.text, call.path, kind.calls + 1};
    }
  }
  std::vector<CallPath> paths;
  for (auto& [key, kind] : kinds) paths.push_back(std::move(kind));
  std::stable_sort(paths.begin(), paths.end(), [](CallPath const& a, CallPath const& b) {
    return a.communicator != b.communicator ? a.communicator < b.communicator : a.calls > b.calls;
  });
  return paths;
}

}  // namespace weft::doctor
