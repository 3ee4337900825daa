#include "folder_checkpoint.hpp"

#include <filesystem>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <weft/error.hpp>

#include "strategies/strategy.hpp"

namespace train_gpt {
namespace {

constexpr char const* kIndex = "model.safetensors.index.json";
constexpr char const* kHeader = "train_gpt";  ///< the metadata that has the run's options
// For those who read them; a run continues under any strategy at any ranks.
constexpr char const* kStrategy = "strategy";
constexpr char const* kRanks = "ranks";

std::vector<weft::NamedParameter> named(GptParameters const& parameters) {
  std::vector<weft::NamedParameter> all;
  for (GptParameters::Tensor const& tensor : parameters.tensors()) all.push_back({tensor.name, tensor.shape});
  return all;
}

// Neither a damaged file nor a diverged model is a mistake in the command line, which invalid_argument is taken for.
template <typename Task>
auto no_usage_error(Task const& task) {
  try {
    return task();
  } catch (weft::Error const& error) {
    if (error.code() != weft::ErrorCode::invalid_argument) throw;
    throw std::runtime_error(error.what());
  }
}

/// "24 steps under zero2 at 4 ranks".
std::string described(std::string const& folder) {
  weft::Checkpoint const checkpoint = weft::Checkpoint::open(folder);
  weft::CheckpointInfo const& info = checkpoint.info();
  auto const& metadata = info.metadata;
  auto const header = metadata.find(kHeader);
  if (header == metadata.end()) return fmt::format("{} steps of another program", info.step);
  std::string text = fmt::format("{} steps", read_header(folder, header->second).step);
  if (metadata.contains(kStrategy)) text += fmt::format(" under {}", metadata.at(kStrategy));
  if (metadata.contains(kRanks)) text += fmt::format(" at {} ranks", metadata.at(kRanks));
  return text;
}

}  // namespace

FolderCheckpoints::FolderCheckpoints(weft::Communicator& world, Options const& options, std::uint64_t text_fingerprint,
                                     GptParameters const& parameters)
    : options_(options), ranks_(world.size()), text_fingerprint_(text_fingerprint), parameters_(named(parameters)) {
  if (!options.checkpoint.empty()) saver_.emplace(world, options.checkpoint);
}

bool FolderCheckpoints::after_step(int step, Strategy& strategy) {
  int const done = step + 1;
  bool const due = options_.checkpoint_every > 0 && done % options_.checkpoint_every == 0;
  if (!saver_ || (!due && done != options_.steps)) return false;
  no_usage_error([&] {
    strategy.save(*saver_, parameters_,
                  {.metadata = {{kHeader, header_of(describe_run(options_, text_fingerprint_, done, strategy))},
                                {kStrategy, options_.strategy},
                                {kRanks, std::to_string(ranks_)}}});
  });
  return true;
}

void FolderCheckpoints::finish() {
  if (saver_) saver_->wait();
}

void refuse_to_replace(Options const& options) {
  std::string const& folder = options.checkpoint;
  std::error_code absent;
  if (folder.empty() || options.overwrite_checkpoint) return;
  if (!std::filesystem::exists(std::filesystem::path(folder) / kIndex, absent)) return;
  if (!options.resume.empty() && std::filesystem::equivalent(folder, options.resume, absent)) return;
  std::string found;
  try {
    found = described(folder);
  } catch (weft::Error const& error) {
    throw weft::Error(error.code(),
                      fmt::format("--checkpoint {}: holds what this run would replace and cannot be read: "
                                  "{}; take another folder, or move it away",
                                  folder, error.what()));
  }
  throw weft::Error(weft::ErrorCode::invalid_argument,
                    fmt::format("--checkpoint {0}: holds another run's checkpoint ({1}), which this run would replace; "
                                "continue it with --resume {0}, take another folder, or give --overwrite-checkpoint",
                                folder, found));
}

Checkpoint load_folder_header(std::string const& folder) {
  weft::Checkpoint const checkpoint = no_usage_error([&] { return weft::Checkpoint::open(folder); });
  auto const header = checkpoint.info().metadata.find(kHeader);
  if (header == checkpoint.info().metadata.end()) {
    throw std::runtime_error(fmt::format("checkpoint {}: is not of train_gpt", folder));
  }
  return read_header(folder, header->second);
}

void restore_folder(weft::Communicator& world, std::string const& folder, Checkpoint const& header,
                    GptParameters const& parameters, Strategy& strategy) {
  no_usage_error([&] { strategy.load(weft::Checkpoint::open(world, folder), world, named(parameters)); });
  restore_scaler(header, strategy);
}

}  // namespace train_gpt
