#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/local_socket.hpp"

namespace weft {

/// Writes `text` and a newline to stderr at once, so that ranks' lines do not mix, after what stdout still holds. On a
/// terminal it takes the place of an unfinished line, such as a progress bar.
void write_failure(std::string const& text);

/// What rank `rank` says of its failure: "rank 2: out of memory". A message that names a rank in front, be it
/// another's, keeps that name.
[[nodiscard]] std::string failure_line(int rank, std::string const& message);

/// Equal for messages that differ only in the rank named in front; never 0.
[[nodiscard]] std::uint64_t failure_key(std::string const& message);

/// The right to say something for all processes that this process's parent started (mpirun's on this host), held while
/// the object lives.
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
