#pragma once

#include <functional>
#include <optional>
#include <string>

#include "weft/communicator.hpp"
#include "weft/error.hpp"

namespace weft {

/// An exception's code and text, to be passed to other ranks or threads.
struct Failure {
  ErrorCode code = ErrorCode::system;
  std::string what;
};

/// Runs `local` and returns how it failed, if it did.
[[nodiscard]] std::optional<Failure> failure_of(std::function<void()> const& local);

/// Collective: runs `local` on every rank. If it throws on some, every rank throws what the lowest of them did.
void together(Communicator& communicator, std::function<void()> const& local, CollectiveOptions const& options = {});

}  // namespace weft
