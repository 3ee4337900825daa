#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace weft {

/// A file in which programs keep what they found out for later runs: a JSON file of entries by name, {"format": …,
/// SECTION: {NAME: entry}}, read and replaced as a whole. If two programs write at once, one of them may lose what it
/// added, but the file stays whole.
///
/// A file that cannot be used is never an error: it is warned of, once in a process. A file that is not recognisably of
/// this kind is left alone. Thread-safe.
class CacheFile {
 public:
  struct Kind {
    char const* format;       ///< name and version
    char const* section;      ///< name of the object in the file that holds the entries
    char const* name;         ///< what warnings call it
    char const* consequence;  ///< how warnings go on: what follows from it, and the variable that names another file
  };

  CacheFile(std::string path, Kind const& kind) : path_(std::move(path)), kind_(kind) {}

  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  [[nodiscard]] std::optional<nlohmann::json> find(std::string const& name) const;
  void add(std::string const& name, nlohmann::json const& entry) const;
  /// Warns, once in a process, of an entry that cannot be used.
  void warn_once(std::string const& reason) const;

 private:
  [[nodiscard]] std::optional<nlohmann::json> read() const;
  void write(nlohmann::json const& content) const;

  std::string path_;
  Kind kind_;
};

}  // namespace weft
