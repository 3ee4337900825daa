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

/// How the ranks of a communicator come together over MPI: announcements, waits that end, and failures that all hear
/// of.
///
/// One thread at a time calls announce(); wait() and start() may run on several at once, fail() on any. Once a failure
/// was decided here or heard of, every wait and every later call throws it.
class Channel {
 public:
  /// Collective over the members of `communicator`, which becomes the channel's own. `block`: bytes per rank in a slot.
  Channel(std::shared_ptr<MpiCommunicator> communicator, std::size_t block, CommunicatorOptions const& options,
          RankHosts hosts = {});
  /// Local: tells the others that this rank has left. MPI's part is tidied up later, see MpiSession::keep().
  ~Channel();
  Channel(Channel const&) = delete;
  Channel& operator=(Channel const&) = delete;

  [[nodiscard]] int rank() const noexcept { return communicator_->rank(); }
  [[nodiscard]] int size() const noexcept { return communicator_->size(); }
  [[nodiscard]] MPI_Comm handle() const noexcept { return memory_->handle; }
  [[nodiscard]] Slot& slot(std::size_t index) noexcept { return memory_->slots[index % memory_->slots.size()]; }

  /// Tells all ranks of `call`, with up to kInlineBytes of payload, and waits for theirs. @throws Error{mismatch} on
  /// every rank when the calls differ; the communicator goes on.
  void announce(Call const& call, void const* payload = nullptr, std::size_t bytes = 0);

  /// What `rank` announced the current call with; valid until this rank's next announce().
  [[nodiscard]] Announcement const& announcement_of(int rank) const noexcept {
    return memory_->all[static_cast<std::size_t>(rank)];
  }

  /// Starts an MPI operation: `begin` makes the call named `name` and returns its status. Its buffers are MpiMemory's.
  void start(Call const& call, char const* name, std::function<int(MPI_Request&)> const& begin, MPI_Request& request);

  /// Waits until `request` is complete.
  void wait(Call const& call, MPI_Request& request);
  [[nodiscard]] bool test(Call const& call, MPI_Request& request);

  /// Waits within `call` until `ready`, which makes MPI progress, returns true. `peer`: whom this rank waits for, which
  /// may change meanwhile; kEverybody when all ranks are in the same call.
  void await(Call const& call, std::function<bool()> const& ready, int const& peer = kEverybody);
  static constexpr int kEverybody = -1;

  enum class Cancelled : std::uint8_t {
    yes,
    has_come,  ///< the message was there already, and is where the receive wanted it
    no,        ///< this thread may not call MPI, or MPI failed: it may come yet
  };
  /// Takes back a receive that was started.
  [[nodiscard]] Cancelled cancel(MPI_Request& request) noexcept;
  /// Whether `peer` has told that it makes no more calls.
  [[nodiscard]] bool has_left(int peer);

  /// Ends point-to-point traffic with `peer`: it sent something else than was expected.
  void contradict(int peer) noexcept;
  /// Whether contradict() was called here for `peer`, or there for this rank.
  [[nodiscard]] bool contradicted(int peer);
  /// Keeps memory that MPI may never let go of, and with it the communicator.
  void leave_behind(std::shared_ptr<void> memory);

  /// Decides a failure for all ranks unless one is known. Any thread.
  void fail(ErrorCode code, std::string const& message) noexcept;
  /// `during`: the call that an abort would interrupt.
  void throw_if_failed(Call const* during = nullptr);

 private:
  using Clock = std::chrono::steady_clock;

  /// What a wait does besides testing: hear notices, tell that this rank is here, give up in the end.
  void look_around(Call const& call, int peer, Clock::duration waited, std::function<bool()> const& ready);
  /// Whether a call is complete of which this rank has not looked at the end while it slept, and others failed.
  [[nodiscard]] static bool has_come_after_all(std::function<bool()> const& ready);
  /// Tells all ranks that this one waits in `call`, as often as a rank that is silent must be told from one that waits
  /// as well.
  void say_waiting(Call const& call) noexcept;
  /// Whom this rank waits for, as far as it is known: any of `ranks`.
  struct Absence {
    std::vector<int> ranks;
    bool left = false;
  };
  [[nodiscard]] Absence find_absent(Call const& call, int peer);
  void hear() noexcept;
  void tell_failure() noexcept;
  void note_failure(ErrorCode code, std::string const& message) noexcept;
  [[noreturn]] void fail_with(ErrorCode code, std::string const& message);
  void check_announcements(Call const& call);

  std::shared_ptr<MpiCommunicator> communicator_;
  RankHosts hosts_;
  std::unique_ptr<MpiMemory> memory_;
  Clock::duration patience_;  // before a wait sleeps, which it does at once where other programs want the core
  Yielder yielder_;
  std::function<void()> progress_;   // another library's, called by waits
  std::uint64_t announced_ = 0;      // the latest call that all ranks have announced
  std::uint64_t latest_ = 0;         // the latest call that this rank has announced
  std::atomic<bool> failed_{false};  // set once the failure below is complete

  std::mutex mutex_;  // the rest, and MpiMemory's notices
  ErrorCode code_ = ErrorCode::system;
  std::string message_;
  bool untold_ = false;  // the failure was decided where MPI cannot be called
  Notice told_;          // that this rank waits, when it last said so
  Clock::time_point told_at_{};
  std::vector<std::uint64_t> here_;       // the latest call in which each rank has told that it waits
  std::vector<Clock::time_point> heard_;  // when each rank has last told anything
  static constexpr std::uint64_t kStays = ~std::uint64_t{0};
  std::vector<std::uint64_t> left_;  // after which call each rank has left, or kStays
  std::vector<char> contradicted_;
  bool untidy_ = false;
};

}  // namespace weft::mpi
