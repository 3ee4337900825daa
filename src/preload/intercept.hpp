#pragma once

#include <exception>

#include "preload/library.hpp"

namespace weft::preload {

/// Serves one call of `function` on `communicator` or passes it on.
///
/// `check(library)` looks at the arguments alone and `serve(library, communicator)` moves the data, or finds arguments
/// that only the communicator's size shows to be wrong; each returns Outcome::served or why `pass()` is called instead.
/// Whether a valid call is served must follow from what MPI makes equal on all ranks, or some would wait for ever.
template <typename Check, typename Serve, typename Pass>
int intercept(Function function, MPI_Comm communicator, Check&& check, Serve&& serve, Pass&& pass) {
  auto* const library = Library::running();
  if (library == nullptr) return pass();
  auto outcome = communicator == MPI_COMM_NULL ? Outcome::invalid : check(*library);
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
