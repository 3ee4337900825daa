#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace weft {

/// An open file or folder of a checkpoint. Move-only. Every failure is Error{system} that names the path and the cause.
class File {
 public:
  /// A new file to write; fails where there is one.
  [[nodiscard]] static File create(std::filesystem::path path);
  [[nodiscard]] static File open(std::filesystem::path path);
  [[nodiscard]] static File open_folder(std::filesystem::path path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  [[nodiscard]] std::filesystem::path const& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const;
  void write(std::span<std::byte const> bytes);
  /// Has the system write [offset, offset + bytes) to the disk from now on, while the program goes on; a hint, of which
  /// sync() tells the outcome.
  void start_writing(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// Fills `bytes`, which lie within the file, from `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// Returns once everything written is on the disk (of a folder: its entries). A file system that cannot sync folders
  /// is taken to need no sync.
  void sync();
  /// Keeps others that lock it out while this lives; fails where one has. Where there are no locks, nothing.
  void lock();

 private:
  File(std::filesystem::path path, int flags);
  [[noreturn]] void fail(char const* action, int error) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Error{system} "checkpoint PATH: cannot ACTION: CAUSE; WHAT TO DO".
[[noreturn]] void throw_system(std::filesystem::path const& path, char const* action, int error);

[[nodiscard]] std::string read_whole(std::filesystem::path const& path, std::uint64_t limit);
/// The file has `text` or what it had before, at any moment and after any crash.
void replace_file(std::filesystem::path const& path, std::string const& text);

}  // namespace weft
