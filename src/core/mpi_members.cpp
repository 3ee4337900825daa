#include "core/mpi_members.hpp"

#include "weft/error.hpp"

#if WEFT_WITH_MPI

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/launcher.hpp"
#include "core/mpi_session.hpp"

namespace weft {
namespace {

constexpr int kNone = -1;

/// This process's rank in MPI_COMM_WORLD as far as it is known without starting MPI.
int expected_rank() {
  int initialised = 0;
  check_mpi(MPI_Initialized(&initialised), "MPI_Initialized");
  if (initialised == 0) return rank_from_mpi_launcher().value_or(kNone);
  int rank = kNone;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

std::vector<int> gather(Bootstrap& bootstrap, int mine) {
  auto const bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<int> all(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

void check_distinct(std::vector<int> const& ranks) {
  for (std::size_t second = 1; second < ranks.size(); ++second) {
    for (std::size_t first = 0; first < second; ++first) {
      if (ranks[first] != ranks[second]) continue;
      throw Error(
          ErrorCode::unsupported,
          fmt::format("ranks {} and {} are both MPI's rank {}: a process of one MPI job has to be each rank; do "
                      "not fork or spawn them, nor join several jobs, but start all with one mpirun or srun",
                      first, second, ranks[first]));
    }
  }
}

/// Whether MPI's launcher has started the ranks: all of them, or none. Refuses a mixture.
bool are_started(std::vector<int> const& expected) {
  auto const without = std::find(expected.begin(), expected.end(), kNone);
  if (without == expected.end()) return true;
  auto const with = std::find_if(expected.begin(), expected.end(), [](int rank) { return rank != kNone; });
  if (with == expected.end()) return false;
  throw Error(ErrorCode::unsupported, fmt::format("MPI has started rank {}, but not rank {}: start every rank with "
                                                  "one mpirun or srun",
                                                  with - expected.begin(), without - expected.begin()));
}

}  // namespace

std::shared_ptr<MpiMembers const> find_mpi_members(Bootstrap& bootstrap) {
  // First what can be known without MPI: processes that it did not start must not start it.
  auto const expected = gather(bootstrap, expected_rank());
  if (!are_started(expected)) return nullptr;
  check_distinct(expected);
  auto members = std::make_shared<MpiMembers>();
  members->parent = MpiCommunicator::world();
  check_launcher(members->parent->size(), MpiSession::library());
  members->ranks = gather(bootstrap, members->parent->rank());
  check_distinct(members->ranks);
  return members;
}

}  // namespace weft

#else

namespace weft {

std::shared_ptr<MpiMembers const> find_mpi_members(Bootstrap& /*bootstrap*/) {
  throw Error(ErrorCode::unsupported,
              "Weft was built without MPI: build it again where an MPI library is installed, with -DWEFT_WITH_MPI=ON");
}

}  // namespace weft

#endif
