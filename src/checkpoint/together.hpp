#pragma once

#include <functional>
#include <optional>
#include <string>

#include "weft/communicator.hpp"
#include "weft/error.hpp"

namespace weft {

/// What an exception says.
struct Failure {
  ErrorCode code = ErrorCode::system;
  std::string what;
};

/// Runs `local`; how it failed, if it did.
[[nodiscard]] std::optional<Failure> failure_of(std::function<void()> const& local);

/// Collective: runs `local` on every rank. Where it throws on some, every rank throws what the first of them did.
void together(Communicator& communicator, std::function<void()> const& local, CollectiveOptions const& options = {});

}  // namespace weft
