#include "core/launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "weft/error.hpp"

namespace weft {
namespace {

std::optional<int> number_in(char const* name) {
  char const* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string_view const text(value);
  int number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// How many processes a launcher started, according to one of its variables.
struct Claim {
  char const* variable;
  int processes;
};

std::optional<Claim> claim_of(char const* variable) {
  auto const processes = number_in(variable);
  if (!processes) return std::nullopt;
  return Claim{variable, *processes};
}

/// PMIx's variables tell every process its rank; how many ranks there are only its library knows, and Slurm.
std::optional<Claim> pmix_claim() {
  auto const rank = number_in("PMIX_RANK");
  if (!rank) return std::nullopt;
  if (auto const tasks = claim_of("SLURM_STEP_NUM_TASKS")) return tasks;
  return *rank > 0 ? std::optional(Claim{"PMIX_RANK", *rank + 1}) : std::nullopt;
}

/// Whether torchrun has started this process, wherever torchrun itself runs. Only torchrun's own variable shows it:
/// RANK and WORLD_SIZE are also set by scripts under mpirun.
bool is_torchruns() {
  return std::getenv("TORCHELASTIC_RUN_ID") != nullptr && started_by_torchrun();
}

}  // namespace

bool started_by_mpi() {
  if (is_torchruns()) return false;
  // Set by Open MPI's mpirun; by MPICH's and Intel's mpiexec and srun's PMI2; by PMIx launchers.
  constexpr std::array kVariables{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
  return std::any_of(kVariables.begin(), kVariables.end(), [](char const* name) { return std::getenv(name); });
}

bool started_by_torchrun() {
  return std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr;
}

bool started_by_launcher() {
  return started_by_mpi() || started_by_torchrun();
}

std::optional<int> rank_from_mpi_launcher() {
  if (is_torchruns()) return std::nullopt;
  for (char const* const variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (auto const rank = number_in(variable)) return rank;
  }
  return std::nullopt;
}

void check_launcher(int size, std::string const& library) {
  if (size != 1) return;
  std::array const claims{claim_of("OMPI_COMM_WORLD_SIZE"), claim_of("PMI_SIZE"), pmix_claim()};
  // A job inside another's allocation inherits the outer launcher's variables, so one that agrees is enough.
  if (std::any_of(claims.begin(), claims.end(), [](auto const& claim) { return claim && claim->processes == 1; })) {
    return;
  }
  auto const several =
      std::find_if(claims.begin(), claims.end(), [](auto const& claim) { return claim && claim->processes > 1; });
  if (several == claims.end()) return;
  char const* const variable = (*several)->variable;
  throw Error(ErrorCode::unsupported,
              fmt::format("{}={} says that this process is one of several, but to {}, which Weft was built with, it is "
                          "alone: start it with the mpirun of that MPI, or build Weft with the MPI of this launcher",
                          variable, std::getenv(variable), library));
}

}  // namespace weft
