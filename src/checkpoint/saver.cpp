#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "checkpoint/file.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/save_folder.hpp"
#include "checkpoint/shard_file.hpp"
#include "checkpoint/together.hpp"
#include "collectives/texts.hpp"
#include "core/log.hpp"
#include "weft/checkpoint.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

// A communicator for the saving thread. It does not spin, because that thread shares cores with training.
Communicator own_communicator(Communicator& communicator) {
  CommunicatorOptions options = communicator.options();
  options.emulated_link.reset();
  options.heap.reset();
  options.progress = nullptr;
  options.config->spin = std::chrono::microseconds{0};
  options.name = "checkpoint";
  options.small_staging = true;  // it moves names and checksums only
  return communicator.duplicate(options);
}

std::string shard_name(int rank, int ranks) {
  return ranks == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", rank + 1, ranks);
}

void copy_values(CheckpointTensor const& from, std::byte* to) {
  if (from.values.data == nullptr) {
    from.fill(from.first, {to, from.values.count, from.values.dtype});
  } else {
    std::memcpy(to, from.values.data, from.values.bytes());
  }
}

// The folder's name, however it was spelled; empty where it was empty.
std::string absolute_name(std::filesystem::path const& folder) {
  if (folder.empty()) return {};
  std::error_code error;
  std::filesystem::path name = std::filesystem::weakly_canonical(std::filesystem::absolute(folder, error), error);
  if (error) name = folder.lexically_normal();
  return (name.has_filename() ? name : name.parent_path()).string();
}

std::string quoted(std::string const& folder) {
  return folder.empty() ? "a folder without a name" : folder;
}

std::string new_save_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

/// One save: everything that is to be written, in memory.
struct PendingSave {
  CheckpointIndex index;
  std::vector<FilePart> mine;  ///< what this rank writes
  Buffer values;               ///< of the parts in `mine`, one after the other
};

class CheckpointSaver::Impl {
 public:
  Impl(Communicator& communicator, std::filesystem::path folder, CheckpointSaverOptions const& options)
      : communicator_(own_communicator(communicator)),
        folder_(std::move(folder)),
        collective_{{}, options.timeout},
        stream_(Stream::cpu({.name = "weft-save", .cpu = {}})) {
    compare_folders();
    together(
        communicator_, [this] { prepare_folder(); }, collective_);
  }
  ~Impl() {
    try {
      wait();
    } catch (std::exception const& error) {
      log(LogLevel::warn, fmt::format("checkpoint {}: the last save failed; the one before is kept: {}",
                                      folder_.string(), error.what()));
    }
  }
  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  void save(std::span<CheckpointTensor const> tensors, CheckpointInfo const& info);
  void save(std::function<std::vector<CheckpointTensor>()> const& make, CheckpointInfo const& info);
  void wait() {
    running_.wait();
    if (auto const failure = std::exchange(failure_, std::nullopt)) throw Error(failure->code, failure->what);
  }
  [[nodiscard]] bool saving() const { return !running_.test(); }
  [[nodiscard]] Communicator const& communicator() const noexcept { return communicator_; }

 private:
  void compare_folders();
  void prepare_folder();
  [[nodiscard]] PendingSave take_copy(std::span<CheckpointTensor const> tensors, std::vector<IndexTensor> plan) const;
  void write(PendingSave& pending);
  void write_files(PendingSave& pending);
  void gather_checksums(PendingSave& pending, std::vector<std::uint64_t> const& mine);

  Communicator communicator_;
  std::filesystem::path folder_;
  CollectiveOptions collective_;
  std::optional<File> lock_;  ///< on rank 0: keeps other savers out of the folder
  Stream stream_;
  Work running_;
  std::optional<Failure> failure_;  ///< of the last save, once running_ is complete
};

void CheckpointSaver::Impl::prepare_folder() {
  if (folder_.empty()) throw Error(ErrorCode::invalid_argument, "CheckpointSaver: the folder has no name");
  if (communicator_.rank() != 0) return;
  std::error_code error;
  std::vector<std::filesystem::path> grown;  // folders that get a new entry; one that gets none may be another user's
  for (std::filesystem::path one = folder_; one.has_relative_path() && !std::filesystem::exists(one, error);) {
    one = one.parent_path();
    grown.push_back(one);
  }
  std::filesystem::create_directories(folder_, error);
  if (error) throw_system(folder_, "create", error.value());
  lock_ = File::open_folder(folder_);
  lock_->lock();
  refuse_foreign_index(folder_);
  for (std::filesystem::path const& folder : grown) File::open_folder(folder).sync();
}

// Makes sure that all ranks mean one folder, which from here on has one name, whatever a rank's working folder is.
void CheckpointSaver::Impl::compare_folders() {
  std::vector<std::string> const all = gather_texts(communicator_, absolute_name(folder_), collective_);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      throw Error(ErrorCode::mismatch, fmt::format("CheckpointSaver: rank 0 saves into {}, rank {} into {}; give all "
                                                   "ranks one folder that all of them see",
                                                   quoted(all[0]), rank, quoted(all[rank])));
    }
  }
  folder_ = all[0];
}

void CheckpointSaver::Impl::save(std::span<CheckpointTensor const> tensors, CheckpointInfo const& info) {
  wait();
  auto const check = [&] {
    check_tensors(tensors);
    for (OptimizerOptions const& group : info.optimizer) weft::check(group);  // JSON has only finite numbers
    (void)to_json({.save = {}, .files = {}, .tensors = {}, .info = info});    // refuses what is not UTF-8
  };
  together(communicator_, check, collective_);
  std::vector<IndexTensor> plan = plan_tensors(gather_texts(communicator_, describe(tensors), collective_));
  auto pending = std::make_shared<PendingSave>();
  together(
      communicator_, [&] { *pending = take_copy(tensors, std::move(plan)); }, collective_);
  pending->index.info = info;
  running_ = enqueue_work(stream_, [this, pending] {
    PendingSave taken = std::move(*pending);  // freed as soon as it is written
    failure_ = failure_of([&] { write(taken); });
  });
}

void CheckpointSaver::Impl::save(std::function<std::vector<CheckpointTensor>()> const& make,
                                 CheckpointInfo const& info) {
  wait();
  std::vector<CheckpointTensor> tensors;
  together(
      communicator_, [&] { tensors = make(); }, collective_);
  save(tensors, info);
}

PendingSave CheckpointSaver::Impl::take_copy(std::span<CheckpointTensor const> tensors,
                                             std::vector<IndexTensor> plan) const {
  PendingSave pending;
  pending.index.tensors = std::move(plan);
  pending.mine = parts_of(pending.index.tensors, static_cast<std::size_t>(communicator_.rank()));
  std::map<std::pair<std::string_view, std::size_t>, CheckpointTensor const*> sources;
  for (CheckpointTensor const& one : tensors) {
    if (one.values.count != 0) sources.emplace(std::pair(std::string_view(one.name), one.first), &one);
  }
  std::size_t bytes = 0;
  for (StoredTensor const& one : stored(pending.index.tensors, pending.mine)) bytes += one.bytes();
  pending.values = Buffer::host(bytes, DataType::u8);
  auto* to = static_cast<std::byte*>(pending.values.data());
  for (FilePart const& one : pending.mine) {
    IndexTensor const& tensor = pending.index.tensors[one.tensor];
    if (tensor.tensor.count == 0) continue;
    CheckpointTensor const& from = *sources.at({tensor.tensor.name, tensor.parts[one.part].first});
    copy_values(from, to);
    to += from.values.bytes();
  }
  return pending;
}

// Runs on the saving thread of every rank.
void CheckpointSaver::Impl::write(PendingSave& pending) {
  try {
    write_files(pending);
    // From here on all files of this save are on the disk, on every rank.
    together(
        communicator_,
        [&] {
          if (communicator_.rank() == 0) replace_file(folder_ / kIndexName, to_json(pending.index));
        },
        collective_);
  } catch (...) {
    if (communicator_.rank() == 0) remove_other_saves(folder_);
    throw;
  }
  if (communicator_.rank() == 0) remove_other_saves(folder_);
}

void CheckpointSaver::Impl::write_files(PendingSave& pending) {
  std::vector<std::string> names;
  for (int rank = 0; rank < communicator_.size(); ++rank) names.push_back(shard_name(rank, communicator_.size()));
  std::string header;  // the save's folder and name
  together(
      communicator_,
      [&] {
        if (communicator_.rank() != 0) return;
        remove_other_saves(folder_);
        header = next_save_name(folder_);
        make_save(folder_ / header, names);
        header += '\n' + new_save_id();
      },
      collective_);
  header = broadcast_text(communicator_, header, 0, collective_);
  std::string const save = header.substr(0, header.find('\n'));
  pending.index.save = header.substr(header.find('\n') + 1);
  for (std::string const& name : names) pending.index.files.push_back(fmt::format("{}/{}", save, name));
  std::vector<std::uint64_t> checksums;
  together(
      communicator_,
      [&] {
        auto const* const values = static_cast<std::byte const*>(pending.values.data());
        checksums = write_shard(
            folder_ / pending.index.files[static_cast<std::size_t>(communicator_.rank())],
            {stored(pending.index.tensors, pending.mine), {{"format", "pt"}, {"weft.save", pending.index.save}}},
            {values, pending.values.count()});
        File::open_folder(folder_ / save).sync();
      },
      collective_);
  gather_checksums(pending, checksums);
}

// Brings all ranks' checksums to rank 0, which writes the index.
void CheckpointSaver::Impl::gather_checksums(PendingSave& pending, std::vector<std::uint64_t> const& mine) {
  std::vector<IndexPart*> parts;  // of all ranks, in rank order
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    counts.push_back(0);
    for (FilePart const& one : parts_of(pending.index.tensors, static_cast<std::size_t>(rank))) {
      IndexTensor& tensor = pending.index.tensors[one.tensor];
      parts.push_back(&tensor.parts[one.part]);
      parts.back()->checksums.resize(block_count(parts.back()->count * size_of(tensor.tensor.dtype)));
      counts.back() += parts.back()->checksums.size();
    }
  }
  std::size_t total = 0;
  for (std::size_t const count : counts) total += count;
  std::vector<std::uint64_t> all(total);
  communicator_.all_gather(std::span<std::uint64_t const>(mine), BufferView(std::span(all)), Parts{counts}, collective_)
      .wait();
  auto from = all.begin();
  for (IndexPart* const part : parts) {
    std::copy_n(from, part->checksums.size(), part->checksums.begin());
    from += static_cast<std::ptrdiff_t>(part->checksums.size());
  }
}

CheckpointSaver::CheckpointSaver(Communicator& communicator, std::filesystem::path folder,
                                 CheckpointSaverOptions const& options)
    : impl_(std::make_unique<Impl>(communicator, std::move(folder), options)) {}
CheckpointSaver::~CheckpointSaver() = default;
CheckpointSaver::CheckpointSaver(CheckpointSaver&&) noexcept = default;
CheckpointSaver& CheckpointSaver::operator=(CheckpointSaver&&) noexcept = default;
void CheckpointSaver::save(std::span<CheckpointTensor const> tensors, CheckpointInfo const& info) {
  impl_->save(tensors, info);
}
void CheckpointSaver::save(std::function<std::vector<CheckpointTensor>()> const& make, CheckpointInfo const& info) {
  impl_->save(make, info);
}
void CheckpointSaver::wait() {
  impl_->wait();
}
Communicator const& CheckpointSaver::communicator() const noexcept {
  return impl_->communicator();
}
bool CheckpointSaver::saving() const {
  return impl_->saving();
}

}  // namespace weft
