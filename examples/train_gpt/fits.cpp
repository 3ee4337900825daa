#include "fits.hpp"

#include <fmt/format.h>

#include <weft/error.hpp>

#include "gpt_parameters.hpp"

namespace train_gpt {
namespace {

/// Bytes of a parameter's optimizer states and f32 original.
double state_bytes(Options const& options) {
  bool const two_moments = options.optimizer == "adam" || options.optimizer == "adamw" || options.optimizer == "lamb";
  double const moment = options.state == "8bit" ? 1 : 4;
  return (two_moments ? 2 : 1) * moment + (options.precision == "fp32" ? 0 : 4);
}

/// What a rank keeps of a parameter between steps; see docs/sharding.md.
double bytes_a_parameter(Options const& options, int ranks) {
  double const own = options.precision == "fp32" ? 4 : 2;
  double const states = state_bytes(options);
  if (options.strategy == "ddp") return own + own + states;
  if (options.strategy == "zero1") return own + own + states / ranks;
  if (options.strategy == "zero2") return own + (own + states) / ranks;
  return (own + own + states) / (options.strategy == "hsdp" ? options.group_size(ranks) : ranks);
}

}  // namespace

void check_fits(Options const& options, int ranks, std::size_t available) {
  constexpr double kGiB = 1 << 30;
  double const count = GptParameters::count_of(options.model);
  double const needed = count * bytes_a_parameter(options, ranks);
  auto const there = static_cast<double>(available);
  if (needed * options.ranks <= there) return;
  throw weft::Error(
      weft::ErrorCode::out_of_memory,
      fmt::format("{:.1f} M parameters need {:.1f} GiB a rank under {}, of parameters, gradients and optimizer states "
                  "alone; this host has {:.1f} GiB for its {} rank{}; take a smaller model, a strategy that shards "
                  "more, or more hosts",
                  count / 1e6, needed / kGiB, options.strategy, there / kGiB, options.ranks,
                  options.ranks == 1 ? "" : "s"));
}

}  // namespace train_gpt
