#include "checkpoint/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // of one read or write; Linux stops at 2 GiB

// What to do about the error; empty where only the cause can say.
std::string_view next_step(int error) {
  switch (error) {
    case ENOENT: return "; check that the path is right and that every rank sees it";
    case ENOTDIR: return "; a part of the path is a file: name another folder";
    case EACCES:
    case EPERM: return "; give this user the right to, or name another folder";
    case EROFS: return "; name a folder that can be written";
    case ENOSPC:
    case EDQUOT: return "; make room there, or name another folder";
    case EFBIG: return "; raise the limit (ulimit -f), or save with more ranks";
    case EMFILE: return "; raise the limit (ulimit -n)";
    case EEXIST: return "; move what is there away, or name another folder";
    case EIO: return "; the disk may be failing: take a copy from another";
    default: return "";
  }
}

}  // namespace

void throw_system(std::filesystem::path const& path, char const* action, int error) {
  throw Error(ErrorCode::system, fmt::format("checkpoint {}: cannot {}: {}{}", path.string(), action,
                                             std::generic_category().message(error), next_step(error)));
}

File::File(std::filesystem::path path, int flags) : path_(std::move(path)) {
  do {
    descriptor_ = ::open(path_.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) fail((flags & O_CREAT) != 0 ? "create" : "open", errno);
}

File File::create(std::filesystem::path path) {
  return {std::move(path), O_WRONLY | O_CREAT | O_EXCL};
}
File File::open(std::filesystem::path path) {
  File file(std::move(path), O_RDONLY | O_NONBLOCK);  // a pipe in its place must not block
  struct stat status {};
  if (fstat(file.descriptor_, &status) != 0) file.fail("open", errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("checkpoint {}: is no regular file", file.path_.string()));
  }
  return file;
}
File File::open_folder(std::filesystem::path path) {
  return {std::move(path), O_RDONLY | O_DIRECTORY};
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      locked_(std::exchange(other.locked_, false)) {}
File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(locked_, other.locked_);
  return *this;
}
File::~File() {
  if (locked_) (void)flock(descriptor_, LOCK_UN);  // closing it does not unlock while a forked process has it open
  if (descriptor_ >= 0) close(descriptor_);        // whatever must last was synced, and that is where errors show
}

void File::fail(char const* action, int error) const {
  throw_system(path_, action, error);
}

std::uint64_t File::size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail("look at", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::write(std::span<std::byte const> bytes) {
  while (!bytes.empty()) {
    ssize_t const written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write", written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void File::start_writing(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  (void)sync_file_range(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void File::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    ssize_t const got =
        pread(descriptor_, bytes.data(), std::min(bytes.size(), kMostAtOnce), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", errno);
    if (got == 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("checkpoint {}: ends at byte {}; it was cut short", path_.string(), offset));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void File::sync() {
  while (fsync(descriptor_) != 0) {
    if (errno == EINTR) continue;
    if (errno == EINVAL || errno == ENOTSUP) return;
    fail("sync", errno);
  }
}

void File::lock() {
  while (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      throw Error(ErrorCode::system, fmt::format("checkpoint {}: another program, or another saver of this one, saves "
                                                 "into this folder; give each its own",
                                                 path_.string()));
    }
    return;
  }
  locked_ = true;
}

std::string read_whole(std::filesystem::path const& path, std::uint64_t limit) {
  File const file = File::open(path);
  std::uint64_t const size = file.size();
  if (size > limit) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("checkpoint {}: has {} bytes; no index is as large", path.string(), size));
  }
  std::string text(size, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void replace_file(std::filesystem::path const& path, std::string const& text) {
  std::filesystem::path temporary = path;
  temporary += ".new";
  ::unlink(temporary.c_str());  // left behind by a save that was ended
  try {
    File file = File::create(temporary);
    file.write(std::as_bytes(std::span(text)));
    file.sync();
  } catch (Error const&) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    int const error = errno;
    ::unlink(temporary.c_str());
    throw_system(path, "replace", error);
  }
  File::open_folder(path.parent_path()).sync();
}

}  // namespace weft
