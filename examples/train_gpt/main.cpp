#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <stdexcept>

#include <fmt/format.h>

#include <weft/error.hpp>
#include <weft/launch.hpp>
#include <weft/memory.hpp>

#include "blas_core.hpp"
#include "folder_checkpoint.hpp"
#include "memory_use.hpp"
#include "trainer.hpp"

namespace {

using train_gpt::Inputs;
using train_gpt::Options;

/// Better before training than after. @throws std::runtime_error
void check_writable(std::string const& path) {
  if (path.empty()) {
    return;
  }
  auto const refuse = [&](char const* why) { throw std::runtime_error(fmt::format("cannot write {}: {}", path, why)); };
  auto const status = std::filesystem::status(path);
  if (std::filesystem::exists(status)) {
    if (!std::filesystem::is_regular_file(status)) {
      refuse("it exists and is no regular file");
    }
    if (access(path.c_str(), W_OK) != 0) {
      refuse(std::strerror(errno));
    }
    return;
  }
  std::filesystem::path const absolute = std::filesystem::absolute(path);
  if (!absolute.has_filename()) {
    refuse("it names a folder");
  }
  if (access(absolute.parent_path().c_str(), W_OK) != 0) {
    refuse(std::strerror(errno));
  }
}

/// @throws weft::Error{invalid_argument}
void check_different(std::initializer_list<std::string> paths) {
  std::set<std::string> seen;
  for (std::string const& path : paths) {
    if (!path.empty() && !seen.insert(std::filesystem::weakly_canonical(path).string()).second) {
      throw weft::Error(weft::ErrorCode::invalid_argument,
                        fmt::format("{} is named for two outputs; give each a file of its own", path));
    }
  }
}

Inputs read_inputs(Options options) {
  for (std::string const& path : {options.trace, options.report_json, options.save}) {
    check_writable(path);
  }
  check_different({options.trace, options.report_json, options.save});
  train_gpt::refuse_to_replace(options);
  Inputs inputs;
  inputs.text = train_gpt::load_text(options.data, options.model.seq);
  inputs.text_fingerprint = inputs.text.fingerprint();
  if (!options.resume.empty()) {
    bool const folder = std::filesystem::is_directory(options.resume);
    inputs.checkpoint =
        folder ? train_gpt::load_folder_header(options.resume) : train_gpt::load_checkpoint(options.resume);
    inputs.is_folder = folder;
    train_gpt::adopt(options, *inputs.checkpoint, inputs.text_fingerprint);
    train_gpt::check_length(inputs.text, options.model.seq);
    train_gpt::check_run(options);
  }
  inputs.options = std::move(options);
  return inputs;
}

}  // namespace

int main(int argc, char** argv) {
  train_gpt::use_newest_blas_core(argv);
  int exit_code = 0;
  try {
    std::optional<Options> options = train_gpt::parse_options(argc, argv, exit_code);
    if (!options) {
      return exit_code;
    }
    int const ranks = options->ranks;
    Inputs const inputs = read_inputs(std::move(*options));
    // Bound before the ranks are: their communicator's memory counts. What this host has is a budget too: without one
    // the system would end some process, and say nothing.
    // What is on a GPU is not this host's.
    std::size_t const host = inputs.options.device == "cpu"
                                 ? train_gpt::available_memory() / static_cast<std::size_t>(ranks)
                                 : weft::MemoryAccount::kUnlimited;
    weft::MemoryAccount const memory(std::min(inputs.options.memory_budget, host));
    weft::MemoryAccount::Binding const bound(memory);
    return weft::launch({.ranks = ranks}, [&](weft::Communicator& world) {
      train_gpt::run_rank(world, inputs, memory);
      return 0;
    });
  } catch (weft::Error const& error) {
    weft::report_failure(fmt::format("train_gpt: {}", error.what()));
    return error.code() == weft::ErrorCode::invalid_argument ? 2 : 1;
  } catch (std::exception const& error) {
    weft::report_failure(fmt::format("train_gpt: {}", error.what()));
    return 1;
  }
}
