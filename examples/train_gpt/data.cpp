#include "data.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>

#include <fmt/format.h>

#include "checksum.hpp"
#include "random.hpp"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

constexpr char const* kDefaultFolder = "/usr/share/common-licenses";

void append_file(std::vector<std::uint8_t>& bytes, fs::path const& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw std::runtime_error(fmt::format("cannot read {}: no such file; pass a text with --data FILE", path.string()));
  }
  if (!fs::is_regular_file(path, error)) {
    throw std::runtime_error(
        fmt::format("cannot read {}: not a regular file; pass a text with --data FILE", path.string()));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  }
  bytes.insert(bytes.end(), std::istreambuf_iterator<char>(in), {});
  if (in.bad()) {
    throw std::runtime_error(fmt::format("cannot read {}: reading stopped at byte {}", path.string(), bytes.size()));
  }
}

/// Regular files by name; of several names for one file the first counts.
std::vector<fs::path> files_of(fs::path const& folder) {
  std::error_code error;
  std::map<std::string, fs::path> by_name;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_regular_file(error)) {
      by_name.emplace(entry->path().filename().string(), fs::canonical(entry->path()));
    }
  }
  std::set<fs::path> seen;
  std::vector<fs::path> files;
  for (auto const& [name, path] : by_name) {
    if (seen.insert(path).second) {
      files.push_back(path);
    }
  }
  return files;
}

}  // namespace

std::uint64_t Text::fingerprint() const noexcept {
  return checksum(kChecksumStart, bytes.data(), bytes.size());
}

void check_length(Text const& text, int seq) {
  if (text.bytes.empty()) {
    throw std::runtime_error(fmt::format("{} is empty; pass a text of at least {} bytes", text.source, seq + 1));
  }
  if (text.bytes.size() <= static_cast<std::size_t>(seq)) {
    throw std::runtime_error(fmt::format("{} is too short: {} bytes, a sequence of --seq {} needs at least {}",
                                         text.source, text.bytes.size(), seq, seq + 1));
  }
}

Text load_text(std::optional<fs::path> const& file, int seq) {
  Text text{file ? file->string() : kDefaultFolder, {}};
  std::vector<fs::path> const files = file ? std::vector{*file} : files_of(kDefaultFolder);
  if (files.empty()) {
    throw std::runtime_error(fmt::format("no text files in {}; pass a text with --data FILE", kDefaultFolder));
  }
  for (fs::path const& path : files) {
    append_file(text.bytes, path);
  }
  check_length(text, seq);
  return text;
}

Batch BatchSampler::sample(int step) const {
  Batch batch;
  auto const seq = static_cast<std::size_t>(seq_);
  for (int i = first_; i < first_ + count_; ++i) {
    std::uint64_t const index =
        static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(batch_) + static_cast<std::uint64_t>(i);
    std::size_t const start = mix(mix(seed_ ^ 0x64617461U) + index) % (text_.bytes.size() - seq);
    auto const from = text_.bytes.begin() + static_cast<std::ptrdiff_t>(start);
    batch.inputs.insert(batch.inputs.end(), from, from + seq_);
    batch.targets.insert(batch.targets.end(), from + 1, from + 1 + seq_);
  }
  return batch;
}

std::vector<Batch> BatchSampler::sample(int step, int passes) const {
  Batch const whole = sample(step);
  std::vector<Batch> parts(static_cast<std::size_t>(passes));
  auto const size = static_cast<std::ptrdiff_t>(whole.inputs.size() / parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto const first = static_cast<std::ptrdiff_t>(i) * size;
    parts[i].inputs.assign(whole.inputs.begin() + first, whole.inputs.begin() + first + size);
    parts[i].targets.assign(whole.targets.begin() + first, whole.targets.begin() + first + size);
  }
  return parts;
}

}  // namespace train_gpt
