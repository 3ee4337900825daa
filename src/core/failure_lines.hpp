#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/local_socket.hpp"

namespace weft {

/// Writes `text` and a newline to stderr in one piece, so that ranks' lines do not mix; first it writes out what stdout
/// still holds. On a terminal the line takes the place of an unfinished one, such as a progress bar.
void write_failure(std::string const& text);

/// The line in which rank `rank` reports its failure: "rank 2: out of memory". If the message begins with a rank, be it
/// another one, that stays.
[[nodiscard]] std::string failure_line(int rank, std::string const& message);

/// Equal for messages that differ only in the rank named in front; never 0.
[[nodiscard]] std::uint64_t failure_key(std::string const& message);

/// The right to report something on behalf of all processes that this process's parent started (mpirun's on this host).
/// It is held while the object lives.
class FailureClaim {
 public:
  explicit FailureClaim(std::string const& message);
  /// False while another process holds it.
  [[nodiscard]] bool granted() const noexcept { return granted_; }

 private:
  bool granted_ = true;
  std::optional<StreamSocket> socket_;
};

}  // namespace weft
