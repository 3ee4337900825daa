#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/communicator.hpp"
#include "weft/optimizer_options.hpp"

namespace weft {

// A checkpoint is a folder of safetensors files, one a rank, and an index beside them:
//
//   FOLDER/model.safetensors.index.json                    which ranges of which tensor lie where, and all else
//   FOLDER/save-000012/model-00001-of-00004.safetensors    rank 0's part of save 12
//
// The index is what makes a save the one that counts: it is replaced by one rename, after every file that it names has
// reached the disk. A save that fails before that, at any moment, leaves the previous save as it was. The next save
// removes the files that the failed one wrote (those on a list in its folder, made before them) and nothing else. All
// ranks must see the folder. docs/sharding.md describes the index.

/// Elements [first, first + values.count), row by row, of a tensor of `shape`, for a save.
struct CheckpointTensor {
  std::string name;
  std::vector<std::size_t> shape;  ///< of the whole tensor; none is one element
  std::size_t first = 0;
  ConstBufferView values;  ///< on the CPU, of a type that safetensors has: any but c128
  /// Where values.data is null: writes elements [first, first + to.count) of the tensor. Local; save() calls it.
  std::function<void(std::size_t first, BufferView const& to)> fill{};
};

/// Of tensors that every rank has whole, the part that `rank` of `ranks` writes: shares of equal bytes, of which none
/// cuts a tensor below 1 MiB. Pure.
[[nodiscard]] std::vector<CheckpointTensor> share_of(std::span<CheckpointTensor const> whole, int rank, int ranks);

/// Bytes that a save keeps of `tensors` until it is done: their values, once. File headers come on top: about 100 bytes
/// a tensor. Less where other ranks have the same ranges.
[[nodiscard]] std::size_t checkpoint_copy_bytes(std::span<CheckpointTensor const> tensors);

/// What a checkpoint says besides tensors.
struct CheckpointInfo {
  std::int64_t step = 0;                          ///< steps that were applied
  std::vector<OptimizerOptions> optimizer{};      ///< by group
  std::map<std::string, std::string> metadata{};  ///< UTF-8, the caller's own
};

struct CheckpointSaverOptions {
  /// How long ranks wait for the slowest one's files; absent: the communicator's.
  std::optional<std::chrono::milliseconds> timeout{};
};

/// Saves while training goes on. Has a communicator of its own, so that its saves take no turns with other calls.
///
///   weft::CheckpointSaver saver(world, "run/checkpoint");
///   saver.save(tensors, {.step = step});   // every so often
///   saver.wait();                          // at the end
///
/// Every member is collective. Not thread-safe.
class CheckpointSaver {
 public:
  /// Makes the folder if it is not there, and keeps other savers out of it while this one lives (where the file system
  /// has locks).
  /// @throws, on every rank: Error{mismatch} naming the folders where two ranks' differ; Error{system} naming the
  /// folder: cannot be made or written, or another saver has it; Error{invalid_argument} naming an index there that is
  /// damaged or no save of Weft's, as saving would replace it.
  CheckpointSaver(Communicator& communicator, std::filesystem::path folder, CheckpointSaverOptions const& options = {});
  /// Waits for the save under way; a failure that nobody asked for is logged.
  ~CheckpointSaver();
  CheckpointSaver(CheckpointSaver&&) noexcept;
  CheckpointSaver& operator=(CheckpointSaver&&) noexcept;

  /// Copies `tensors` (checkpoint_copy_bytes() of them) and returns; a thread writes them. The ranks' ranges together
  /// cover every tensor, each element once; only equal ranges of equal values may be given by several ranks, of which
  /// one writes them. Rank 0's `info` counts. First waits for the save under way; if that one failed, throws its
  /// failure instead of saving.
  /// @throws Error{invalid_argument|unsupported|mismatch} on every rank naming the tensor, before anything is written;
  /// Error{out_of_memory}
  void save(std::span<CheckpointTensor const> tensors, CheckpointInfo const& info);
  /// The same with the tensors that `make` returns. Calls it once on each rank; what it throws on one all throw.
  void save(std::function<std::vector<CheckpointTensor>()> const& make, CheckpointInfo const& info);

  /// Returns once the last save has replaced the one before.
  /// @throws Error{system} on every rank, naming the first file that could not be written and why: the checkpoint is
  /// the one before, and another save may follow.
  void wait();
  /// Its own, for its rank and size. Local.
  [[nodiscard]] Communicator const& communicator() const noexcept;
  /// Whether wait() would have to wait. Local.
  [[nodiscard]] bool saving() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Elements [first, first + into.count) of a checkpoint's tensor, and where they go.
struct CheckpointRange {
  std::string name;
  std::size_t first = 0;
  BufferView into;
};

/// A checkpoint to load from: any ranges of its tensors, whichever ranks wrote them. Has its files open, so that a
/// later save does not disturb it. Thread-safe.
class Checkpoint {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::size_t count = 0;
    DataType dtype = DataType::f32;
  };

  /// Reads the index and all files' headers; where a save ends meanwhile and removes them, that one's.
  /// @throws Error{invalid_argument} naming file, tensor and reason for what is damaged or no checkpoint;
  /// Error{system} for what cannot be read.
  [[nodiscard]] static Checkpoint open(std::filesystem::path const& folder);
  /// Collective: what one rank refuses all refuse, with its words.
  [[nodiscard]] static Checkpoint open(Communicator& communicator, std::filesystem::path const& folder);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  [[nodiscard]] std::filesystem::path const& folder() const noexcept;  ///< as given to open()
  [[nodiscard]] CheckpointInfo const& info() const noexcept;
  [[nodiscard]] std::span<Tensor const> tensors() const noexcept;  ///< by name
  [[nodiscard]] Tensor const* find(std::string_view name) const noexcept;

  /// Reads what the range needs and no more, but for what completes the checksummed blocks of 1 MiB at its ends. Where
  /// `into` is of another type, real floating-point values are converted, through f32, rounding to nearest even.
  /// @throws Error{invalid_argument} for a tensor that is not there, a range outside of it, or a type that its values
  /// cannot be converted to; naming file and tensor when their checksum differs; Error{system}
  void read(CheckpointRange const& range) const;
  /// Collective: each rank's own ranges; what fails on one rank fails on all.
  void read(Communicator& communicator, std::span<CheckpointRange const> ranges) const;

 private:
  class Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
