#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace weft {

/// An open file or folder of a checkpoint. Move-only. Failures are Error{system} that names the path and the cause;
/// open() throws Error{invalid_argument} for what is not a regular file.
class File {
 public:
  /// Creates a new file to write; fails where there is one already.
  [[nodiscard]] static File create(std::filesystem::path path);
  [[nodiscard]] static File open(std::filesystem::path path);
  [[nodiscard]] static File open_folder(std::filesystem::path path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  [[nodiscard]] std::filesystem::path const& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const;
  void write(std::span<std::byte const> bytes);
  /// Has the system start writing [offset, offset + bytes) to the disk while the program goes on. Only a hint: sync()
  /// reports the outcome.
  void start_writing(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// Fills `bytes` from `offset` on; the whole range must lie within the file.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// Returns once everything written is on the disk (for a folder: its entries). A file system that cannot sync folders
  /// is assumed to need no sync.
  void sync();
  /// Locks out others that lock it too, while this lives; fails where another has the lock. Does nothing on a file
  /// system without locks.
  void lock();

 private:
  File(std::filesystem::path path, int flags);
  [[noreturn]] void fail(char const* action, int error) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  bool locked_ = false;
};

/// Throws Error{system} "checkpoint PATH: cannot ACTION: CAUSE; WHAT TO DO".
[[noreturn]] void throw_system(std::filesystem::path const& path, char const* action, int error);

[[nodiscard]] std::string read_whole(std::filesystem::path const& path, std::uint64_t limit);
/// Replaces a file's contents by `text`: at any moment, and after any crash, it has either these or the old ones.
void replace_file(std::filesystem::path const& path, std::string const& text);

}  // namespace weft
