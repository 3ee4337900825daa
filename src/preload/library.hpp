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

/// What hangs on an MPI communicator: its team, or why it has none.
struct Attachment {
  MPI_Comm communicator = MPI_COMM_NULL;
  std::unique_ptr<Team> team;
  Outcome why = Outcome::served;
  std::uint64_t calls = 0;  ///< served
};

/// All that libweft_mpi.so keeps in a process between MPI_Init and MPI_Finalize.
///
/// The one object of Weft that is reached through a global: MPI's functions have no other place for it. It is made at
/// the first intercepted call after MPI_Init and gives everything back at the start of MPI_Finalize, or, where that is
/// not intercepted, in a delete callback of MPI_COMM_SELF. From then on, and before, calls pass through. Any thread.
class Library {
 public:
  /// Null where every call has to pass through.
  [[nodiscard]] static Library* running() {
    auto* const library = instance.load(std::memory_order_acquire);
    return library != nullptr ? library : start();
  }

  /// Gives everything back, for good, whether it was made or not. Local; no other thread is in a call.
  static void stop();

  /// The communicator's attachment. Collective the first time on a communicator, where all ranks come by the same call.
  [[nodiscard]] Attachment& attachment(MPI_Comm communicator);

  [[nodiscard]] TypeTable const& types() const noexcept { return types_; }
  /// A communicator of this rank alone that carries no messages and returns errors.
  [[nodiscard]] MPI_Comm scratch() const noexcept { return scratch_; }

  void note(Function function, Outcome outcome) noexcept {
    if (keeps_statistics_) statistics_.note(function, outcome);
  }

  /// After a served call: now and then lets MPI make progress, which a loop of calls that never wait would not.
  void count_served(Attachment& attachment) noexcept {
    constexpr std::uint64_t kCallsPerProgress = 16;
    if (++attachment.calls % kCallsPerProgress == 0) progress(scratch_);
  }

  /// Hands a failed call to the communicator's error handler; what the call then returns.
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

/// While a thread frees a communicator, calls on it pass through: the program's own delete callbacks may make some,
/// before or after Weft's callback has run, which differs from rank to rank as attributes are set.
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
