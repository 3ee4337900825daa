#pragma once

#include <mpi.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft::preload {

/// How elements of an MPI type lie in memory.
struct Layout {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::size_t bytes = 0;      ///< bytes of data in one element
  std::ptrdiff_t extent = 0;  ///< from one element to the next
  bool dense = false;         ///< elements are plain bytes without gaps, from the buffer's address on
};

struct KnownReduction {
  DataType dtype;
  ReduceOp op;
};

/// What Weft knows of MPI's predefined types and operations.
class TypeTable {
 public:
  TypeTable();

  /// The same reduction in Weft's terms; empty where Weft does not know the type or the operation, or MPI forbids the
  /// pair.
  [[nodiscard]] std::optional<KnownReduction> reduction(MPI_Datatype type, MPI_Op op) const noexcept;

  /// The layout of a type; empty if it cannot be used for communication. `scratch`: a communicator that returns errors.
  [[nodiscard]] std::optional<Layout> layout(MPI_Datatype type, MPI_Comm scratch) const;

 private:
  /// MPI's groups of types, by which it says which operations are allowed on a type.
  enum class Kind { integer, floating, complex, logical, byte, address, other };
  struct Entry {
    MPI_Datatype type;
    Layout layout;
    std::optional<DataType> dtype;
    Kind kind;
  };
  struct Operation {
    MPI_Op handle;
    ReduceOp op;
  };
  void add(MPI_Datatype type, Kind kind);
  [[nodiscard]] Entry const* find(MPI_Datatype type) const noexcept;
  [[nodiscard]] static bool allows(Kind kind, ReduceOp op) noexcept;

  std::vector<Entry> entries_;
  std::vector<Operation> operations_;
};

}  // namespace weft::preload
