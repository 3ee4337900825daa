#pragma once

#include <exception>
#include <type_traits>

#include "preload/library.hpp"

namespace weft::preload {

/// MPI_COMM_NULL, or what MPI_Comm_f2c() makes of a number that is no handle.
[[nodiscard]] inline bool is_none(MPI_Comm communicator) noexcept {
  if constexpr (std::is_pointer_v<MPI_Comm>)
    if (communicator == nullptr) return true;
  return communicator == MPI_COMM_NULL;
}

/// Serves one call of `function` on `communicator`, or passes it on to MPI. Every intercepted function is written with
/// this.
///
/// `check(library)` looks at the arguments alone. `serve(library, communicator)` moves the data, or finds wrong
/// arguments that only the communicator's size shows. Each returns Outcome::served, or the reason why `pass()` is
/// called instead. Whether a valid call is served must follow from what MPI makes equal on all ranks; otherwise some
/// ranks would wait for ever.
template <typename Check, typename Serve, typename Pass>
int intercept(Function function, MPI_Comm communicator, Check&& check, Serve&& serve, Pass&& pass) {
  auto* const library = Library::running();
  if (library == nullptr) return pass();
  auto outcome = is_none(communicator) ? Outcome::invalid : check(*library);
  if (outcome == Outcome::served) {
    auto& attachment = library->attachment(communicator);
    outcome = attachment.why;
    if (attachment.team) {
      try {
        outcome = serve(*library, attachment.team->ranks);
      } catch (std::exception const& error) {
        return library->fail(function, attachment, error);
      }
      if (outcome == Outcome::served) library->count_served(attachment);
    }
  }
  library->note(function, outcome);
  return outcome == Outcome::served ? MPI_SUCCESS : pass();
}

}  // namespace weft::preload
