#pragma once

#include "collectives/mpi_probe/job.hpp"

namespace weft::test {

/// Calls that differ in one thing each: everybody is told of both, and the communicator goes on.
void mismatch(Job const& job);
/// One rank comes late, after the others gave up: they name it, and it is told.
void timeout(Job const& job);
void abort_from_a_thread(Job const& job);
/// A rank destroys its communicator while the others want more; then all make new ones.
void leave(Job const& job);
/// A rank sends and destroys its communicator at once: the receiver has waited for so long that it sleeps, and often
/// finds both when it wakes.
void send_and_leave(Job const& job);
void kill_one(Job const& job);
/// The last rank is killed between calls: all others name it, long before their time limit.
void lose_one(Job const& job);
/// The last rank is stopped and goes on after the first has given up: all others name it, and it is told.
void stop_one(Job const& job);
/// A rank refuses a message of another size than it expects, which it has no memory for.
void refuse_long_message(Job const& job);
/// Of ranks 0 and 1, which share a host, one never sends to the other; of ranks 0 and 2 neither. Whoever waits for rank
/// 0 by the other level hears of it.
void lost_messages(Job const& job);
/// Receives from ranks that have left, and from one that is late, end by errors that name them.
void messenger_errors(Job const& job);
void refuse(Job const& job);

#if WEFT_WITH_MPI
/// The last rank stops in a gather to another. The first, which gives its part and is in the next call, and the root,
/// which waits for the last one's, both know which of the others it is: `hasty`, who gives up first, says so.
void stop_in_gather(Job const& job, int hasty);
/// The last rank stops where it would bring in its part of a broadcast from another host, which others wait for inside
/// their host and between hosts.
void stop_between_hosts(Job const& job, int hasty);
/// Rank 0 gives up before the others come, to a start-up exchange and to a message: what comes then is not written to
/// its memory, nor taken for something later.
void late_to_mpi(Job const& job);
#endif

}  // namespace weft::test
