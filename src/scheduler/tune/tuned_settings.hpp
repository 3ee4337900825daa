#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/cache_file.hpp"

namespace weft {

/// What an Autotuner of an earlier run settled on.
struct TunedSetting {
  std::string name;
  double seconds = 0;        ///< of a step
  std::string default_name;  ///< what it was compared with
  double default_seconds = 0;
  std::size_t candidates = 0;  ///< that were tried
};

/// The file that they are kept in, by what was trained on what.
class TunedSettings {
 public:
  explicit TunedSettings(std::string path);

  /// Nothing where there is none, or none that can be: of that the file warns.
  [[nodiscard]] std::optional<TunedSetting> find(std::string const& training) const;
  void add(std::string const& training, TunedSetting const& found) const;

 private:
  CacheFile file_;
};

}  // namespace weft
