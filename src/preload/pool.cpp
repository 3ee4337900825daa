#include "preload/pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>

#include "core/host_identity.hpp"
#include "core/log.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft::preload {
namespace {

/// Lets the ranks of an MPI communicator make a team, by calls that are not intercepted. MPI gives the blocking
/// collectives of one communicator an order, so no communicator of our own is needed. Failures are handled as the
/// communicator says.
class PmpiBootstrap final : public Bootstrap {
 public:
  explicit PmpiBootstrap(MPI_Comm communicator) : communicator_(communicator) {
    PMPI_Comm_rank(communicator, &rank_);
    PMPI_Comm_size(communicator, &size_);
  }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::string name() const override { return "mpi"; }
  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size_));
    auto const bytes = static_cast<int>(mine.size());
    if (PMPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, communicator_) != MPI_SUCCESS)
      throw Error(ErrorCode::system, "MPI_Allgather failed while ranks made a communicator");
    return all;
  }

 private:
  MPI_Comm communicator_;
  int rank_ = 0;
  int size_ = 1;
};

std::uint64_t random_id() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

/// Equal for processes that can share memory. WEFT_HOST_ID stands in for other hosts.
std::uint64_t host_fingerprint() {
  Config config;
  if (char const* const name = std::getenv("WEFT_HOST_ID")) config.host_id = name;
  return std::hash<std::string>{}(host_identity(config));
}

}  // namespace

/// What a rank tells the others before they decide.
struct Pool::Offer {
  std::uint64_t host = 0;
  std::uint64_t fresh = 0;  ///< rank 0's: the id of a team that has yet to be made
  std::uint32_t able = 0;
  std::uint32_t room = 0;  ///< may make a new team
  std::array<std::uint64_t, 13> free{};

  [[nodiscard]] bool holds(std::uint64_t id) const { return std::find(free.begin(), free.end(), id) != free.end(); }
};

/// Takes what is offered out of the free teams, so that no other thread offers it too.
Pool::Offer Pool::make_offer(int rank, int size, std::vector<std::unique_ptr<Team>>& offered) {
  Offer offer;
  offer.host = host_fingerprint();
  offer.fresh = random_id() | 1U;  // never 0, which stands for none
  offer.able = config_ ? 1 : 0;
  std::lock_guard const lock(mutex_);
  offer.room = teams_ < kMostTeams || !free_.empty() ? 1 : 0;
  for (auto& team : free_) {
    if (offered.size() == offer.free.size()) break;
    if (team->ranks.rank() != rank || team->ranks.size() != size) continue;
    offer.free[offered.size()] = team->id;
    offered.push_back(std::move(team));
  }
  std::erase(free_, nullptr);
  return offer;
}

std::unique_ptr<Team> Pool::acquire(MPI_Comm communicator, Outcome& why) {
  int rank = 0;
  int size = 1;
  PMPI_Comm_rank(communicator, &rank);
  PMPI_Comm_size(communicator, &size);
  std::vector<std::unique_ptr<Team>> offered;
  auto const mine = make_offer(rank, size, offered);
  std::vector<Offer> all(static_cast<std::size_t>(size));
  auto const bytes = static_cast<int>(sizeof(Offer));
  auto const told = PMPI_Allgather(&mine, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, communicator) == MPI_SUCCESS;

  auto const every = [&](auto const& holds) { return std::all_of(all.begin(), all.end(), holds); };
  std::unique_ptr<Team> chosen;
  if (told) {
    for (auto const id : all.front().free) {
      if (id == 0 || !every([id](Offer const& offer) { return offer.holds(id); })) continue;
      auto const team = std::find_if(offered.begin(), offered.end(), [id](auto const& one) { return one->id == id; });
      chosen = std::move(*team);
      offered.erase(team);
      break;
    }
  }
  for (auto& team : offered) release(std::move(team));
  if (chosen) return chosen;

  why = Outcome::not_started;
  if (!told || !every([](Offer const& offer) { return offer.able != 0; })) return nullptr;
  why = Outcome::several_hosts;
  if (!every([&](Offer const& offer) { return offer.host == mine.host; })) return nullptr;
  why = Outcome::too_many_communicators;
  if (!every([](Offer const& offer) { return offer.room != 0; })) return nullptr;
  why = Outcome::not_started;
  return create(communicator, all.front().fresh);
}

std::unique_ptr<Team> Pool::create(MPI_Comm communicator, std::uint64_t id) {
  make_room();
  CommunicatorOptions options{.config = config_, .progress = progress_};
  // Ranks spin as long as MPI programs are used to: a rank that fell asleep is late for the next call.
  options.spin_alone = std::chrono::milliseconds(10);
  options.config->backend = BackendKind::shm;  // whatever back end the program's own communicators are to use
  {
    std::lock_guard const lock(mutex_);
    // The first few teams, which do most of the work, get rings sized by the caches; rank 0's choice counts.
    constexpr std::size_t kLargeTeams = 8;
    constexpr std::size_t kSmallRing = std::size_t{512} << 10U;
    if (teams_ > kLargeTeams && !config_->staging_bytes) options.config->staging_bytes = kSmallRing;
  }
  std::unique_ptr<Team> team;
  try {
    auto ranks = Communicator::create(std::make_shared<PmpiBootstrap>(communicator), options);
    team = std::make_unique<Team>(Team{std::move(ranks), id});
  } catch (std::exception const& error) {
    log(LogLevel::warn, fmt::format("MPI keeps this communicator's collectives: {}", error.what()));
  }
  int made = team ? 1 : 0;
  if (PMPI_Allreduce(MPI_IN_PLACE, &made, 1, MPI_INT, MPI_MIN, communicator) != MPI_SUCCESS || made == 0) team.reset();
  std::lock_guard const lock(mutex_);
  if (team)
    team->order = made_++;
  else
    --teams_;
  return team;
}

/// Counts a team that is about to be made; where there are too many, the oldest free one goes.
void Pool::make_room() noexcept {
  std::unique_ptr<Team> gone;
  std::lock_guard const lock(mutex_);
  if (teams_ >= kMostTeams && !free_.empty()) {
    gone = std::move(free_.front());
    free_.erase(free_.begin());
    --teams_;
  }
  ++teams_;
}

void Pool::release(std::unique_ptr<Team> team) noexcept {
  if (!team) return;
  std::lock_guard const lock(mutex_);
  if (team->broken) {
    --teams_;
    return;
  }
  auto const after =
      std::find_if(free_.begin(), free_.end(), [&](auto const& one) { return one->order > team->order; });
  free_.insert(after, std::move(team));
}

void Pool::clear() noexcept {
  std::lock_guard const lock(mutex_);
  teams_ -= free_.size();
  free_.clear();
}

}  // namespace weft::preload
