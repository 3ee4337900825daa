#include "folder_checkpoint.hpp"

#include <stdexcept>

#include <fmt/format.h>
#include <weft/error.hpp>

#include "strategies/strategy.hpp"

namespace train_gpt {
namespace {

constexpr char const* kHeader = "train_gpt";  ///< the metadata that has the run's options

std::vector<weft::NamedParameter> named(GptParameters const& parameters) {
  std::vector<weft::NamedParameter> all;
  for (GptParameters::Tensor const& tensor : parameters.tensors()) all.push_back({tensor.name, tensor.shape});
  return all;
}

// A damaged file is no mistake in the command line, which invalid_argument would be taken for.
template <typename Read>
auto reading(Read const& read) {
  try {
    return read();
  } catch (weft::Error const& error) {
    if (error.code() != weft::ErrorCode::invalid_argument) throw;
    throw std::runtime_error(error.what());
  }
}

}  // namespace

FolderCheckpoints::FolderCheckpoints(weft::Communicator& world, Options const& options, std::uint64_t text_fingerprint,
                                     GptParameters const& parameters)
    : options_(options), text_fingerprint_(text_fingerprint), parameters_(named(parameters)) {
  if (!options.checkpoint.empty()) saver_.emplace(world, options.checkpoint);
}

void FolderCheckpoints::after_step(int step, Strategy& strategy) {
  int const done = step + 1;
  bool const due = options_.checkpoint_every > 0 && done % options_.checkpoint_every == 0;
  if (!saver_ || (!due && done != options_.steps)) return;
  strategy.save(*saver_, parameters_,
                {.metadata = {{kHeader, header_of(describe_run(options_, text_fingerprint_, done, strategy))}}});
}

void FolderCheckpoints::finish() {
  if (saver_) saver_->wait();
}

Checkpoint load_folder_header(std::string const& folder) {
  weft::Checkpoint const checkpoint = reading([&] { return weft::Checkpoint::open(folder); });
  auto const header = checkpoint.info().metadata.find(kHeader);
  if (header == checkpoint.info().metadata.end()) {
    throw std::runtime_error(fmt::format("checkpoint {}: is not of train_gpt", folder));
  }
  return read_header(folder, header->second);
}

void restore_folder(weft::Communicator& world, std::string const& folder, Checkpoint const& header,
                    GptParameters const& parameters, Strategy& strategy) {
  reading([&] { strategy.load(weft::Checkpoint::open(world, folder), world, named(parameters)); });
  restore_scaler(header, strategy);
}

}  // namespace train_gpt
