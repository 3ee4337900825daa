#include "weft/import_report.hpp"

#include <fmt/format.h>

namespace weft {

void ImportReport::warn(std::string const& what) {
  for (auto& warning : warnings) {
    if (warning.what == what) {
      ++warning.count;
      return;
    }
  }
  warnings.push_back({what, 1});
}

std::string to_string(ImportReport const& report) {
  std::string text =
      fmt::format("{}: {} entries: {} operators, {} within others, {} free; {} collectives of {:.3f} MB\n",
                  report.source, report.entries, report.operators, report.within_others, report.free_entries,
                  report.collectives, report.collective_bytes / 1e6);
  for (auto const& [what, count] : report.warnings) text += fmt::format("  {} x {}\n", count, what);
  return text;
}

}  // namespace weft
