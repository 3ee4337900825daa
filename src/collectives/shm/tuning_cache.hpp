#pragma once

#include <optional>
#include <string>

#include "collectives/shm/cost_model.hpp"

namespace weft::shm {

/// Costs measured by earlier communicators, of this process or of others: a CacheFile of machines. Costs are also
/// remembered by the process, so that communicators after the first neither read nor measure, whatever becomes of the
/// file. Thread-safe.
class TuningCache {
 public:
  explicit TuningCache(std::string file) : file_(std::move(file)) {}

  /// What is known of `machine`.
  [[nodiscard]] std::optional<CostModel> find(std::string const& machine) const;
  void add(std::string const& machine, CostModel const& model) const;

 private:
  std::string file_;
};

}  // namespace weft::shm
