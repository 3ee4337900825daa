#pragma once

#include <functional>

#include "common/cases.hpp"
#include "weft/reduce_op.hpp"

namespace weft::perf {

/// The linked MPI as the library to compare with, initialised as its best configuration would be: single-threaded.
/// Create it before weft::launch(), which then finds MPI initialised; its destructor finalises.
class MpiPeer {
 public:
  /// @throws Error{unsupported} without MPI in this build; Error{invalid_argument} when not started by mpirun.
  MpiPeer();
  ~MpiPeer();
  MpiPeer(MpiPeer const&) = delete;
  MpiPeer& operator=(MpiPeer const&) = delete;

  /// The call on `on` that does what `what` does. @throws Error{unsupported} for a type or reduction MPI has no name
  /// for.
  [[nodiscard]] std::function<void()> call(Case const& what, Operands const& on, ReduceOp op, Place place) const;
  [[nodiscard]] static std::function<void()> barrier();
};

}  // namespace weft::perf
