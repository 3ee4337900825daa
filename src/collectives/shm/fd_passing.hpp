#pragma once

#include <cstdint>
#include <functional>

namespace weft::shm {

/// Passes `fd` to `receivers` peers of the same user that know `token`, over an abstract socket named by it; calls
/// `listening` once they may connect. Returns 0 or an errno; gives up after ten seconds.
[[nodiscard]] int send_descriptor(int fd, std::uint64_t token, int receivers, std::function<void()> const& listening);

/// The other side: the received descriptor, which the caller owns, or -1 with `error_number` set.
[[nodiscard]] int receive_descriptor(std::uint64_t token, int& error_number);

}  // namespace weft::shm
