#pragma once

#include <functional>
#include <thread>

namespace weft {

/// Starts a thread that blocks signals, so that the application's threads get them.
[[nodiscard]] std::thread start_quietly(std::function<void()> body);

}  // namespace weft
