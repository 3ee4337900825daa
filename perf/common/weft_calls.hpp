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
  CollectiveOptions collective{};  ///< with a stream: enqueued, the Work completes when all of the operation has
};

/// The operation `what` on `on`, made of Weft's public calls.
Work start_weft(Op what, Communicator& communicator, Operands const& on, CallOptions const& options);

/// The same as a line of a program would make it again and again, which has its arguments at hand. No stream.
[[nodiscard]] std::function<void()> weft_call(Op what, Communicator& communicator, Operands const& on,
                                              CallOptions const& options);

/// Collective: every rank's text, of less than 256 characters, in rank order.
[[nodiscard]] std::vector<std::string> tell_all(Communicator& communicator, std::string_view mine);
/// Collective: whether all ranks can share memory.
[[nodiscard]] bool are_on_one_host(Communicator& communicator);

/// Collective. The communicator's ranks. It must outlive the Meeting.
[[nodiscard]] Meeting meeting_of(Communicator& communicator);

}  // namespace weft::perf
