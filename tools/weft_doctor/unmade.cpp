#include "weft_doctor/unmade.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "weft_doctor/process.hpp"
#include "weft_doctor/words.hpp"

namespace weft::doctor {
namespace {

/// By name and size, because nothing else is known before all ranks have come.
using Begun = std::map<std::pair<std::string, int>, std::map<int, std::int64_t>>;  // → rank → nanoseconds it waits

/// Of each process the newest dump counts.
Begun find_begun(std::vector<Dump> const& dumps) {
  std::map<Process, Dump const*> last;
  for (auto const& dump : dumps) {
    auto& known = last[process_of(dump)];
    if (known == nullptr || dump.written_ns > known->written_ns) known = &dump;
  }
  Begun begun;
  for (auto const& [process, dump] : last) {
    for (auto const& one : dump->begun) begun[{one.name, one.size}][one.rank] = dump->written_ns - one.since_ns;
  }
  return begun;
}

}  // namespace

std::vector<Verdict> find_unmade(std::vector<Dump> const& dumps, DiagnosisOptions const& options) {
  std::vector<Verdict> verdicts;
  for (auto const& [which, waits] : find_begun(dumps)) {
    std::vector<int> waiting;
    std::vector<int> missing;
    std::int64_t longest = 0;
    for (int rank = 0; rank < which.second; ++rank) {
      auto const found = waits.find(rank);
      (found == waits.end() ? missing : waiting).push_back(rank);
      if (found != waits.end()) longest = std::max(longest, found->second);
    }
    if (missing.empty() || longest < options.least_wait.count()) continue;
    verdicts.push_back(
        {.communicator = "not made yet",
         .name = which.first,
         .size = which.second,
         .finding = Finding::unmade,
         .culprits = missing,
         .sentence = fmt::format("{} never came to make it, {} since {}", name_ranks(missing),
                                 waiting.size() == 1 ? name_ranks(waiting) + " waits" : name_ranks(waiting) + " wait",
                                 name_duration(longest))});
  }
  return verdicts;
}

}  // namespace weft::doctor
