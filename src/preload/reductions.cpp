// MPI_Allreduce, MPI_Reduce, MPI_Reduce_scatter(_block), MPI_Scan, MPI_Exscan. MPI makes count, type and operation
// equal on all ranks, and predefined operations take predefined types only.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "preload/intercept.hpp"

namespace weft::preload {
namespace {

/// A reduction's arguments in Weft's terms, once check() has found them good.
class Arguments {
 public:
  Outcome check(Library const& library, int count, MPI_Datatype type, MPI_Op op) {
    if (count < 0 || type == MPI_DATATYPE_NULL || op == MPI_OP_NULL) return Outcome::invalid;
    if (count == 0) return Outcome::nothing_to_move;
    auto const reduction = library.types().reduction(type, op);
    if (!reduction) return Outcome::unknown_operation;
    dtype_ = reduction->dtype;
    op_ = reduction->op;
    return Outcome::served;
  }
  [[nodiscard]] ReduceOp op() const noexcept { return op_; }
  [[nodiscard]] DataType dtype() const noexcept { return dtype_; }
  [[nodiscard]] ConstBufferView from(void const* data, std::size_t count) const { return {data, count, dtype_}; }
  [[nodiscard]] BufferView to(void* data, std::size_t count) const { return {data, count, dtype_}; }

 private:
  DataType dtype_ = DataType::u8;
  ReduceOp op_ = ReduceOp::sum;
};

bool is_buffer(void const* address) {
  return address != nullptr && address != MPI_IN_PLACE;
}

bool is_logical(ReduceOp op) {
  return op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor;
}

/// For reduce_scatter in place: MPI wants the result at the start of the buffer that it replaces. There lies what other
/// ranks still read, or Weft would call it an overlap; so the result is copied there at the end.
template <typename Body>
void into_start_of(void* buffer, std::size_t bytes, Body&& body) {
  auto const result = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(bytes, 1));
  body(result.get());
  if (bytes > 0) std::memcpy(buffer, result.get(), bytes);
}

template <typename Pass>
int scan(Function function, void const* send, void* recv, int count, MPI_Datatype type, MPI_Op op,
         MPI_Comm communicator, Pass&& pass) {
  Arguments arguments;
  return intercept(
      function, communicator,
      [&](Library const& library) {
        if (count > 0 && send == nullptr) return Outcome::invalid;
        auto const outcome = arguments.check(library, count, type, op);
        // With one contribution MPI libraries hand on its value as it is, while Weft's truth is 0 or 1.
        if (outcome == Outcome::served && is_logical(arguments.op())) return Outcome::unknown_operation;
        return outcome;
      },
      [&](Library const&, Communicator& ranks) {
        // Rank 0 of an exscan receives nothing and need not say where: Weft is given what it sends, and leaves that
        // alone.
        auto const gets = function == Function::scan || ranks.rank() > 0;
        if ((gets || send == MPI_IN_PLACE) && !is_buffer(recv)) return Outcome::invalid;
        auto const elements = static_cast<std::size_t>(count);
        auto const* const own = send == MPI_IN_PLACE ? recv : send;
        auto const from = arguments.from(own, elements);
        auto const to = arguments.to(gets ? recv : const_cast<void*>(own), elements);
        function == Function::scan ? ranks.scan(from, to, arguments.op()) : ranks.exscan(from, to, arguments.op());
        return Outcome::served;
      },
      pass);
}

}  // namespace
}  // namespace weft::preload

using namespace weft::preload;
using weft::Communicator;

extern "C" {

int MPI_Allreduce(void const* send, void* recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm communicator) {
  Arguments arguments;
  return intercept(
      Function::allreduce, communicator,
      [&](Library const& library) {
        if (count > 0 && (send == nullptr || !is_buffer(recv))) return Outcome::invalid;
        return arguments.check(library, count, type, op);
      },
      [&](Library const&, Communicator& ranks) {
        auto const elements = static_cast<std::size_t>(count);
        ranks.all_reduce(arguments.from(send == MPI_IN_PLACE ? recv : send, elements), arguments.to(recv, elements),
                         arguments.op());
        return Outcome::served;
      },
      [&] { return PMPI_Allreduce(send, recv, count, type, op, communicator); });
}

int MPI_Reduce(void const* send, void* recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm communicator) {
  Arguments arguments;
  return intercept(
      Function::reduce, communicator, [&](Library const& library) { return arguments.check(library, count, type, op); },
      [&](Library const&, Communicator& ranks) {
        if (root < 0 || root >= ranks.size() || send == nullptr) return Outcome::invalid;
        auto const is_root = ranks.rank() == root;
        if (is_root ? !is_buffer(recv) : send == MPI_IN_PLACE) return Outcome::invalid;
        auto const elements = static_cast<std::size_t>(count);
        ranks.reduce(arguments.from(send == MPI_IN_PLACE ? recv : send, elements),
                     arguments.to(is_root ? recv : nullptr, is_root ? elements : 0), arguments.op(), root);
        return Outcome::served;
      },
      [&] { return PMPI_Reduce(send, recv, count, type, op, root, communicator); });
}

int MPI_Reduce_scatter_block(void const* send, void* recv, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm communicator) {
  Arguments arguments;
  return intercept(
      Function::reduce_scatter_block, communicator,
      [&](Library const& library) {
        if (count > 0 && (send == nullptr || !is_buffer(recv))) return Outcome::invalid;
        return arguments.check(library, count, type, op);
      },
      [&](Library const&, Communicator& ranks) {
        auto const elements = static_cast<std::size_t>(count);
        auto const all = elements * static_cast<std::size_t>(ranks.size());
        auto const reduce = [&](void const* from, void* to) {
          ranks.reduce_scatter(arguments.from(from, all), arguments.to(to, elements), arguments.op());
        };
        if (send == MPI_IN_PLACE)
          into_start_of(recv, elements * size_of(arguments.dtype()), [&](void* to) { reduce(recv, to); });
        else
          reduce(send, recv);
        return Outcome::served;
      },
      [&] { return PMPI_Reduce_scatter_block(send, recv, count, type, op, communicator); });
}

int MPI_Reduce_scatter(void const* send, void* recv, int const counts[], MPI_Datatype type, MPI_Op op,
                       MPI_Comm communicator) {
  Arguments arguments;
  return intercept(
      Function::reduce_scatter, communicator,
      [&](Library const& library) {
        return counts == nullptr ? Outcome::invalid : arguments.check(library, 1, type, op);
      },
      [&](Library const&, Communicator& ranks) {
        if (std::any_of(counts, counts + ranks.size(), [](int count) { return count < 0; })) return Outcome::invalid;
        std::vector<std::size_t> const parts(counts, counts + ranks.size());
        auto const all = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
        if (all == 0) return Outcome::nothing_to_move;
        auto const own = parts[static_cast<std::size_t>(ranks.rank())];
        if (send == nullptr || recv == MPI_IN_PLACE || (recv == nullptr && own > 0)) return Outcome::invalid;
        auto const reduce = [&](void const* from, void* to) {
          ranks.reduce_scatter(arguments.from(from, all), arguments.to(to, own), weft::Parts{parts}, arguments.op());
        };
        if (send == MPI_IN_PLACE)
          into_start_of(recv, own * size_of(arguments.dtype()), [&](void* to) { reduce(recv, to); });
        else
          reduce(send, recv);
        return Outcome::served;
      },
      [&] { return PMPI_Reduce_scatter(send, recv, counts, type, op, communicator); });
}

int MPI_Scan(void const* send, void* recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm communicator) {
  return scan(Function::scan, send, recv, count, type, op, communicator,
              [&] { return PMPI_Scan(send, recv, count, type, op, communicator); });
}

int MPI_Exscan(void const* send, void* recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm communicator) {
  return scan(Function::exscan, send, recv, count, type, op, communicator,
              [&] { return PMPI_Exscan(send, recv, count, type, op, communicator); });
}

}  // extern "C"
