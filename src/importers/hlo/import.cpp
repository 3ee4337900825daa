#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <iterator>
#include <map>

#include "importers/hlo/donate.hpp"
#include "importers/hlo/groups.hpp"
#include "importers/hlo/module.hpp"
#include "importers/hlo/recipe.hpp"
#include "importers/hlo/unroll.hpp"
#include "weft/error.hpp"
#include "weft/import_hlo.hpp"

namespace weft {
namespace {

void add_totals(OpGraph const& graph, HloReport& report) {
  std::map<std::pair<CollectiveKind, int>, HloReport::Collective> collectives;
  for (auto const& op : graph.ops) {
    report.flops += op.flops;
    report.memory_bytes += op.memory_bytes;
    if (op.kind != OpKind::collective) continue;
    auto const& group = graph.groups[static_cast<std::size_t>(op.collective.group)];
    int const ranks = static_cast<int>(group.sets.front().size());
    auto& all = collectives[{op.collective.kind, ranks}];
    all.kind = to_string(op.collective.kind);
    all.ranks = ranks;
    ++all.calls;
    all.bytes += static_cast<double>(op.collective.bytes);
    if (op.collective.kind == CollectiveKind::all_reduce) {
      report.all_reduce_bytes += static_cast<double>(op.collective.bytes);
    }
  }
  for (auto const& [key, collective] : collectives) report.collectives.push_back(collective);
}

}  // namespace

ImportedHlo import_hlo(std::istream& text, std::string const& source, ImportHloOptions const& options) {
  if (options.max_ops < 1 || options.unknown_trips < 0) {
    throw Error(ErrorCode::invalid_argument, "import_hlo: max_ops is at least 1, unknown_trips at least 0");
  }
  std::string const all{std::istreambuf_iterator<char>(text), std::istreambuf_iterator<char>()};
  if (text.bad()) throw Error(ErrorCode::system, source + ": it cannot be read");
  auto const module = hlo::parse_module(all, source);
  ImportedHlo imported;
  auto& [graph, report] = imported;
  graph.name = module.name;
  report.source = source;
  report.module = module.name;
  report.computations = static_cast<std::int64_t>(module.computations.size());
  for (auto const& computation : module.computations) {
    report.instructions += static_cast<std::int64_t>(computation.instructions.size());
  }
  hlo::Groups groups(module);
  report.ranks = groups.ranks();
  if (groups.beyond() > 0) {
    report.warnings.push_back(
        {.what = fmt::format("groups of ranks beyond the {} that the module has", groups.declared_ranks()),
         .count = groups.beyond()});
  }
  auto const recipes = hlo::write_recipes(module, groups, options, report);
  report.unfused_memory_bytes = recipes[static_cast<std::size_t>(module.entry)].unfused_bytes;
  auto const ends = hlo::unroll(module, recipes, options, graph, report);
  graph.groups = groups.all();
  hlo::donate(module, ends, graph);
  hlo::order_overwriting(graph);
  add_totals(graph, report);
  check_graph(graph);
  return imported;
}

}  // namespace weft
