#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

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

/// Collective: every rank's text, in rank order.
[[nodiscard]] std::vector<std::string> gather_texts(Communicator& communicator, std::string const& mine,
                                                    CollectiveOptions const& options = {});

/// Collective: rank 0's text on every rank.
[[nodiscard]] std::string broadcast_text(Communicator& communicator, std::string text,
                                         CollectiveOptions const& options = {});

}  // namespace weft
