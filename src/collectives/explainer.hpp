#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "collectives/call.hpp"

namespace weft {

class MergedCall;

/// Logs how a communicator runs its collectives, where WEFT_EXPLAIN asks for it: each decision once, one line per
/// operation, kind of memory and algorithm. One thread at a time.
class Explainer {
 public:
  /// Only rank 0 of the `ranks` has one.
  Explainer(std::string backend, int ranks);

  /// Logs a decision if it is new. `details` is called only then: which sizes it holds for, chunks, reasons.
  void note(Operation operation, std::string_view memory, std::string_view algorithm,
            std::function<std::string()> const& details);
  /// The same for calls that run as one; `where`: what happens to their buffers.
  void note(MergedCall const& merged, std::string_view memory, std::string_view algorithm, std::string_view where);

  /// While a Silence lives, explainers log nothing on its thread: the calls are measurements, not the user's.
  class Silence {
   public:
    Silence() noexcept { ++silences; }
    ~Silence() { --silences; }
    Silence(Silence const&) = delete;
    Silence& operator=(Silence const&) = delete;
  };

 private:
  inline static thread_local constinit int silences = 0;

  std::string backend_;
  int ranks_;
  std::set<std::string> told_;
};

/// "57 B to 128 KiB", "over 128 KiB", "up to 56 B"
[[nodiscard]] std::string describe_bytes(std::size_t least, std::optional<std::size_t> most);
/// "56 B", "128 KiB", "1.5 MiB"
[[nodiscard]] std::string describe_bytes(std::size_t bytes);

}  // namespace weft
