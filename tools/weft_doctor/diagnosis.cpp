#include "weft_doctor/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "weft_doctor/examination.hpp"
#include "weft_doctor/process.hpp"
#include "weft_doctor/unmade.hpp"

namespace weft::doctor {
namespace {

/// If a rank wrote two dumps, the newer one counts; two processes cannot be the same rank.
void add(Dumps& dumps, Dump const& dump) {
  for (auto& known : dumps) {
    if (known->size != dump.size) {
      throw BadInput(fmt::format("{} and {} differ in the size of communicator {}: {} and {} ranks", known->file,
                                 dump.file, dump.communicator, known->size, dump.size));
    }
    if (known->rank != dump.rank) continue;
    if (process_of(*known) != process_of(dump)) {
      throw BadInput(fmt::format("{} and {} are both of rank {} of communicator {}, but of different processes",
                                 known->file, dump.file, dump.rank, dump.communicator));
    }
    if (dump.written_ns > known->written_ns) known = &dump;
    return;
  }
  dumps.push_back(&dump);
}

/// Communicators of one job are connected through processes that belong to several.
void check_one_job(std::map<std::string, Dumps> const& groups) {
  std::set<std::string> joined{groups.begin()->first};
  std::set<Process> processes;
  for (std::size_t before = 0; before != joined.size();) {
    before = joined.size();
    for (auto const& [communicator, dumps] : groups) {
      bool const touches = std::any_of(dumps.begin(), dumps.end(),
                                       [&](auto const* dump) { return processes.count(process_of(*dump)) > 0; });
      if (touches) joined.insert(communicator);
      if (joined.count(communicator) == 0) continue;
      for (auto const* dump : dumps) processes.insert(process_of(*dump));
    }
  }
  for (auto const& [communicator, dumps] : groups) {
    if (joined.count(communicator) > 0) continue;
    throw BadInput(
        fmt::format("{} and {} are of different jobs, for no process has part in both: give the dumps of one",
                    groups.begin()->second.front()->file, dumps.front()->file));
  }
}

}  // namespace

std::vector<Verdict> diagnose(std::vector<Dump> const& dumps, DiagnosisOptions const& options) {
  if (dumps.empty()) throw BadInput("there are no dumps");
  std::map<std::string, Dumps> groups;
  for (auto const& dump : dumps) add(groups[dump.communicator], dump);
  check_one_job(groups);
  std::vector<Verdict> verdicts;
  for (auto& [communicator, members] : groups) {
    std::sort(members.begin(), members.end(), [](auto const* a, auto const* b) { return a->rank < b->rank; });
    verdicts.push_back(examine(members, dumps, options));
  }
  for (auto& verdict : find_unmade(dumps, options)) verdicts.push_back(std::move(verdict));
  return verdicts;
}

}  // namespace weft::doctor
