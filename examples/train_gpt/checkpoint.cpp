#include "checkpoint.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checksum.hpp"
#include "strategies/strategy.hpp"

namespace train_gpt {
namespace {

using Json = nlohmann::json;

/// The file: this, then header_bytes of JSON, then value_bytes of f32.
struct Preamble {
  std::array<char, 8> magic{};
  std::uint64_t header_bytes = 0;
  std::uint64_t value_bytes = 0;
  std::uint64_t checksum = 0;  ///< of header and values
};
constexpr std::array<char, 8> kMagic{'W', 'E', 'F', 'T', 'G', 'P', 'T', '2'};

[[noreturn]] void fail(std::string const& path, std::string const& what) {
  throw std::runtime_error(fmt::format("checkpoint {}: {}", path, what));
}

std::uint64_t checksum_of(std::string const& header, std::vector<float> const& values) {
  return checksum(checksum(kChecksumStart, header.data(), header.size()), values.data(), values.size() * sizeof(float));
}

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

/// Writes a new file beside `path` and returns its name.
std::string write_beside(std::string const& path, Preamble const& preamble, std::string const& header,
                         std::vector<float> const& values) {
  std::string temporary = path + ".XXXXXX";
  int const descriptor = mkostemp(temporary.data(), O_CLOEXEC);
  std::unique_ptr<std::FILE, CloseFile> const file(descriptor >= 0 ? fdopen(descriptor, "wb") : nullptr);
  if (!file) {
    fail(path, fmt::format("cannot write {}: {}", temporary, std::strerror(errno)));
  }
  mode_t const mask = umask(0);
  umask(mask);
  (void)fchmod(descriptor, 0666U & ~mask);  // as a file that open() creates; mkostemp's is the owner's only
  bool const written = std::fwrite(&preamble, sizeof preamble, 1, file.get()) == 1 &&
                       std::fwrite(header.data(), 1, header.size(), file.get()) == header.size() &&
                       std::fwrite(values.data(), sizeof(float), values.size(), file.get()) == values.size() &&
                       std::fflush(file.get()) == 0 && fsync(fileno(file.get())) == 0;
  if (!written) {
    int const error = errno;
    std::remove(temporary.c_str());
    fail(path, fmt::format("cannot write {}: {}", temporary, std::strerror(error)));
  }
  return temporary;
}

/// Makes the rename itself survive a power cut. Some file systems cannot sync a folder; the file is complete either
/// way.
void sync_folder(std::string const& path) {
  std::filesystem::path const folder = std::filesystem::absolute(path).parent_path();
  int const descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    (void)fsync(descriptor);
    close(descriptor);
  }
}

template <typename T>
void take(Options const& options, char const* name, T& mine, T const& saved) {
  if (options.given.contains(name) && mine != saved) {
    fail(options.resume,
         fmt::format("was written with {} {}, the command line says {}; leave {} out", name, saved, mine, name));
  }
  mine = saved;
}

}  // namespace

std::string header_of(Checkpoint const& c) {
  return Json{{"layers", c.model.layers},
              {"width", c.model.width},
              {"heads", c.model.heads},
              {"seq", c.model.seq},
              {"batch", c.batch},
              {"lr", c.lr},
              {"seed", c.seed},
              {"text", c.text_fingerprint},
              {"optimizer", c.optimizer},
              {"weight_decay", c.weight_decay},
              {"clip", c.clip},
              {"warmup", c.warmup},
              {"decay", c.decay},
              {"step", c.step},
              {"applied", c.applied},
              {"scale", c.scaler.scale},
              {"growth_tracker", c.scaler.growth_tracker},
              {"hysteresis_left", c.scaler.hysteresis_left}}
      .dump();
}

Checkpoint read_header(std::string const& path, std::string const& header) {
  try {
    Json const json = Json::parse(header);
    Checkpoint c;
    c.model = {json.at("layers"), json.at("width"), json.at("heads"), json.at("seq")};
    c.batch = json.at("batch");
    c.lr = json.at("lr");
    c.seed = json.at("seed");
    c.text_fingerprint = json.at("text");
    c.optimizer = json.at("optimizer");
    c.weight_decay = json.at("weight_decay");
    c.clip = json.at("clip");
    c.warmup = json.at("warmup");
    c.decay = json.at("decay");
    c.step = json.at("step");
    c.applied = json.at("applied");
    c.scaler = {json.at("scale"), json.at("growth_tracker"), json.at("hysteresis_left")};
    return c;
  } catch (Json::exception const&) {
    fail(path, "its description of the run cannot be understood; resume with the version of train_gpt that wrote it");
  }
}

void save_checkpoint(std::string const& given, Checkpoint const& checkpoint) {
  // A link's target is replaced, not the link.
  std::string const path = std::filesystem::weakly_canonical(given).string();
  if (!std::all_of(checkpoint.values.begin(), checkpoint.values.end(),
                   [](float value) { return std::isfinite(value); })) {
    fail(path,
         "not written: the training has diverged, a weight or optimizer state is not finite; take a smaller --lr");
  }
  std::string const header = header_of(checkpoint);
  Preamble const preamble{kMagic, header.size(), checkpoint.values.size() * sizeof(float),
                          checksum_of(header, checkpoint.values)};
  std::string const temporary = write_beside(path, preamble, header, checkpoint.values);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    int const error = errno;
    std::remove(temporary.c_str());
    fail(path, fmt::format("cannot rename {}: {}", temporary, std::strerror(error)));
  }
  sync_folder(path);
}

Checkpoint load_checkpoint(std::string const& path) {
  std::error_code error;
  std::uintmax_t const size = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) {
    fail(path, fmt::format("cannot read: {}", error ? error.message() : std::strerror(errno)));
  }
  Preamble preamble;
  if (!in.read(reinterpret_cast<char*>(&preamble), sizeof preamble) || preamble.magic != kMagic) {
    fail(path, "is not a checkpoint of train_gpt");
  }
  std::uintmax_t const rest = size - sizeof preamble;
  if (preamble.header_bytes > rest || preamble.value_bytes != rest - preamble.header_bytes ||
      preamble.value_bytes % sizeof(float) != 0) {
    fail(path, fmt::format("has {} bytes and not the {} its start promises; it was cut short or damaged", size,
                           sizeof preamble + preamble.header_bytes + preamble.value_bytes));
  }
  std::string header(preamble.header_bytes, '\0');
  std::vector<float> values(preamble.value_bytes / sizeof(float));
  in.read(header.data(), static_cast<std::streamsize>(header.size()));
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(preamble.value_bytes));
  if (!in || checksum_of(header, values) != preamble.checksum) {
    fail(path, "checksum differs; the file is damaged");
  }
  Checkpoint checkpoint = read_header(path, header);
  checkpoint.values = std::move(values);
  return checkpoint;
}

Checkpoint describe_run(Options const& options, std::uint64_t text_fingerprint, int step, Strategy& strategy) {
  Checkpoint checkpoint;
  checkpoint.model = options.model;
  checkpoint.batch = options.batch;
  checkpoint.lr = options.lr;
  checkpoint.seed = options.seed;
  checkpoint.text_fingerprint = text_fingerprint;
  checkpoint.optimizer = options.optimizer;
  checkpoint.weight_decay = options.effective_weight_decay();
  checkpoint.clip = options.clip;
  checkpoint.warmup = options.warmup;
  checkpoint.decay = options.decay;
  checkpoint.step = step;
  checkpoint.applied = strategy.applied_steps();
  if (strategy.control().is_scaled()) checkpoint.scaler = strategy.control().scaler().state();
  return checkpoint;
}

Checkpoint capture(Options const& options, std::uint64_t text_fingerprint, int step, GptParameters const& parameters,
                   Strategy& strategy) {
  Checkpoint checkpoint = describe_run(options, text_fingerprint, step, strategy);
  std::size_t const states = strategy.state_count();
  checkpoint.values.reserve((1 + states) * parameters.count());
  auto const append = [&](std::vector<float> const& values) {
    checkpoint.values.insert(checkpoint.values.end(), values.begin(), values.end());
  };
  for (std::size_t i = 0; i < parameters.tensors().size(); ++i) {
    append(strategy.values(i));
    for (std::size_t which = 0; which < states; ++which) append(strategy.state(i, which));
  }
  return checkpoint;
}

void restore_scaler(Checkpoint const& checkpoint, Strategy& strategy) {
  if (strategy.control().is_scaled() && checkpoint.scaler.scale > 0) {
    strategy.control().scaler().set_state(checkpoint.scaler);
  }
}

void restore(Checkpoint const& checkpoint, GptParameters const& parameters, Strategy& strategy) {
  std::size_t const states = strategy.state_count();
  std::size_t const needed = (1 + states) * parameters.count();
  if (checkpoint.values.size() != needed) {
    throw std::runtime_error(
        fmt::format("checkpoint holds {} values, this model needs {}", checkpoint.values.size(), needed));
  }
  std::span<float const> rest(checkpoint.values);
  auto const take = [&](std::size_t count) {
    std::span<float const> const taken = rest.first(count);
    rest = rest.subspan(count);
    return taken;
  };
  for (std::size_t i = 0; i < parameters.tensors().size(); ++i) {
    std::size_t const count = parameters.tensors()[i].count;
    strategy.set_values(i, take(count));
    for (std::size_t which = 0; which < states; ++which) strategy.set_state(i, which, take(count));
  }
  strategy.set_applied_steps(checkpoint.applied);
  restore_scaler(checkpoint, strategy);
}

void adopt(Options& options, Checkpoint const& checkpoint, std::uint64_t text_fingerprint) {
  take(options, "--layers", options.model.layers, checkpoint.model.layers);
  take(options, "--width", options.model.width, checkpoint.model.width);
  take(options, "--heads", options.model.heads, checkpoint.model.heads);
  take(options, "--seq", options.model.seq, checkpoint.model.seq);
  take(options, "--batch", options.batch, checkpoint.batch);
  take(options, "--lr", options.lr, checkpoint.lr);
  take(options, "--seed", options.seed, checkpoint.seed);
  take(options, "--optimizer", options.optimizer, checkpoint.optimizer);
  double weight_decay = options.effective_weight_decay();
  take(options, "--weight-decay", weight_decay, checkpoint.weight_decay);
  options.weight_decay = weight_decay;
  take(options, "--clip", options.clip, checkpoint.clip);
  take(options, "--warmup", options.warmup, checkpoint.warmup);
  take(options, "--decay", options.decay, checkpoint.decay);
  if (text_fingerprint != checkpoint.text_fingerprint) {
    fail(options.resume, "was trained on another text; pass the same --data");
  }
  if (checkpoint.step >= options.steps) {
    fail(options.resume, fmt::format("has finished {} steps already; --steps {} leaves nothing to run", checkpoint.step,
                                     options.steps));
  }
}

}  // namespace train_gpt
