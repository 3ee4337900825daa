#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/mpi/mpi_memory.hpp"
#include "core/mpi_session.hpp"
#include "core/rank_hosts.hpp"
#include "core/yielder.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"

namespace weft::mpi {

/// How the ranks of a communicator coordinate over MPI: announcements, waits with a time limit, and failures that every
/// rank hears of.
///
/// One thread at a time calls announce(); several threads may be in wait() and start() at once, and any may call
/// fail(). Once this rank has declared a failure or heard of one, every wait and every later call throws it.
class Channel {
 public:
  /// Collective over the members of `communicator`, which the channel takes over. `block`: bytes per rank in a slot.
  Channel(std::shared_ptr<MpiCommunicator> communicator, std::size_t block, CommunicatorOptions const& options,
          RankHosts hosts = {});
  /// Local: tells the others that this rank has left. MPI's resources are released later, see MpiSession::keep().
  ~Channel();
  Channel(Channel const&) = delete;
  Channel& operator=(Channel const&) = delete;

  [[nodiscard]] int rank() const noexcept { return communicator_->rank(); }
  [[nodiscard]] int size() const noexcept { return communicator_->size(); }
  [[nodiscard]] MPI_Comm handle() const noexcept { return memory_->handle; }
  [[nodiscard]] Slot& slot(std::size_t index) noexcept { return memory_->slots[index % memory_->slots.size()]; }

  /// Tells all ranks about `call`, with up to kInlineBytes of payload, and waits for their announcements.
  /// @throws Error{mismatch} on every rank if the calls differ; the communicator stays usable.
  void announce(Call const& call, void const* payload = nullptr, std::size_t bytes = 0);

  /// `rank`'s announcement of the current call; valid until this rank's next announce().
  [[nodiscard]] Announcement const& announcement_of(int rank) const noexcept {
    return memory_->all[static_cast<std::size_t>(rank)];
  }

  /// Starts an MPI operation: `begin` calls the MPI function `name` and returns its status. Its buffers must be in
  /// MpiMemory.
  void start(Call const& call, char const* name, std::function<int(MPI_Request&)> const& begin, MPI_Request& request);

  /// Waits until `request` is complete.
  void wait(Call const& call, MPI_Request& request);
  [[nodiscard]] bool test(Call const& call, MPI_Request& request);

  /// Waits within `call` until `ready()`, which makes MPI progress, returns true. `peer`: the rank that this one waits
  /// for, which may change meanwhile; kEverybody when all ranks are in the same call.
  void await(Call const& call, std::function<bool()> const& ready, int const& peer = kEverybody);
  static constexpr int kEverybody = -1;
  /// For a rank that waits by other means than MPI, for `peer`, in `inside`, a step of the call that it announced last.
  /// Takes in the others' notices, and tells them that this rank waits. @throws a failure: a known one, or a timeout if
  /// it has `waited` for the time limit and knows a rank that is late.
  void look_around_inside(Call inside, int peer, std::function<bool()> const& ready, std::chrono::nanoseconds waited);

  enum class Cancelled : std::uint8_t {
    yes,
    has_come,  ///< the message had arrived already, and is in the receive's memory
    no,        ///< this thread may not call MPI, or MPI failed: the message may still come
  };
  /// Cancels a receive that was started.
  [[nodiscard]] Cancelled cancel(MPI_Request& request) noexcept;
  /// Whether `peer` has told that it makes no more calls.
  [[nodiscard]] bool has_left(int peer);

  /// Ends point-to-point traffic with `peer`, because it sent something other than this rank expected.
  void contradict(int peer) noexcept;
  /// Whether this rank has called contradict() for `peer`, or `peer` for this rank.
  [[nodiscard]] bool contradicted(int peer);
  /// Keeps memory, and with it the communicator, that MPI may go on using for good.
  void leave_behind(std::shared_ptr<void> memory);

  /// Declares a failure for all ranks, unless one is known. Any thread.
  void fail(ErrorCode code, std::string const& message) noexcept;
  /// `during`: the call that is named as interrupted if the failure is an abort.
  void throw_if_failed(Call const* during = nullptr);

 private:
  using Clock = std::chrono::steady_clock;

  /// What a wait does besides testing: takes in notices, tells the others that this rank waits, and gives up at the
  /// time limit.
  void look_around(Call const& call, int peer, Clock::duration waited, std::function<bool()> const& ready);
  /// Whether the call is complete after all. It may have ended while this rank slept, before others failed or left.
  [[nodiscard]] static bool has_come_after_all(std::function<bool()> const& ready);
  /// Tells all ranks that this one waits in `call`, often enough that they can tell a rank that waits, too, from one
  /// that is silent.
  void say_waiting(Call const& call) noexcept;
  /// Which ranks this one waits for, as far as it is known: one or more of `ranks`.
  struct Absence {
    std::vector<int> ranks;
    bool left = false;
  };
  [[nodiscard]] Absence find_absent(Call const& call, int peer);
  [[noreturn]] void fail_for_late(Call const& call, std::vector<int> const& late);
  void hear() noexcept;
  void tell_failure() noexcept;
  void note_failure(ErrorCode code, std::string const& message) noexcept;
  [[noreturn]] void fail_with(ErrorCode code, std::string const& message);
  void check_announcements(Call const& call);

  std::shared_ptr<MpiCommunicator> communicator_;
  RankHosts hosts_;
  std::unique_ptr<MpiMemory> memory_;
  Clock::duration patience_;  // a wait polls this long before it sleeps; where other programs need the core, not at all
  Yielder yielder_;
  std::function<void()> progress_;   // makes progress in another library; waits call it
  std::uint64_t announced_ = 0;      // the latest call that all ranks have announced
  std::uint64_t latest_ = 0;         // the latest call that this rank has announced
  std::atomic<bool> failed_{false};  // set once the failure below is complete

  std::mutex mutex_;  // guards the rest, and MpiMemory's notices
  ErrorCode code_ = ErrorCode::system;
  std::string message_;
  bool untold_ = false;  // the failure was declared by a thread that must not call MPI, and is still to be told
  Notice told_;          // the last notice by which this rank said that it waits
  Clock::time_point told_at_{};
  std::vector<std::uint64_t> here_;       // the latest call for which each rank has sent Notice::Kind::here
  std::vector<Clock::time_point> heard_;  // when each rank's last notice came
  static constexpr std::uint64_t kStays = ~std::uint64_t{0};
  std::vector<std::uint64_t> left_;  // the call after which each rank has left, or kStays
  std::vector<char> contradicted_;
  bool untidy_ = false;
};

}  // namespace weft::mpi
