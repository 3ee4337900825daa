#include "agreement.hpp"

#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <weft/error.hpp>

#include "checksum.hpp"
#include "link.hpp"

namespace train_gpt {
namespace {

char const* on_or_off(bool on) {
  return on ? "on" : "off";
}

/// What must be equal, as text.
std::vector<std::pair<std::string, std::string>> facts_of(Inputs const& inputs) {
  Options const& o = inputs.options;
  auto const saved = inputs.checkpoint ? checksum(kChecksumStart, inputs.checkpoint->values.data(),
                                                  inputs.checkpoint->values.size() * sizeof(float))
                                       : 0;
  return {
      // First: it brings the others along.
      {"--resume", inputs.checkpoint ? fmt::format("from step {} ({:016x})", inputs.checkpoint->step, saved) : "off"},
      {"--device", o.device},
      {"--cuda-graph", on_or_off(o.cuda_graph)},
      {"--layers", std::to_string(o.model.layers)},
      {"--width", std::to_string(o.model.width)},
      {"--heads", std::to_string(o.model.heads)},
      {"--seq", std::to_string(o.model.seq)},
      {"--batch", std::to_string(o.batch)},
      {"--steps", std::to_string(o.steps)},
      {"--lr", fmt::format("{}", o.lr)},
      {"--seed", std::to_string(o.seed)},
      {"the text", fmt::format("{} ({:016x})", inputs.text.source, inputs.text_fingerprint)},
      {"--link", o.auto_link ? "auto" : describe(o.link)},
      {"--bucket-mb", fmt::format("{}", o.bucket_mb)},
      {"--first-bucket-mb", fmt::format("{}", o.first_bucket_mb)},
      {"--last-bucket-mb", fmt::format("{}", o.last_bucket_mb)},
      {"--bucket-policy", o.bucket_policy},
      {"--schedule", o.step_schedule.empty() ? "off" : o.step_schedule},
      {"--compress", o.compress},
      {"--error-feedback", on_or_off(o.error_feedback)},
      {"--strategy", o.strategy},
      {"--prefetch", std::to_string(o.prefetch)},
      {"--gather-cap-mb", fmt::format("{}", o.gather_cap_mb)},
      {"--keep-gathered", on_or_off(o.keep_gathered)},
      {"--shard-size", std::to_string(o.shard_size)},
      {"--sum-by-group", on_or_off(o.sum_by_group)},
      {"--precision", o.precision},
      {"--loss-scale", fmt::format("{}", o.loss_scale)},
      {"--growth-interval", std::to_string(o.growth_interval)},
      {"--optimizer", o.optimizer},
      {"--weight-decay", o.weight_decay ? fmt::format("{}", *o.weight_decay) : "default"},
      {"--state", o.state},
      {"--accumulate", std::to_string(o.accumulate)},
      {"--clip", fmt::format("{}", o.clip)},
      {"--recompute", on_or_off(o.recompute)},
      {"--warmup", std::to_string(o.warmup)},
      {"--decay", o.decay},
      {"--compare", on_or_off(o.compare)},
      {"--compare-caps", fmt::format("{}", fmt::join(o.compare_caps, " "))},
      {"--checkpoint", o.checkpoint.empty() ? "off" : o.checkpoint},
      {"--checkpoint-every", std::to_string(o.checkpoint_every)},
      {"--save", on_or_off(!o.save.empty())},
      {"--sample", std::to_string(o.sample)},
      {"--prompt", o.prompt},
      {"--autotune", o.autotune ? fmt::format("share {}", o.autotune_share) : "off"},
      {"--trace", on_or_off(!o.trace.empty())},
  };
}

/// Rank `root`'s text, on every rank.
std::string text_of(weft::Communicator& world, int root, std::string text) {
  std::vector<std::uint64_t> length{text.size()};
  world.broadcast(weft::BufferView(std::span(length)), root).wait();
  text.resize(length[0]);
  world.broadcast(weft::BufferView(text.data(), text.size(), weft::DataType::u8), root).wait();
  return text;
}

}  // namespace

void check_same_everywhere(weft::Communicator& world, Inputs const& inputs) {
  auto const facts = facts_of(inputs);
  std::vector<std::uint64_t> mine;
  for (auto const& [name, value] : facts) mine.push_back(checksum(kChecksumStart, value.data(), value.size()));
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<std::uint64_t const>(mine), std::span<std::uint64_t>(all));
  for (std::size_t rank = 1; rank < static_cast<std::size_t>(world.size()); ++rank) {
    for (std::size_t i = 0; i < facts.size(); ++i) {
      if (all[rank * facts.size() + i] == all[i]) continue;
      auto const& [name, value] = facts[i];
      std::string const first = text_of(world, 0, value);
      std::string const other = text_of(world, static_cast<int>(rank), value);
      throw weft::Error(weft::ErrorCode::mismatch,
                        fmt::format("ranks 0 and {0} were started differently: {1} is {2} on rank 0 and {3} on rank "
                                    "{0}; start all alike",
                                    rank, name, first, other));
    }
  }
}

void alike(weft::Communicator& world, std::function<void()> const& work) {
  std::string failure;
  try {
    work();
  } catch (std::exception const& error) {
    if (world.rank() != 0) throw;
    failure = error.what();
  }
  failure = text_of(world, 0, std::move(failure));
  if (!failure.empty()) throw std::runtime_error("rank 0: " + failure);
}

}  // namespace train_gpt
