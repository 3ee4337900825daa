#pragma once

#include <mpi.h>

#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// @throws Error{system} with the library's own words unless `status` is MPI_SUCCESS.
void check_mpi(int status, char const* call);

/// Something that MPI may still work on after its owner is gone, such as messages under way.
class MpiRemains {
 public:
  virtual ~MpiRemains() = default;
  /// Lets MPI make progress; true once MPI has let go of everything, so that the object can be destroyed. Called with
  /// the session's lock held.
  [[nodiscard]] virtual bool settled() noexcept = 0;
};

/// This process's use of MPI: one for all bootstraps and communicators, alive as long as any of them.
///
/// Initialises MPI unless the program has done so. If the session did, it also finalises MPI, which every rank has to
/// do together. So it does not after a failure: an unwinding rank leaves MPI as it is and exits, and mpirun ends the
/// others.
///
/// Weft asks for MPI_THREAD_MULTIPLE. Where the library or the program provided less, Weft's own calls take turns by
/// enter(). The program must then see to it that its own calls do not coincide with Weft's, and communicators cannot be
/// created by several threads at once.
class MpiSession {
 public:
  /// The process's session, started when there is none. @throws Error{unsupported} after MPI_Finalize.
  [[nodiscard]] static std::shared_ptr<MpiSession> acquire();
  /// Name and version of the MPI that this is, e.g. "Open MPI v4.1.4".
  [[nodiscard]] static std::string library();

  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;
  ~MpiSession();

  /// The right to call MPI, for as long as the lock lives. Every call on behalf of communicators is made under it; with
  /// MPI_THREAD_MULTIPLE it costs nothing. @throws Error{unsupported} on a thread that the provided level excludes.
  [[nodiscard]] std::unique_lock<std::mutex> enter();
  /// Whether the thread level lets this thread call MPI at all.
  [[nodiscard]] bool admits_this_thread() const noexcept;

  /// While an object of this class lives, MPI yields the core where it waits in a call, as Open MPI does by default
  /// with more ranks than cores. At other times it does not, where Weft has started Open MPI: a yield costs a time
  /// slice if any other program computes, and Weft's own waits know when to yield and when to sleep.
  /// OMPI_MCA_mpi_yield_when_idle in the environment rules all of it out.
  class Yielding {
   public:
    explicit Yielding(MpiSession& session);
    ~Yielding();
    Yielding(Yielding const&) = delete;
    Yielding& operator=(Yielding const&) = delete;

   private:
    MpiSession& session_;
  };

  /// Keeps what a communicator left behind until MPI has let go of it, or else until after MPI_Finalize.
  void keep(std::unique_ptr<MpiRemains> remains);
  /// Destroys the kept remains that have settled.
  void sweep() noexcept;

 private:
  MpiSession();

  int level_ = MPI_THREAD_SINGLE;
  bool owner_ = false;
  int exceptions_ = std::uncaught_exceptions();
  bool (*set_yielding_)(bool) = nullptr;
  std::mutex yielding_mutex_;
  int yielding_ = 0;
  std::mutex turn_;
  std::mutex remains_mutex_;
  std::vector<std::unique_ptr<MpiRemains>> remains_;
};

/// Owner of an MPI communicator whose errors are returned, or a view of the world.
class MpiCommunicator {
 public:
  /// Collective over MPI_COMM_WORLD.
  [[nodiscard]] static std::shared_ptr<MpiCommunicator> duplicate_world();
  /// Local: MPI_COMM_WORLD itself, from which communicators can be made; it keeps the program's error handler.
  [[nodiscard]] static std::shared_ptr<MpiCommunicator> world();
  /// Collective over `ranks` of `parent`, which may include others. See mpi_bootstrap_of() for `tag`.
  [[nodiscard]] static std::shared_ptr<MpiCommunicator> of(MpiCommunicator& parent, std::span<int const> ranks,
                                                           int tag);

  MpiCommunicator(std::shared_ptr<MpiSession> session, MPI_Comm handle);
  MpiCommunicator(MpiCommunicator const&) = delete;
  MpiCommunicator& operator=(MpiCommunicator const&) = delete;
  /// Frees it, unless this thread is unwinding: then messages may be on their way, and the job ends anyway.
  ~MpiCommunicator();

  [[nodiscard]] MPI_Comm handle() const noexcept { return handle_; }
  [[nodiscard]] MpiSession& session() const noexcept { return *session_; }
  [[nodiscard]] std::shared_ptr<MpiSession> const& shared_session() const noexcept { return session_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The destructor then leaves it to MPI_Finalize.
  void abandon() noexcept { abandoned_ = true; }

 private:
  std::shared_ptr<MpiSession> session_;  // first: outlives the communicator
  MPI_Comm handle_;
  int rank_ = 0;
  int size_ = 1;
  bool abandoned_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace weft
