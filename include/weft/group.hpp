#pragma once

#include <memory>

#include "weft/communicator.hpp"

namespace weft {

/// Calls that are launched together: those a communicator gets while its Group is open are kept, and end() runs them
/// as one. Small calls of one kind (operation, data type, operator, root) become one flat transfer; sends and receives
/// complete together, after the other calls, in whatever order they were made.
///
///   weft::Group group(world, {.stream = stream});
///   for (Shard& shard : shards) world.reduce_scatter(shard.gradient, shard.part, weft::ReduceOp::avg);
///   weft::Work work = group.end();
///
/// The calls of a group are independent: what one writes no other uses. Where they are not, on host memory, end()
/// throws Error{invalid_argument} before anything runs; on a GPU nobody looks. Arguments are checked as each call is
/// made; its Work completes with the group's, and waiting for it before end() is an Error{invalid_argument}. After a
/// failure it does not tell which of the calls ran. Calls that merged have the longest of their timeouts.
///
/// All ranks make the same calls in the same order within groups that begin and end alike. Where calls merge, ranks
/// that do otherwise throw Error{mismatch}; where none does, it makes no difference. Results are, bit for bit, those of
/// the calls by themselves, unless a WireFormat rounds what crosses hosts.
///
/// A communicator has one group at a time; no allocate(), duplicate() or split() while it is open. Same threads as the
/// communicator.
///
/// A rank may send to itself: its sends to itself go to its recvs from itself in the same group, one after the other,
/// and are copied. Where their numbers, sizes or types differ, end() throws Error{invalid_argument} before anything
/// runs.
///
/// What merges: two ranks of one host with a core each up to 16 MiB a call, without further copies; other ranks, also
/// of several hosts, calls of up to 2 or 32 KiB, which are copied to and from a buffer of up to 1 MiB per part and
/// rank.
class [[nodiscard]] Group {
 public:
  /// Opens the group. `options` are those of end(), and of the calls that have no timeout of their own; the calls name
  /// no other stream.
  /// @throws Error{invalid_argument} when the communicator has an open group.
  explicit Group(Communicator& communicator, CollectiveOptions const& options = {});

  /// A group that has not ended drops its calls, whose Works fail with Error{aborted}: for leaving by an exception.
  ~Group();
  Group(Group const&) = delete;
  Group& operator=(Group const&) = delete;

  /// Runs the calls: on the stream if there is one, else here. The first failure is thrown (by the Work, with a
  /// stream); the calls after it are tried all the same. @throws Error{invalid_argument} when it has ended before.
  Work end();

 private:
  std::weak_ptr<Communicator::Impl> communicator_;
  bool open_ = true;
};

}  // namespace weft
