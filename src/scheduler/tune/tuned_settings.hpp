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
  std::string default_name;  ///< the setting that it was compared with
  double default_seconds = 0;
  std::size_t candidates = 0;  ///< candidates that were tried
};

/// The file in which results are kept, by what was trained and where.
class TunedSettings {
 public:
  explicit TunedSettings(std::string path);

  /// The entry of this training; nothing where there is none or it cannot be used, of which a warning tells.
  [[nodiscard]] std::optional<TunedSetting> find(std::string const& training) const;
  void add(std::string const& training, TunedSetting const& found) const;

 private:
  CacheFile file_;
};

}  // namespace weft
