#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace weft {

/// What programs of earlier days found out: a JSON file of entries by name, {"format": …, SECTION: {NAME: entry}}, read
/// and replaced as a whole. Two programs that write at once lose one another's additions, never the file.
///
/// A file that cannot be used is warned of, once in a process, and never an error; one that is not recognisably of this
/// kind is left alone. Thread-safe.
class CacheFile {
 public:
  struct Kind {
    char const* format;       ///< name and version
    char const* section;      ///< what entries are of, in the file
    char const* name;         ///< what warnings call it
    char const* consequence;  ///< and what follows, with the variable that names another file
  };

  CacheFile(std::string path, Kind const& kind) : path_(std::move(path)), kind_(kind) {}

  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  [[nodiscard]] std::optional<nlohmann::json> find(std::string const& name) const;
  void add(std::string const& name, nlohmann::json const& entry) const;
  /// Of an entry that says nothing.
  void warn_once(std::string const& reason) const;

 private:
  [[nodiscard]] std::optional<nlohmann::json> read() const;
  void write(nlohmann::json const& content) const;

  std::string path_;
  Kind kind_;
};

}  // namespace weft
