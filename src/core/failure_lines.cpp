#include "core/failure_lines.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "weft/error.hpp"

namespace weft {
namespace {

/// The length of a leading "rank 17: ", or of the "rank 17" in "rank 17 of replicas: "; 0 without one.
std::size_t rank_prefix(std::string const& message) {
  constexpr std::string_view kWord = "rank ";
  if (message.compare(0, kWord.size(), kWord) != 0) return 0;
  auto const digits = message.find_first_not_of("0123456789", kWord.size());
  if (digits == kWord.size() || digits == std::string::npos) return 0;
  if (message.compare(digits, 2, ": ") == 0) return digits + 2;
  return message.compare(digits, 4, " of ") == 0 ? digits : 0;
}

}  // namespace

void write_failure(std::string const& text) {
  std::cout.flush();
  std::fflush(stdout);
  std::string const line = (isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "") + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string failure_line(int rank, std::string const& message) {
  if (rank_prefix(message) > 0) return message;
  return fmt::format("rank {}: {}", rank, message);
}

std::uint64_t failure_key(std::string const& message) {
  std::uint64_t key = 0xcbf2'9ce4'8422'2325U;  // FNV-1a
  for (char const letter : message.substr(rank_prefix(message))) {
    key = (key ^ static_cast<unsigned char>(letter)) * 0x0000'0100'0000'01b3U;
  }
  return key == 0 ? 1 : key;
}

FailureClaim::FailureClaim(std::string const& message) {
  try {
    socket_ = local_socket::claim(fmt::format("weft-says-{}-{}-{:016x}", getuid(), getppid(), failure_key(message)));
    granted_ = socket_.has_value();
  } catch (Error const&) {  // without sockets every process reports
  }
}

}  // namespace weft
