#include "core/bootstrap_mpi.hpp"

#include <unistd.h>

#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

#if WEFT_WITH_MPI

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <exception>
#include <thread>

namespace weft {
namespace {

void check(int status, char const* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(ErrorCode::system,
              fmt::format("{} failed: {}", call, std::string(text, static_cast<std::size_t>(length))));
}

/// Initialises MPI unless the program has; then also finalises it, for which every rank must come. So it does not after
/// a failure: an unwinding rank leaves MPI as it is, exits, and mpirun ends the others.
class MpiSession {
 public:
  MpiSession() {
    int initialised = 0;
    int finalised = 0;
    check(MPI_Finalized(&finalised), "MPI_Finalized");
    if (finalised != 0) {
      throw Error(ErrorCode::unsupported, "MPI was finalised already and cannot start again: keep the first bootstrap");
    }
    check(MPI_Initialized(&initialised), "MPI_Initialized");
    if (initialised != 0) return;
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owner_ = true;
  }
  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;
  ~MpiSession() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (owner_ && finalised == 0 && std::uncaught_exceptions() == exceptions_) MPI_Finalize();
  }

 private:
  bool owner_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(std::chrono::milliseconds timeout) : timeout_(timeout) {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
  }
  ~MpiBootstrap() override {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised == 0 && std::uncaught_exceptions() == exceptions_) MPI_Comm_free(&communicator_);
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::string name() const override { return "mpi"; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    auto const bytes = static_cast<unsigned long long>(mine.size());
    std::vector<unsigned long long> sizes(static_cast<std::size_t>(size_));
    gather(&bytes, sizes.data(), sizeof bytes);
    check_sizes(sizes, mine.size());
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size_));
    gather(mine.data(), all.data(), mine.size());
    return all;
  }

 private:
  void check_sizes(std::vector<unsigned long long> const& sizes, std::size_t mine) const {
    auto const other = std::find_if(sizes.begin(), sizes.end(), [mine](auto bytes) { return bytes != mine; });
    if (other != sizes.end()) {
      throw Error(ErrorCode::mismatch, fmt::format("start-up exchange: rank {} passed {} bytes, rank {} passed {}",
                                                   rank_, mine, other - sizes.begin(), *other));
    }
    if (mine > INT_MAX) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("start-up exchange: {} bytes exceed what one MPI call moves", mine));
    }
  }

  /// Sleeps between tests, so that a late peer costs no core, and gives up at the timeout, which a blocking call could
  /// not.
  void gather(void const* mine, void* all, std::size_t bytes) const {
    auto const deadline = std::chrono::steady_clock::now() + timeout_;
    auto const count = static_cast<int>(bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, communicator_, &request), "MPI_Iallgather");
    std::chrono::microseconds pause(1);
    for (int done = 0; done == 0;) {
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) break;
      if (std::chrono::steady_clock::now() >= deadline) throw_timeout();
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }

  [[noreturn]] void throw_timeout() const {
    throw Error(ErrorCode::timeout,
                fmt::format("not every rank joined the start-up exchange within {} ms (seen by rank {} of {}); "
                            "WEFT_TIMEOUT sets the limit",
                            timeout_.count(), rank_, size_));
  }

  MpiSession session_;  // first: outlives the communicator
  std::chrono::milliseconds timeout_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

std::shared_ptr<Bootstrap> mpi_bootstrap(Config const& config) {
  return std::make_shared<MpiBootstrap>(config.timeout);
}

void abort_mpi_job(int code) noexcept {
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

}  // namespace weft

#else

namespace weft {

std::shared_ptr<Bootstrap> mpi_bootstrap(Config const& /*config*/) {
  throw Error(ErrorCode::unsupported,
              "this process was started by mpirun or srun, but Weft was built without MPI: configure with "
              "-DWEFT_WITH_MPI=ON, or start local ranks without mpirun");
}

void abort_mpi_job(int code) noexcept {
  _exit(code);
}

}  // namespace weft

#endif
