#include "core/cache_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <system_error>

#include "core/describe_errno.hpp"
#include "core/log.hpp"

namespace weft {
namespace {

using nlohmann::json;

}  // namespace

void CacheFile::warn_once(std::string const& reason) const {
  static std::mutex mutex;
  static std::set<std::string> warned;  // paths of the files that were warned of
  std::lock_guard const lock(mutex);
  if (!warned.insert(path_).second) return;
  log(LogLevel::warn, fmt::format("{} {}: {}; {}", kind_.name, path_, reason, kind_.consequence));
}

/// The file's content; nothing when there is none. @throws std::exception when it is not a cache.
std::optional<json> CacheFile::read() const {
  if (!std::filesystem::exists(path_)) return std::nullopt;
  if (!std::filesystem::is_regular_file(path_)) throw std::runtime_error("it is no regular file");
  std::ifstream stream(path_);
  if (!stream) throw std::runtime_error(describe_errno(errno));
  auto content = json::parse(stream, nullptr, false);
  if (!content.is_object() || content.value("format", json()) != kind_.format || !content[kind_.section].is_object())
    throw std::runtime_error("it is not one of this version and stays as it is, remove it");
  return content;
}

void CacheFile::write(json const& content) const {
  std::filesystem::path const path(path_);
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  // A unique name, as other writers use the same folder: this process's other threads, and processes of other
  // containers, which may have the same process id.
  auto temporary = path_ + ".XXXXXX";
  auto const descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) throw std::runtime_error(fmt::format("cannot write {}: {}", temporary, describe_errno(errno)));
  ::fchmod(descriptor, 0644);
  ::close(descriptor);
  {
    std::ofstream stream(temporary);
    stream << content.dump(2) << '\n';
    stream.close();
    if (!stream) {
      auto const why = fmt::format("cannot write {}: {}", temporary, describe_errno(errno));
      std::filesystem::remove(temporary);
      throw std::runtime_error(why);
    }
  }
  std::error_code failed;
  std::filesystem::rename(temporary, path, failed);
  if (!failed) return;
  std::filesystem::remove(temporary, failed);
  throw std::runtime_error("cannot replace it");
}

std::optional<json> CacheFile::find(std::string const& name) const {
  try {
    auto const content = read();
    if (!content || !content->at(kind_.section).contains(name)) return std::nullopt;
    return content->at(kind_.section).at(name);
  } catch (std::exception const& error) {
    warn_once(error.what());
    return std::nullopt;
  }
}

void CacheFile::add(std::string const& name, json const& entry) const {
  try {
    auto content = read().value_or(json{{"format", kind_.format}, {kind_.section, json::object()}});
    content[kind_.section][name] = entry;
    write(content);
  } catch (std::exception const& error) {
    warn_once(error.what());
  }
}

}  // namespace weft
