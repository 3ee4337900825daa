#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/cases.hpp"
#include "common/meeting.hpp"
#include "weft/communicator.hpp"

namespace weft::perf {

/// What the call takes besides its operands.
struct CallOptions {
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  CollectiveOptions collective{};  ///< with a stream, the call is enqueued; its Work completes with the whole operation
};

/// Starts operation `what` on `on` through Weft's public calls.
Work start_weft(Op what, Communicator& communicator, Operands const& on, CallOptions const& options);

/// The same as a callable that makes the call again and again, as a program does that has its arguments ready. No
/// stream.
[[nodiscard]] std::function<void()> weft_call(Op what, Communicator& communicator, Operands const& on,
                                              CallOptions const& options);

/// Collective: the texts of all ranks, in rank order; each has less than 256 characters.
[[nodiscard]] std::vector<std::string> tell_all(Communicator& communicator, std::string_view mine);
/// Collective: whether all ranks can share memory.
[[nodiscard]] bool are_on_one_host(Communicator& communicator);

/// Collective. A Meeting of the communicator's ranks; the communicator must outlive it.
[[nodiscard]] Meeting meeting_of(Communicator& communicator);

}  // namespace weft::perf
