#include <fmt/format.h>

#include "weft/import_hlo.hpp"

namespace weft {
namespace {

constexpr double kGiga = 1e9;

std::string loop_line(HloReport::Loop const& loop) {
  return fmt::format("  loop {}: {} iterations{} of {} steps\n", loop.name, loop.trips, loop.known ? "" : " (assumed)",
                     loop.steps);
}

std::string collective_line(HloReport::Collective const& collective) {
  return fmt::format("  {} among {}: {} calls, {:.3f} GB\n", collective.kind, collective.ranks, collective.calls,
                     collective.bytes / kGiga);
}

std::string warning_line(HloReport::Warning const& warning) {
  if (warning.bytes <= 0) return fmt::format("  {} ({} instructions)\n", warning.what, warning.count);
  return fmt::format("  not costed: {} ({} instructions), charged {:.3f} GB\n", warning.what, warning.count,
                     warning.bytes / kGiga);
}

}  // namespace

std::string to_string(HloReport const& report) {
  std::string text = fmt::format("{}: {}, {} computations, {} instructions, {} ranks\n", report.source, report.module,
                                 report.computations, report.instructions, report.ranks);
  for (auto const& loop : report.loops) text += loop_line(loop);
  if (report.conditionals > 0) {
    text += fmt::format("  {} conditionals: the dearest branch of each\n", report.conditionals);
  }
  for (auto const& collective : report.collectives) text += collective_line(collective);
  text +=
      fmt::format("  {} all-reduces and slices rewritten to reduce_scatters, {:.3f} GB; {:.3f} GB stay all_reduces\n",
                  report.reduce_scatters, report.reduce_scatter_bytes / kGiga, report.all_reduce_bytes / kGiga);
  text += fmt::format("  {} instructions are free; {} fused into {} operators\n", report.free_instructions,
                      report.fused_instructions, report.fusions);
  text += fmt::format("  {:.3f} TFLOP, {:.3f} GB of memory ({:.3f} GB unfused)\n", report.flops / 1e12,
                      report.memory_bytes / kGiga, report.unfused_memory_bytes / kGiga);
  for (auto const& warning : report.warnings) text += warning_line(warning);
  return text;
}

}  // namespace weft
