#pragma once

#include <functional>

#include "common/cases.hpp"
#include "weft/reduce_op.hpp"

namespace weft::perf {

/// The linked MPI as the library to compare with. It is initialised single-threaded, which is its fastest
/// configuration. Create it before weft::launch(), which then finds MPI initialised; its destructor finalises MPI.
class MpiPeer {
 public:
  /// @throws Error{unsupported} without MPI in this build; Error{invalid_argument} when not started by mpirun.
  MpiPeer();
  ~MpiPeer();
  MpiPeer(MpiPeer const&) = delete;
  MpiPeer& operator=(MpiPeer const&) = delete;

  /// MPI's call that does operation `what` on `on`; empty for a type or reduction that MPI does not have.
  [[nodiscard]] std::function<void()> call(Case const& what, Operands const& on, ReduceOp op, Place place) const;
  [[nodiscard]] static std::function<void()> barrier();
};

}  // namespace weft::perf
