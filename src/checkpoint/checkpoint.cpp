#include "weft/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "checkpoint/file.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/json_text.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/together.hpp"
#include "checkpoint/xxh64.hpp"
#include "collectives/texts.hpp"
#include "weft/convert.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

CheckpointIndex read_index(std::filesystem::path const& folder) {
  std::filesystem::path const path = folder / kIndexName;
  return parse_index(path, read_whole(path, kLongestIndex));
}

bool is_convertible(DataType from, DataType to) noexcept {
  return from == to || (is_floating_point(from) && is_floating_point(to));
}

}  // namespace

class Checkpoint::Impl {
 public:
  [[nodiscard]] static std::unique_ptr<Impl> open(std::filesystem::path const& folder);
  Impl(std::filesystem::path const& folder, CheckpointIndex index) : folder_(folder), index_(std::move(index)) {
    for (IndexTensor const& one : index_.tensors) tensors_.push_back(one.tensor);
    for (std::string const& file : index_.files) files_.push_back(File::open(folder / file));
    offsets_.resize(index_.tensors.size());
    for (std::size_t t = 0; t < index_.tensors.size(); ++t) offsets_[t].resize(index_.tensors[t].parts.size());
    for (std::size_t f = 0; f < files_.size(); ++f) check_file(f);
  }

  [[nodiscard]] std::filesystem::path const& folder() const noexcept { return folder_; }
  [[nodiscard]] CheckpointInfo const& info() const noexcept { return index_.info; }
  [[nodiscard]] std::string const& save() const noexcept { return index_.save; }
  [[nodiscard]] std::span<Tensor const> tensors() const noexcept { return tensors_; }
  [[nodiscard]] Tensor const* find(std::string_view name) const noexcept {
    auto const found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                        [](Tensor const& one, std::string_view wanted) { return one.name < wanted; });
    return found == tensors_.end() || found->name != name ? nullptr : &*found;
  }
  void read(CheckpointRange const& range) const;

 private:
  void check_file(std::size_t file);
  void read_part(std::size_t tensor, std::size_t part, CheckpointRange const& range) const;

  std::filesystem::path folder_;
  CheckpointIndex index_;
  std::vector<Tensor> tensors_;
  std::vector<File> files_;
  std::vector<std::vector<std::uint64_t>> offsets_;  ///< by tensor, then by part: where its values begin in their file
};

// A save that ends meanwhile removes the files that the index named, after it has put another index in place. So a
// failure is final only if the index still names the same save.
std::unique_ptr<Checkpoint::Impl> Checkpoint::Impl::open(std::filesystem::path const& folder) {
  for (CheckpointIndex index = read_index(folder);;) {
    std::string const save = index.save;
    try {
      return std::make_unique<Impl>(folder, std::move(index));
    } catch (Error const&) {
      index = read_index(folder);
      if (index.save == save) throw;
    }
  }
}

// Checks that the file belongs to the index's save, and has the tensors that the index says.
void Checkpoint::Impl::check_file(std::size_t file) {
  std::filesystem::path const& path = files_[file].path();
  SafetensorsHeader const header = read_safetensors(files_[file]);
  auto const save = header.metadata.find("weft.save");
  if (save == header.metadata.end() || save->second != index_.save) {
    refuse(path, fmt::format("is of another save than {}", kIndexName));
  }
  std::map<std::string_view, StoredTensor const*> by_name;
  for (StoredTensor const& one : header.tensors) by_name.emplace(one.name, &one);
  std::vector<FilePart> const parts = parts_of(index_.tensors, file);
  std::vector<StoredTensor> const expected = stored(index_.tensors, parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto const found = by_name.find(expected[i].name);
    if (found == by_name.end()) refuse(path, fmt::format("tensor {}: is missing", expected[i].name));
    if (found->second->dtype != expected[i].dtype || found->second->shape != expected[i].shape) {
      refuse(path, fmt::format("tensor {}: has another shape or type than in {}", expected[i].name, kIndexName));
    }
    offsets_[parts[i].tensor][parts[i].part] = found->second->offset;
  }
}

void Checkpoint::Impl::read(CheckpointRange const& range) const {
  Tensor const* const tensor = find(range.name);
  auto const bad = [&](std::string const& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("Checkpoint::read: tensor {}: {}", range.name, what));
  };
  if (tensor == nullptr) bad("is not in the checkpoint");
  if (range.first > tensor->count || range.into.count > tensor->count - range.first) {
    bad(fmt::format("elements [{}, {}) are not within its {}", range.first, range.first + range.into.count,
                    tensor->count));
  }
  if (!is_valid(range.into.dtype) || !is_convertible(tensor->dtype, range.into.dtype)) {
    bad(fmt::format("cannot be read as {}, it is {}",
                    is_valid(range.into.dtype) ? to_string(range.into.dtype) : "a type of this number",
                    to_string(tensor->dtype)));
  }
  if (range.into.device.type != DeviceType::cpu) bad("can be read into memory of the CPU only");
  if (range.into.count == 0) return;
  if (range.into.data == nullptr) bad("there is no memory to read it into");
  auto const t = static_cast<std::size_t>(tensor - tensors_.data());
  std::vector<IndexPart> const& parts = index_.tensors[t].parts;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].first + parts[p].count > range.first && parts[p].first < range.first + range.into.count) {
      read_part(t, p, range);
    }
  }
}

// Reads the part's blocks that the range touches, one after the other.
void Checkpoint::Impl::read_part(std::size_t tensor, std::size_t part, CheckpointRange const& range) const {
  DataType const dtype = tensors_[tensor].dtype;
  IndexPart const& from = index_.tensors[tensor].parts[part];
  File const& file = files_[from.file];
  std::size_t const per_block = kBlockBytes / size_of(dtype);
  // Elements counted from the part's start.
  std::size_t const first = std::max(range.first, from.first) - from.first;
  std::size_t const last = std::min(range.first + range.into.count, from.first + from.count) - from.first;
  std::vector<std::byte> scratch(std::min(per_block, from.count) * size_of(dtype));
  for (std::size_t block = first / per_block; block * per_block < last; ++block) {
    std::size_t const begin = block * per_block;
    std::size_t const end = std::min(begin + per_block, from.count);
    std::span<std::byte> const bytes(scratch.data(), (end - begin) * size_of(dtype));
    file.read(offsets_[tensor][part] + begin * size_of(dtype), bytes);
    if (xxh64(bytes) != from.checksums[block]) {
      refuse(file.path(), fmt::format("tensor {}: checksum of its elements [{}, {}) differs; the file is damaged",
                                      tensors_[tensor].name, from.first + begin, from.first + end));
    }
    std::size_t const wanted = std::max(first, begin);
    std::size_t const count = std::min(last, end) - wanted;
    BufferView const to = range.into.slice(from.first + wanted - range.first, count);
    ConstBufferView const found(bytes.data() + (wanted - begin) * size_of(dtype), count, dtype);
    if (dtype == to.dtype) {  // possible for every type
      std::memcpy(to.data, found.data, to.bytes());
    } else {
      convert(found, to);
    }
  }
}

Checkpoint Checkpoint::open(std::filesystem::path const& folder) {
  return Checkpoint(Impl::open(folder));
}

Checkpoint Checkpoint::open(Communicator& communicator, std::filesystem::path const& folder) {
  std::unique_ptr<Impl> impl;
  together(communicator, [&] { impl = Impl::open(folder); });
  std::string const save = broadcast_text(communicator, impl->save());
  together(communicator, [&] {
    if (impl->save() != save) refuse(folder / kIndexName, "was replaced while the ranks opened it; open it again");
  });
  return Checkpoint(std::move(impl));
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

std::filesystem::path const& Checkpoint::folder() const noexcept {
  return impl_->folder();
}
CheckpointInfo const& Checkpoint::info() const noexcept {
  return impl_->info();
}
std::span<Checkpoint::Tensor const> Checkpoint::tensors() const noexcept {
  return impl_->tensors();
}
Checkpoint::Tensor const* Checkpoint::find(std::string_view name) const noexcept {
  return impl_->find(name);
}
void Checkpoint::read(CheckpointRange const& range) const {
  impl_->read(range);
}
void Checkpoint::read(Communicator& communicator, std::span<CheckpointRange const> ranges) const {
  together(communicator, [&] {
    for (CheckpointRange const& range : ranges) impl_->read(range);
  });
}

}  // namespace weft
