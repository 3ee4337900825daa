#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "weft/bootstrap.hpp"

namespace weft {

/// Figures that ranks have measured together. The process remembers them by name for its later communicators. T is
/// trivially copyable, since ranks exchange it.
template <typename T>
class KnownFigures {
 public:
  /// The figures under `name`. Where rank 0's `measures` is false: `assumed`. Where some rank does not know them, all
  /// ranks call `measure`, which returns the same on all. Where all know them they may differ, since ranks may have
  /// learned them in different communicators: `merge` makes one of two, in the order of ranks. Collective, and equal on
  /// all ranks. Thread-safe.
  [[nodiscard]] T find(Bootstrap& bootstrap, std::string const& name, bool measures, T const& assumed,
                       std::function<T()> const& measure, std::function<T(T const&, T const&)> const& merge) {
    auto const all = tell_all(bootstrap, {measures, known(name)});
    if (!all.front().measures) return assumed;
    if (std::all_of(all.begin(), all.end(), [](Knowledge const& each) { return each.figures.has_value(); })) {
      auto merged = *all.front().figures;
      for (auto const& each : all) merged = merge(merged, *each.figures);
      return merged;
    }
    auto const figures = measure();
    std::lock_guard const lock(mutex_);
    known_.insert_or_assign(name, figures);
    return figures;
  }

 private:
  static_assert(std::is_trivially_copyable_v<T>);

  struct Knowledge {
    bool measures = false;
    std::optional<T> figures;
  };

  [[nodiscard]] std::optional<T> known(std::string const& name) {
    std::lock_guard const lock(mutex_);
    auto const found = known_.find(name);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  }

  static std::vector<Knowledge> tell_all(Bootstrap& bootstrap, Knowledge const& mine) {
    auto const raw = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
    std::vector<Knowledge> all(static_cast<std::size_t>(bootstrap.size()));
    std::memcpy(static_cast<void*>(all.data()), raw.data(), raw.size());
    return all;
  }

  std::mutex mutex_;
  std::map<std::string, T> known_;
};

}  // namespace weft
