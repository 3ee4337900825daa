#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/bootstrap.hpp"
#include "weft/buffer.hpp"
#include "weft/config.hpp"
#include "weft/error.hpp"
#include "weft/parts.hpp"
#include "weft/reduction.hpp"
#include "weft/shared_heap.hpp"
#include "weft/stream.hpp"
#include "weft/wire_format.hpp"
#include "weft/work.hpp"

namespace weft {

/// A link to stand in for a network on one host. A collective lasts at least what the ring formula gives for it,
/// with n ranks and B bytes (all_reduce, reduce_scatter and all_gather count the full buffer of n shards):
///   all_reduce       2(n-1)·latency + 2(n-1)/n·B/bandwidth
///   reduce_scatter,
///   all_gather        (n-1)·latency +  (n-1)/n·B/bandwidth
///   broadcast, reduce,
///   scan, exscan      (n-1)·latency +          B/bandwidth
///   gather, scatter,
///   all_to_all        (n-1)·latency + (n-1)·P/bandwidth, P bytes in one rank's part
///   barrier          2·ceil(log2 n)·latency
///   send, recv,
///   send_recv               latency +          B/bandwidth, the larger B of the two
/// Equal on every rank: with unequal parts too for reduce_scatter and all_gather, whose B is their sum. Where ranks
/// know only some of the unequal parts, each counts what it knows, and may return at another time than the others:
/// instead of (n-1)·P the root of gather and scatter counts all parts but its own, another rank (n-1) times its own
/// part; all_to_all counts what the rank sends to others or what it receives from them, whichever is more. (Thakur,
/// Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005; the barrier's is a tree up
/// and down). The communicating thread sleeps for the rest, to an absolute deadline.
struct EmulatedLink {
  std::chrono::nanoseconds latency{};
  double bytes_per_second = 0;

  /// "20us:2GB/s" (K M G are powers of 1000 here, as link rates are). @throws Error{invalid_argument} naming what is
  /// allowed.
  [[nodiscard]] static EmulatedLink parse(std::string const& text);
  /// "20us:2GB/s (emulated)"
  [[nodiscard]] std::string describe() const;
};

/// What the bits of a reduction depend on besides its contributions. Either way every rank gets the same bits, and the
/// same program run again on ranks placed alike gets them again: timing, algorithms, chunks and buckets do not matter.
enum class Reproducibility {
  run_to_run,  ///< also on which ranks share a host: those may combine theirs first, which sends less between hosts.
               ///< Partial results of 16-bit floats round once more, and overflow where they do.
  bitwise,     ///< on nothing else: contributions combine in rank order on every back end, however ranks are placed
};

struct CommunicatorOptions {
  std::optional<EmulatedLink> emulated_link{};  ///< on all ranks, or on none
  std::optional<Config> config{};  ///< absent: Config::from_environment(); a communicator's own always has it
  /// Rank 0's counts. On one host reductions are bitwise reproducible in any case.
  Reproducibility reproducibility = Reproducibility::run_to_run;
  /// What a collective that waits for its peers calls meanwhile, on the waiting thread, every few microseconds: lets
  /// another library that shares the process make progress. Must not throw, wait, or call this communicator.
  std::function<void()> progress{};
  /// Buffers in it count as symmetric memory where every rank has one; where some rank has none, or another host lies
  /// between, they are as private ones. May be null, and differ between communicators.
  std::shared_ptr<SharedHeap> heap{};
  /// For communicators whose large buffers are symmetric memory, which needs no staging ring. Where ranks share a host
  /// the ring then has at most 3/8 of an L2 cache (or 384 KiB), whatever WEFT_STAGING_BYTES says; private memory still
  /// goes through it, in smaller blocks. Rank 0's counts.
  bool small_staging = false;
  /// How long a wait polls where every rank of a host has a core to itself and Config::spin does not say. Rank 0's
  /// counts. Absent: about 50 µs.
  std::optional<std::chrono::microseconds> spin_alone{};
  std::string name{};  ///< what errors, dumps and weft-doctor call the communicator; split() adds the color
};

struct CollectiveOptions {
  std::optional<Stream> stream{};                      ///< absent: runs inline and returns when done
  std::optional<std::chrono::milliseconds> timeout{};  ///< 1 ms to a year, see is_timeout(); absent: the communicator's
  /// What the call is about, part of its contract on every back end: ranks whose tags differ made different calls, as
  /// with other counts. 0 is the tag of calls that have none. Calls with a tag run by themselves within groups and on
  /// fused streams. Those with unequal parts mix it with a fingerprint of their parts, which messages show in its
  /// place. For a call with a root, a message and a Group it is Error{invalid_argument}.
  std::uint32_t tag = 0;
  /// Of an all_reduce or reduce_scatter that comes again and again, where Config::wire rounds what crosses hosts.
  std::shared_ptr<WireFeedback> feedback{};
};

/// The options of a call that is given none: one object for all, as to make and destroy one takes a tenth of the
/// smallest call.
extern CollectiveOptions const kNoOptions;

/// A group of ranks that communicate. Move-only.
///
/// Calls. All ranks make the same calls in the same order; calls take effect in that order whatever streams they run
/// on. Counts are elements. Zero counts are legal. Reducing calls take a ReduceOp or a Reduction, of the pairs of data
/// types and operators that supports() knows. Only barrier, and calls that all ranks get something of, bring ranks
/// together.
///
/// Buffers. `recv == send` (same address) means in place, where a call allows it; any other overlap is an error.
/// Without a stream a call returns when its buffers may be used. With one it returns at once, and neither buffer may be
/// touched until its Work completes.
///
/// Threads. One thread at a time makes calls. A second one that does so during a blocking collective is
/// Error{invalid_argument}, if found out: best effort. abort() may be called by any thread.
///
/// Errors. With a stream they surface from Work::wait(), but for the caller's own mistakes.
/// - Error{invalid_argument}: the caller's mistake, thrown at once, before anything is sent; also by every call of a
///   Communicator that was moved from.
/// - Error{mismatch}: ranks made different calls. Every rank throws it, naming ranks and both calls, before any data is
///   consumed, and the communicator goes on. But ranks that only give to a broadcast, gather, scatter or reduce may
///   have returned before the others came: then those that wait throw at once, those that returned throw from a later
///   call, and the communicator has failed.
/// - Error{peer_lost|timeout}: a rank died, left or came too late. Every other rank's pending and later calls throw it,
///   naming that rank.
///
/// Memory on a GPU goes through NCCL (2.28 or newer, opened at run time).
/// - With a stream of that GPU (the caller's, or one for communication alone: cuda::make_stream with high_priority) a
///   call is enqueued there and the host goes on: its Work is in the stream's order, see Work. Without a stream it runs
///   on the communicator's own, and the host waits; what other streams do with the buffers must have ended.
/// - All buffers of a call, and of a Group, are on one device; a barrier is where its stream is.
/// - Not there: scan and exscan, what NCCL cannot reduce (Error{unsupported} says what to do), fuse(), emulated links.
///   Truth values are 0 or 1. premul_sum rounds the scale to the data type. NCCL decides the order of additions, so
///   under Reproducibility::bitwise only what is exact in any order is reduced.
/// - A thread beside the GPU finds ranks that make different calls (also messages and parts that do not fit one
///   another), come late, or die: within some milliseconds (or the timeout), but after data may have been consumed. All
///   pending Works then fail, as do later calls, until connect() or shrink(). Each Work fails once the GPU is through
///   with its buffers or NCCL was aborted; its error says so in the one case where neither ends in time.
/// - Under stream capture calls become part of the graph; what happens when it runs is then the program's to watch.
/// - In messages and dumps the calls on a GPU are numbered by themselves.
class Communicator {
 public:
  /// Collective over the bootstrap's ranks. Up to 64 of a host share memory: more count as several hosts of about equal
  /// size, neighbours by rank together. @throws Error{invalid_argument} naming the member of the options that is wrong;
  /// Error{out_of_memory|system|peer_lost|unsupported}
  [[nodiscard]] static Communicator create(std::shared_ptr<Bootstrap> bootstrap,
                                           CommunicatorOptions const& options = {});

  /// Collective: a new communicator of the same ranks, with its own memory, order of calls and options. Independent of
  /// this one.
  [[nodiscard]] Communicator duplicate(CommunicatorOptions const& options);

  /// Collective: ranks that pass the same `color` become a new communicator, ranked by `key`, then by their rank here.
  /// Independent of this one. Empty for ranks that pass kNoColor.
  [[nodiscard]] std::optional<Communicator> split(int color, int key, CommunicatorOptions const& options);
  /// With this one's options.
  [[nodiscard]] std::optional<Communicator> split(int color, int key = 0);
  static constexpr int kNoColor = -1;

  /// Collective among the ranks that are left after a failure: a new communicator of them, in the order of their ranks
  /// here. Lost are ranks that died, or that destroyed this communicator; where none is lost, the new one has all of
  /// them. Where a rank dies meanwhile, the others form one without it. It is connected where this one was: a GPU's
  /// part is made from this one's (ncclCommShrink), or anew.
  ///
  /// This communicator is over then: calls under way end with its failure, or else Error{aborted}. Memory that it
  /// allocated stays, and it may be destroyed before or after.
  ///
  /// For ranks of one host that share memory and that nobody ends when one of them dies: forked by the program, or
  /// threads; launch(), mpirun and torchrun end them. @throws Error{timeout} naming a rank that is alive and does not
  /// come; Error{unsupported} for back ends of MPI, with whom a lost rank ends the job.
  [[nodiscard]] Communicator shrink(CommunicatorOptions const& options);
  /// With this one's options.
  [[nodiscard]] Communicator shrink();

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  /// Local: waits for this rank's own enqueued calls (bounded by their timeout), tells the peers this rank has left,
  /// frees.
  ~Communicator();

  [[nodiscard]] int rank() const noexcept;  ///< -1 once moved from
  [[nodiscard]] int size() const noexcept;  ///< 0 once moved from
  [[nodiscard]] CommunicatorOptions const& options() const;

  /// Collective: makes the communicator ready for memory on a GPU, one for each rank; the first collective on such
  /// memory does it otherwise. After a failure there, other than a lost rank, it makes it ready again, all ranks being
  /// there, also where only some know of it yet. @throws Error{unsupported} where this library was built without NCCL,
  /// or there is no NCCL 2.28 or newer; Error{timeout} naming the time limit; Error{invalid_argument} for another
  /// device than before.
  void connect(Device device);

  /// Collective: zero-filled symmetric memory of `count` elements, which every rank can read and write directly: the
  /// fast path of every collective. All ranks pass equal count and dtype. Released when the Buffer and the peers' use
  /// of it end; the Buffer may outlive the Communicator. While a call sends from it, peers may store what they have
  /// read there again, unchanged: nobody else writes there until the call has ended. Of a call that has failed here, a
  /// peer that is late may still be in the middle, and write there until it fails, too. @throws Error{out_of_memory} on
  /// every rank when one of them cannot have it.
  ///
  /// On a GPU: memory that NCCL gives out and, where it can, registers as a window of all ranks, for its fastest
  /// algorithms; of NCCL's own kind of memory otherwise (WEFT_EXPLAIN=1 says why). This rank alone can read it, and its
  /// Buffer goes before the Communicator.
  [[nodiscard]] Buffer allocate(std::size_t count, DataType dtype, Device device = {});

  /// recv[i] = op over r of send_r[i], for i in [0, count). send.count == recv.count, equal on all ranks. May be in
  /// place. Bits are the same on every rank.
  Work all_reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                  CollectiveOptions const& options = kNoOptions);

  /// recv[i] = op over r of send_r[rank·count + i], for i in [0, count), count = recv.count, send.count == size·count.
  /// In place when recv starts at send + rank·count.
  Work reduce_scatter(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                      CollectiveOptions const& options = kNoOptions);

  /// recv[r·count + i] = send_r[i], for i in [0, count), count = send.count, recv.count == size·count.
  /// In place when send starts at recv + rank·count.
  Work all_gather(ConstBufferView const& send, BufferView const& recv, CollectiveOptions const& options = kNoOptions);

  /// Unequal shards: recv[i] = op over r of send_r[offset(rank) + i]. Every rank passes the same parts;
  /// recv.count == parts.counts[rank]. In place when recv starts at this rank's part of send, which no other overlaps.
  Work reduce_scatter(ConstBufferView const& send, BufferView const& recv, Parts const& parts, Reduction const& how,
                      CollectiveOptions const& options = kNoOptions);

  /// Unequal shards: recv[offset(r) + i] = send_r[i]. Every rank passes the same counts; send.count ==
  /// parts.counts[rank]. In place when send starts at this rank's part of recv.
  Work all_gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts,
                  CollectiveOptions const& options = kNoOptions);

  /// recv[i] on `root` = op over r of send_r[i]. send.count is equal on all ranks. Only `root` uses recv, of send.count
  /// elements; the others may pass an empty one of the same type. May be in place on the root.
  Work reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how, int root,
              CollectiveOptions const& options = kNoOptions);

  /// recv[r·count + i] on `root` = send_r[i], count = send.count. Only `root` uses recv, of size·count elements. In
  /// place on the root when send starts at its part of recv.
  Work gather(ConstBufferView const& send, BufferView const& recv, int root,
              CollectiveOptions const& options = kNoOptions);
  /// Unequal parts: recv[offset(r) + i] on `root` = send_r[i]. Only `root` uses recv and parts; send_r.count ==
  /// parts.counts[r], or all ranks throw Error{mismatch}.
  Work gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts, int root,
              CollectiveOptions const& options = kNoOptions);

  /// recv[i] = send[rank·count + i] of `root`, count = recv.count. Only `root` uses send, of size·count elements. In
  /// place on the root when recv starts at its part of send.
  Work scatter(ConstBufferView const& send, BufferView const& recv, int root,
               CollectiveOptions const& options = kNoOptions);
  /// Unequal parts: recv[i] = send[offset(rank) + i] of `root`. Only `root` uses send and parts; recv_r.count ==
  /// parts.counts[r], or all ranks throw Error{mismatch}.
  Work scatter(ConstBufferView const& send, Parts const& parts, BufferView const& recv, int root,
               CollectiveOptions const& options = kNoOptions);

  /// recv[r·count + i] = send_r[rank·count + i], send.count == recv.count == size·count. May be in place.
  Work all_to_all(ConstBufferView const& send, BufferView const& recv, CollectiveOptions const& options = kNoOptions);
  /// Unequal parts: recv[offset(r) + i] = send_r[its offset(rank) + i]. What rank a sends to b must be what b receives
  /// from a, or all ranks throw Error{mismatch}. Not in place.
  Work all_to_all(ConstBufferView const& send, Parts const& send_parts, BufferView const& recv, Parts const& recv_parts,
                  CollectiveOptions const& options = kNoOptions);

  /// recv[i] = op over r <= rank of send_r[i] (not avg). May be in place.
  Work scan(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
            CollectiveOptions const& options = kNoOptions);
  /// recv[i] = op over r < rank of send_r[i] (not avg); rank 0's recv is left as it is. May be in place.
  Work exscan(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
              CollectiveOptions const& options = kNoOptions);

  /// buffer[i] on every rank = buffer[i] of `root`, for i in [0, buffer.count), equal on all ranks.
  Work broadcast(BufferView const& buffer, int root, CollectiveOptions const& options = kNoOptions);

  /// Sends to rank `to`, which receives it with a recv (or send_recv) of the same count and type. Messages between two
  /// ranks match in the order both sides issued them; else point-to-point calls take no turns with other calls. Returns
  /// (completes) once the buffer may be reused: short messages do not wait for the receiver. A size or type that
  /// differs throws Error{mismatch} at the receiver, and at both from then on. To itself a rank sends only within a
  /// Group or by send_recv.
  Work send(ConstBufferView const& buffer, int to, CollectiveOptions const& options = kNoOptions);
  /// Receives from rank `from`.
  Work recv(BufferView const& buffer, int from, CollectiveOptions const& options = kNoOptions);
  /// Both at once, so that ranks may exchange messages of any size. The buffers do not overlap.
  Work send_recv(ConstBufferView const& send, int to, BufferView const& recv, int from,
                 CollectiveOptions const& options = kNoOptions);

  /// Returns (completes) once every rank has entered.
  Work barrier(CollectiveOptions const& options = kNoOptions);

  /// From now on consecutive small all_reduces, reduce_scatters, all_gathers and broadcasts on `stream` merge; 0: no
  /// longer. For calls made one by one; where they are made together, a Group says so.
  ///
  /// Calls of one kind (operation, data type, operator, root) of less than `bytes` each are held back, and run as one
  /// flat transfer when the next would take them over `bytes`, or earlier:
  /// - at a call of another kind (sends and receives too: between fused calls all ranks make some, or none), or at one
  ///   that uses what a waiting one writes;
  /// - when a Work of theirs is looked at;
  /// - when anything else comes to the stream, or its last copy goes.
  /// Each call counts what its contract counts, e.g. one rank's part in a reduce_scatter, in whole cache lines. What is
  /// too large to be worth merging runs as it would: beyond 16 MiB (64 MiB together) of two ranks of a host with a core
  /// each, beyond 2 to 32 KiB (256 KiB to 1 MiB together) of others. The longest of the timeouts counts.
  ///
  /// All ranks fuse alike, their buffers depend on each other alike, and only the thread that makes the calls looks at
  /// Works of calls that are held back; else calls throw Error{mismatch}.
  void fuse(Stream const& stream, std::size_t bytes = std::size_t{25} << 20);

  /// Makes every rank's pending and later calls throw Error{aborted} with `reason`. Any thread.
  void abort(std::string const& reason) noexcept;

 private:
  class Impl;
  /// @throws Error{invalid_argument} for `function` when this was moved from.
  [[nodiscard]] Impl& live(char const* function) const;
  friend class Group;
  friend class Messenger;
  friend class DeviceAccess;
  explicit Communicator(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace weft
