#include "core/bootstrap_mpi.hpp"

#include <unistd.h>

#include "core/mpi_members.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

#if WEFT_WITH_MPI

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "core/launcher.hpp"
#include "core/mpi_session.hpp"

namespace weft {
namespace {

/// One exchange under way. MPI cannot be made to forget it, so if it is given up its memory has to live on.
class Exchange final : public MpiRemains {
 public:
  Exchange(void const* mine, std::size_t bytes, int ranks)
      : mine_(static_cast<std::byte const*>(mine), static_cast<std::byte const*>(mine) + bytes),
        all_(bytes * static_cast<std::size_t>(ranks)) {}

  void start(MPI_Comm communicator) {
    auto const count = static_cast<int>(mine_.size());
    check_mpi(MPI_Iallgather(mine_.data(), count, MPI_BYTE, all_.data(), count, MPI_BYTE, communicator, &request_),
              "MPI_Iallgather");
  }
  [[nodiscard]] bool test() {
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }
  [[nodiscard]] std::vector<std::byte> const& all() const noexcept { return all_; }

  [[nodiscard]] bool settled() noexcept override {
    int done = 0;
    return MPI_Test(&request_, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
  }

 private:
  std::vector<std::byte> mine_;
  std::vector<std::byte> all_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap(std::shared_ptr<MpiCommunicator> communicator, std::chrono::milliseconds timeout)
      : communicator_(std::move(communicator)), timeout_(timeout) {
    auto members = std::make_shared<MpiMembers>();
    members->parent = communicator_;
    members->ranks.resize(static_cast<std::size_t>(size()));
    std::iota(members->ranks.begin(), members->ranks.end(), 0);
    members_ = std::move(members);
  }

  [[nodiscard]] int rank() const noexcept override { return communicator_->rank(); }
  [[nodiscard]] int size() const noexcept override { return communicator_->size(); }
  [[nodiscard]] std::string name() const override { return "mpi"; }
  [[nodiscard]] std::shared_ptr<MpiMembers const> mpi() const override { return members_; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    auto const bytes = static_cast<unsigned long long>(mine.size());
    std::vector<unsigned long long> sizes(static_cast<std::size_t>(size()));
    gather(&bytes, sizes.data(), sizeof bytes);
    check_sizes(sizes, mine.size());
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size()));
    gather(mine.data(), all.data(), mine.size());
    return all;
  }

 private:
  void check_sizes(std::vector<unsigned long long> const& sizes, std::size_t mine) const {
    auto const other = std::find_if(sizes.begin(), sizes.end(), [mine](auto bytes) { return bytes != mine; });
    if (other != sizes.end()) {
      throw Error(ErrorCode::mismatch, fmt::format("start-up exchange: rank {} passed {} bytes, rank {} passed {}",
                                                   rank(), mine, other - sizes.begin(), *other));
    }
    if (mine > INT_MAX) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("start-up exchange: {} bytes exceed what one MPI call moves", mine));
    }
  }

  void gather(void const* mine, void* all, std::size_t bytes) {
    if (failure_) throw Error(*failure_);
    auto exchange = std::make_unique<Exchange>(mine, bytes, size());
    try {
      run(*exchange);
    } catch (Error const& error) {
      failure_ = error;  // the others' next exchange would be matched with the one this rank has given up
      communicator_->abandon();
      communicator_->session().keep(std::move(exchange));
      throw;
    }
    if (bytes > 0) std::memcpy(all, exchange->all().data(), exchange->all().size());
  }

  /// Waits for the exchange. It sleeps between tests, so that a late peer costs no core, and gives up at the timeout; a
  /// blocking call could do neither.
  void run(Exchange& exchange) const {
    auto const deadline = std::chrono::steady_clock::now() + timeout_;
    auto& session = communicator_->session();
    {
      auto const turn = session.enter();
      exchange.start(communicator_->handle());
    }
    for (std::chrono::microseconds pause(1);; pause = std::min(pause * 2, std::chrono::microseconds(1000))) {
      {
        auto const turn = session.enter();
        if (exchange.test()) return;
      }
      if (std::chrono::steady_clock::now() >= deadline) throw_timeout();
      std::this_thread::sleep_for(pause);
    }
  }

  [[noreturn]] void throw_timeout() const {
    throw Error(ErrorCode::timeout,
                fmt::format("not every rank joined the start-up exchange within {} ms (seen by rank {} of {}); "
                            "WEFT_TIMEOUT sets the limit",
                            timeout_.count(), rank(), size()));
  }

  std::shared_ptr<MpiCommunicator> communicator_;
  std::shared_ptr<MpiMembers const> members_;
  std::chrono::milliseconds timeout_;
  std::optional<Error> failure_;  // failure of an exchange: all later ones fail, too
};

}  // namespace

std::shared_ptr<Bootstrap> mpi_bootstrap(Config const& config) {
  config.check();
  auto world = MpiCommunicator::duplicate_world();
  check_launcher(world->size(), MpiSession::library());
  return std::make_shared<MpiBootstrap>(std::move(world), config.timeout);
}

std::shared_ptr<Bootstrap> mpi_bootstrap_of(std::shared_ptr<MpiMembers const> const& members, int tag,
                                            Config const& config) {
  return std::make_shared<MpiBootstrap>(MpiCommunicator::of(*members->parent, members->ranks, tag), config.timeout);
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

std::shared_ptr<Bootstrap> mpi_bootstrap_of(std::shared_ptr<MpiMembers const> const& /*members*/, int /*tag*/,
                                            Config const& config) {
  return mpi_bootstrap(config);
}

void abort_mpi_job(int code) noexcept {
  _exit(code);
}

}  // namespace weft

#endif
