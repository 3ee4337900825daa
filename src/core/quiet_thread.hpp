#pragma once

#include <functional>
#include <thread>

namespace weft {

/// A thread that leaves signals to the application's.
[[nodiscard]] std::thread start_quietly(std::function<void()> body);

}  // namespace weft
