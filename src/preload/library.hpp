#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <set>

#include "preload/pool.hpp"
#include "preload/statistics.hpp"
#include "preload/types.hpp"

namespace weft::preload {

/// What Weft attaches to an MPI communicator: its team, or the reason why it has none.
struct Attachment {
  MPI_Comm communicator = MPI_COMM_NULL;
  std::unique_ptr<Team> team;
  Outcome why = Outcome::served;
  std::uint64_t calls = 0;  ///< calls that were served
};

/// All that libweft_mpi.so keeps in a process between MPI_Init and MPI_Finalize.
///
/// The only object of Weft that is reached through a global, as MPI's functions have no other place for it. It is made
/// at the first intercepted call after MPI_Init. It gives everything back at the start of MPI_Finalize or, where that
/// is not intercepted, in a delete callback of MPI_COMM_SELF. Before and after that, calls pass through. Any thread.
class Library {
 public:
  /// The library, started if need be; null while every call has to pass through.
  [[nodiscard]] static Library* running() {
    auto* const library = instance.load(std::memory_order_acquire);
    return library != nullptr ? library : start();
  }

  /// Gives everything back for good, whether the library was started or not. Local. Pre: no other thread is in a call.
  static void stop();

  /// The communicator's attachment. The first time on a communicator this is collective: all its ranks come by the same
  /// call.
  [[nodiscard]] Attachment& attachment(MPI_Comm communicator);

  [[nodiscard]] TypeTable const& types() const noexcept { return types_; }
  /// A communicator of this rank alone that carries no messages and returns errors.
  [[nodiscard]] MPI_Comm scratch() const noexcept { return scratch_; }

  void note(Function function, Outcome outcome) noexcept {
    if (keeps_statistics_) statistics_.note(function, outcome);
  }

  /// To be called after a served call: now and then lets MPI make progress, as a loop of calls that never wait in MPI
  /// would not.
  void count_served(Attachment& attachment) noexcept {
    constexpr std::uint64_t kCallsPerProgress = 16;
    if (++attachment.calls % kCallsPerProgress == 0) progress(scratch_);
  }

  /// Hands a failed call to the communicator's error handler. Returns what the call then returns.
  int fail(Function function, Attachment& attachment, std::exception const& error) noexcept;

  Library(Library const&) = delete;
  Library& operator=(Library const&) = delete;

 private:
  explicit Library(MPI_Comm scratch);
  ~Library() = default;
  static Library* start();
  static void progress(MPI_Comm scratch) noexcept;
  [[nodiscard]] Attachment& attach(MPI_Comm communicator);
  static int on_communicator_freed(MPI_Comm, int, void* attachment, void* library);
  static int on_finalize(MPI_Comm, int, void*, void* library);
  void close() noexcept;

  static constinit std::atomic<Library*> instance;

  MPI_Comm scratch_;
  TypeTable types_;
  bool keeps_statistics_ = false;
  Statistics statistics_;
  std::unique_ptr<Pool> pool_;
  int key_ = MPI_KEYVAL_INVALID;
  int at_finalize_ = MPI_KEYVAL_INVALID;
  std::mutex mutex_;
  std::set<Attachment*> attachments_;
  Attachment being_freed_{MPI_COMM_NULL, nullptr, Outcome::being_freed};
  Attachment invalid_{MPI_COMM_NULL, nullptr, Outcome::invalid};
};

/// While a thread frees a communicator, calls on it pass through. The program's own delete callbacks may make such
/// calls, before or after Weft's callback has run: which it is depends on the order in which attributes were set, and
/// so differs from rank to rank.
class Freeing {
 public:
  explicit Freeing(MPI_Comm communicator) noexcept;
  ~Freeing();
  Freeing(Freeing const&) = delete;
  Freeing& operator=(Freeing const&) = delete;

  /// Whether this thread is freeing the communicator.
  [[nodiscard]] static bool includes(MPI_Comm communicator) noexcept;

 private:
  MPI_Comm communicator_;
  Freeing const* outer_;
};

}  // namespace weft::preload
