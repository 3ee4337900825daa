#pragma once

#include <memory>
#include <span>
#include <vector>

#include "weft/bootstrap.hpp"

namespace weft {

class MpiCommunicator;  // core/mpi_session.hpp; not defined when built without MPI

/// The MPI processes behind a group of ranks: rank r is rank `ranks[r]` of `parent`.
struct MpiMembers {
  std::shared_ptr<MpiCommunicator> parent;
  std::vector<int> ranks;

  /// The members that some of the ranks are, in the order given.
  [[nodiscard]] std::shared_ptr<MpiMembers const> subset(std::span<int const> some) const {
    auto part = std::make_shared<MpiMembers>();
    part->parent = parent;
    for (int const rank : some) part->ranks.push_back(ranks[static_cast<std::size_t>(rank)]);
    return part;
  }
};

/// Collective over `members`: a bootstrap of them alone, with an MPI communicator of its own. `tag` (0 to 32767) tells
/// apart bootstraps that are made at the same time. @throws Error{unsupported} when Weft was built without MPI.
[[nodiscard]] std::shared_ptr<Bootstrap> mpi_bootstrap_of(std::shared_ptr<MpiMembers const> const& members, int tag,
                                                          Config const& config);

}  // namespace weft
