// all_reduce of sparse COO tensors: every rank gathers all entries and adds those of equal indices.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "run.hpp"

namespace weft::torch_backend {
namespace {

constexpr Operation kSparseAllReduce{c10d::OpType::_ALLREDUCE_SPARSE, "sparse_all_reduce", "weft:sparse_all_reduce"};

/// Gathers the rows of all ranks; rank r has `rows[r]` of them.
at::Tensor gather_rows(Communicator& communicator, CollectiveOptions const& options, at::Tensor const& mine,
                       std::vector<std::size_t> const& rows, Place const& place) {
  auto sizes = mine.sizes().vec();
  std::size_t row = 1;
  for (std::size_t d = 1; d < sizes.size(); ++d) row *= static_cast<std::size_t>(sizes[d]);
  std::vector<std::size_t> counts;
  sizes[0] = 0;
  for (auto const one : rows) {
    counts.push_back(one * row);
    sizes[0] += static_cast<std::int64_t>(one);
  }
  auto const all = at::empty(sizes, mine.options());
  communicator.all_gather(contiguous_view(mine, place, "values"), contiguous_view(all, place, "values"), Parts{counts},
                          options);
  return all;
}

}  // namespace

/// Runs on the calling thread even if torch does not wait, because what to gather is only known after a first exchange.
ProcessGroupWeft::WorkHandle ProcessGroupWeft::allreduce_sparse(Tensors& tensors, c10d::AllreduceOptions const& opts) {
  auto const here = place(kSparseAllReduce);
  TORCH_CHECK_VALUE(tensors.size() == 1, here, ": expects one tensor, not ", tensors.size());
  TORCH_CHECK_VALUE(tensors[0].layout() == at::kSparse && tensors[0].device().is_cpu(), here,
                    ": expects a sparse COO tensor on the CPU, not one of layout ", tensors[0].layout(), " on ",
                    tensors[0].device());
  TORCH_CHECK_VALUE(opts.reduceOp.op_ == c10d::ReduceOp::SUM, here, ": only SUM has a meaning for sparse tensors");
  auto const mine = tensors[0].coalesce();
  at::Tensor sum;
  auto work = run(
      kSparseAllReduce, {false, opts.timeout}, tensors, tensors,
      [&](Communicator& communicator, CollectiveOptions const& options) {
        TORCH_CHECK(!coalesced_, here, ": not between startCoalescing and endCoalescing");
        std::vector<std::int64_t> shape = mine.sizes().vec();
        shape.push_back(mine.sparse_dim());
        std::vector<std::int64_t> least = shape;
        communicator.all_reduce(std::span<std::int64_t const>(shape), std::span(least), ReduceOp::min, options);
        std::uint64_t const entries = static_cast<std::uint64_t>(mine._nnz());
        std::vector<std::uint64_t> all(static_cast<std::size_t>(getSize()));
        communicator.all_gather(std::span(&entries, 1), std::span(all), options);
        std::vector<std::uint8_t> const differs{static_cast<std::uint8_t>(shape != least)};
        std::vector<std::uint8_t> any{0};
        communicator.all_reduce(std::span<std::uint8_t const>(differs), std::span(any), ReduceOp::max, options);
        TORCH_CHECK_VALUE(any[0] == 0, here,
                          ": the tensors' shapes or numbers of sparse dimensions differ between ranks; this rank has ",
                          mine.sizes(), " with ", mine.sparse_dim(), " sparse dimensions");
        std::vector<std::size_t> const rows(all.begin(), all.end());
        auto const indices =
            gather_rows(communicator, options, mine._indices().t().contiguous(), rows, here).t().contiguous();
        auto const values = gather_rows(communicator, options, mine._values().contiguous(), rows, here);
        sum = at::_sparse_coo_tensor_unsafe(indices, values, mine.sizes(), mine.options()).coalesce();
        return Work{};
      },
      [&] {
        at::AutoDispatchBelowADInplaceOrView const below_autograd;  // as dense results are written
        tensors[0].copy_(sum);
      });
  if (work || !opts.asyncOp) return work;
  auto done = make_work(kSparseAllReduce, tensors, tensors);
  done->finish_inline();
  return done;
}

}  // namespace weft::torch_backend
