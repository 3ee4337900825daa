// Maps each of torch's collectives to Weft's.
#include <algorithm>
#include <functional>
#include <numeric>

#include <c10/util/SmallVector.h>

#include "lists.hpp"
#include "run.hpp"

namespace weft::torch_backend {
namespace {

using c10d::OpType;

constexpr Operation kBroadcast{OpType::BROADCAST, "broadcast", "weft:broadcast"};
constexpr Operation kAllReduce{OpType::ALLREDUCE, "all_reduce", "weft:all_reduce"};
constexpr Operation kAllReduceCoalesced{OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", "weft:all_reduce"};
constexpr Operation kReduce{OpType::REDUCE, "reduce", "weft:reduce"};
constexpr Operation kAllGather{OpType::ALLGATHER, "all_gather", "weft:all_gather"};
constexpr Operation kAllGatherBase{OpType::_ALLGATHER_BASE, "all_gather_into_tensor", "weft:_all_gather_base"};
constexpr Operation kAllGatherCoalesced{OpType::ALLGATHER_COALESCED, "all_gather_coalesced", "weft:all_gather"};
constexpr Operation kGather{OpType::GATHER, "gather", "weft:gather"};
constexpr Operation kScatter{OpType::SCATTER, "scatter", "weft:scatter"};
constexpr Operation kReduceScatter{OpType::REDUCE_SCATTER, "reduce_scatter", "weft:reduce_scatter"};
constexpr Operation kReduceScatterBase{OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor",
                                       "weft:_reduce_scatter_base"};
constexpr Operation kAllToAll{OpType::ALLTOALL, "all_to_all", "weft:all_to_all"};
constexpr Operation kAllToAllBase{OpType::ALLTOALL_BASE, "all_to_all_single", "weft:all_to_all"};
constexpr Operation kBarrier{OpType::BARRIER, "barrier", "weft:barrier"};

using Tensors = std::vector<at::Tensor>;

void check_one_per_rank(Tensors const& list, std::size_t ranks, Place const& place, char const* name) {
  TORCH_CHECK_VALUE(list.size() == ranks, place, ": the list of ", name, " tensors has ", list.size(),
                    " entries, needs one per rank: ", ranks);
}

void check_all_alike(Tensors const& list, at::Tensor const& pattern, Place const& place, char const* name) {
  for (auto const& tensor : list) check_alike(tensor, pattern, place, name);
}

/// Makes several calls as one: within the open group if torch is coalescing, else in a group of their own.
template <typename Body>
Work together(Communicator& communicator, bool grouped, CollectiveOptions const& options, Body&& body) {
  if (grouped) {
    body(options);
    return {};
  }
  Group group(communicator, options);
  body(CollectiveOptions{});
  return group.end();
}

/// The only list of a call that torch passes a list of lists.
Tensors const& only(std::vector<Tensors> const& lists, std::size_t ranks, Place const& place, char const* name) {
  TORCH_CHECK_VALUE(lists.size() == 1, place, ": expects one list of ", name, " tensors, not ", lists.size());
  check_one_per_rank(lists[0], ranks, place, name);
  return lists[0];
}

/// `input` in row-major order, as FlatList has it, and apart from where the list is received.
at::Tensor row_major(at::Tensor const& input, FlatList const& recv, int rank, Place const& place) {
  check_reachable(input, place, "input");
  auto const dense = input.contiguous();
  return apart(dense, view(dense, place, "input"), recv.view(), recv.offset(rank));
}

/// Checks a list with a tensor for every rank: this rank's must be like `mine`, which is passed besides the list; the
/// others may differ. @return whether all are alike, so that ranks have equal parts.
bool has_equal_parts(Tensors const& list, at::Tensor const& mine, int rank, Place const& place, char const* name) {
  for (auto const& tensor : list) check_same_type(tensor, mine, place);
  auto const& part = list[static_cast<std::size_t>(rank)];
  TORCH_CHECK_VALUE(part.sizes() == mine.sizes(), place, ": ", name, "[", rank, "], this rank's part, has shape ",
                    part.sizes(), " but the tensor beside the list ", mine.sizes(), "; make the two equal");
  return std::all_of(list.begin(), list.end(), [&](auto const& tensor) { return tensor.numel() == mine.numel(); });
}

/// The tensors of an all_gather_into_tensor or a reduce_scatter_tensor.
struct Pair {
  BufferView recv;
  BufferView send;
  at::Tensor source;  ///< what `send` shows: the input, or a copy where it overlaps the output

  Pair(at::Tensor const& output, at::Tensor const& input, int rank, Place const& place)
      : recv((check_same_type(output, input, place), contiguous_view(output, place, "output"))),
        send(contiguous_view(input, place, "input")),
        source(apart(input, send, recv, std::min(send.count, recv.count) * static_cast<std::size_t>(rank))) {
    send.data = source.data_ptr();
  }
};

/// Several such pairs, which are sent as one.
struct Pairs {
  std::vector<Pair> all;
  Tensors sources;

  Pairs(Tensors const& outputs, Tensors const& inputs, int rank, Place const& place) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), place, ": ", outputs.size(), " outputs but ", inputs.size(),
                      " inputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      sources.push_back(all.emplace_back(outputs[i], inputs[i], rank, place).source);
    }
  }
};

/// Tensors that each rank sends and receives as a whole, by the indices of their elements: ranks' strides may differ.
/// The tensors' own memory where that is in row-major order, else copies, which land() brings back.
class Wholes {
 public:
  Wholes(Tensors const& tensors, Place const& place) {
    for (auto const& tensor : tensors) {
      buffers_.push_back(view(tensor, place, "tensor"));
      if (C10_LIKELY(tensor.is_contiguous())) continue;
      copies_.emplace_back(Tensors{tensor}, place, "tensor").pack();
      buffers_.back() = copies_.back().view();
    }
  }

  [[nodiscard]] c10::SmallVector<BufferView, 1> const& buffers() const noexcept { return buffers_; }
  [[nodiscard]] bool are_copied() const noexcept { return !copies_.empty(); }
  [[nodiscard]] std::function<void()> landing() const {
    return [copies = copies_] {
      for (auto const& copy : copies) copy.unpack();
    };
  }

 private:
  c10::SmallVector<BufferView, 1> buffers_;
  std::vector<FlatList> copies_;
};

/// How a tensor is divided among ranks: along its first dimension, by `splits`, or equally without them.
struct Split {
  std::vector<std::size_t> counts;

  Split(at::Tensor const& tensor, std::vector<int64_t> const& splits, int ranks, Place const& place, char const* name) {
    auto const rows = tensor.dim() == 0 ? 0 : tensor.size(0);
    auto const row = rows == 0 ? 0 : tensor.numel() / rows;
    if (splits.empty()) {
      TORCH_CHECK_VALUE(rows % ranks == 0, place, ": ", name, " of shape ", tensor.sizes(),
                        " has a first dimension that ", ranks, " ranks cannot share equally; pass split sizes");
      counts.assign(static_cast<std::size_t>(ranks), static_cast<std::size_t>(rows / ranks * row));
      return;
    }
    TORCH_CHECK_VALUE(splits.size() == static_cast<std::size_t>(ranks), place, ": ", name, " has ", splits.size(),
                      " split sizes, needs one per rank: ", ranks);
    auto const sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    TORCH_CHECK_VALUE(sum == rows, place, ": the split sizes of ", name, " add up to ", sum,
                      ", but its first dimension is ", rows);
    for (auto const split : splits) {
      TORCH_CHECK_VALUE(split >= 0, place, ": ", name, " has the negative split size ", split);
      counts.push_back(static_cast<std::size_t>(split * row));
    }
  }
};

}  // namespace

template <typename Issue>
ProcessGroupWeft::WorkHandle ProcessGroupWeft::run_on_wholes(Operation const& what, How const& how,
                                                             Tensors const& tensors, Issue&& issue) {
  Wholes const wholes(tensors, place(what));
  auto const call = [&](Communicator& communicator, CollectiveOptions const& options) {
    return issue(communicator, wholes.buffers(), options);
  };
  if (C10_UNLIKELY(wholes.are_copied())) return run(what, how, tensors, tensors, call, wholes.landing());
  return run(what, how, tensors, tensors, call);
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::broadcast(Tensors& tensors, c10d::BroadcastOptions const& opts) {
  static_cast<void>(only(tensors, place(kBroadcast)));
  return run_on_wholes(kBroadcast, {opts.asyncOp, opts.timeout}, tensors,
                       [&](Communicator& communicator, auto const& buffers, CollectiveOptions const& options) {
                         return communicator.broadcast(buffers[0], static_cast<int>(opts.rootRank), options);
                       });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::allreduce(Tensors& tensors, c10d::AllreduceOptions const& opts) {
  if (!tensors.empty() && C10_UNLIKELY(tensors[0].is_sparse())) return allreduce_sparse(tensors, opts);
  static_cast<void>(only(tensors, place(kAllReduce)));
  return run_on_wholes(kAllReduce, {opts.asyncOp, opts.timeout}, tensors,
                       [&](Communicator& communicator, auto const& buffers, CollectiveOptions const& options) {
                         auto const how = reduction(opts.reduceOp, tensors[0], place(kAllReduce));
                         return communicator.all_reduce(buffers[0], buffers[0], how, options);
                       });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::allreduce_coalesced(Tensors& tensors,
                                                                   c10d::AllreduceCoalescedOptions const& opts) {
  auto const here = place(kAllReduceCoalesced);
  return run_on_wholes(
      kAllReduceCoalesced, {opts.asyncOp, opts.timeout}, tensors,
      [&](Communicator& communicator, auto const& buffers, CollectiveOptions const& options) {
        return together(communicator, coalesced_ != nullptr, options, [&](CollectiveOptions const& each) {
          for (std::size_t i = 0; i < buffers.size(); ++i) {
            communicator.all_reduce(buffers[i], buffers[i], reduction(opts.reduceOp, tensors[i], here), each);
          }
        });
      });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::reduce(Tensors& tensors, c10d::ReduceOptions const& opts) {
  static_cast<void>(only(tensors, place(kReduce)));
  return run_on_wholes(kReduce, {opts.asyncOp, opts.timeout}, tensors,
                       [&](Communicator& communicator, auto const& buffers, CollectiveOptions const& options) {
                         auto const how = reduction(opts.reduceOp, tensors[0], place(kReduce));
                         return communicator.reduce(buffers[0], buffers[0], how, static_cast<int>(opts.rootRank),
                                                    options);
                       });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::allgather(TensorLists& outputs, Tensors& inputs,
                                                         c10d::AllgatherOptions const& opts) {
  auto const here = place(kAllGather);
  auto const& input = only(inputs, here);
  auto const& list = only(outputs, static_cast<std::size_t>(getSize()), here, "output");
  auto const equal = has_equal_parts(list, input, getRank(), here, "output");
  FlatList const recv(list, here, "output");
  auto const send = row_major(input, recv, getRank(), here);
  return run(
      kAllGather, {opts.asyncOp, opts.timeout}, send, list,
      [&](Communicator& communicator, CollectiveOptions const& options) {
        auto const mine = view(send, here, "input");
        if (equal) return communicator.all_gather(mine, recv.view(), options);
        return communicator.all_gather(mine, recv.view(), {recv.counts()}, options);
      },
      [recv] { recv.unpack(); });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                               c10d::AllgatherOptions const& opts) {
  auto const here = place(kAllGatherBase);
  Pair const pair(output, input, getRank(), here);
  return run(kAllGatherBase, {opts.asyncOp, opts.timeout}, pair.source, output,
             [&](Communicator& communicator, CollectiveOptions const& options) {
               return communicator.all_gather(pair.send, pair.recv, options);
             });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                   c10d::AllgatherOptions const& opts) {
  auto const here = place(kAllGatherCoalesced);
  TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(getSize()), here,
                    ": expects one list of outputs per rank, ", getSize(), ", not ", outputs.size());
  std::vector<FlatList> flats;
  Tensors sends, results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors column;
    for (auto const& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), here, ": a list of outputs has ", of_rank.size(),
                        " tensors, but there are ", inputs.size(), " inputs");
      column.push_back(of_rank[i]);
    }
    check_all_alike(column, inputs[i], here, "output");
    flats.emplace_back(column, here, "output");
    sends.push_back(row_major(inputs[i], flats.back(), getRank(), here));
    results.insert(results.end(), column.begin(), column.end());
  }
  return run(
      kAllGatherCoalesced, {opts.asyncOp, opts.timeout}, sends, results,
      [&](Communicator& communicator, CollectiveOptions const& options) {
        return together(communicator, coalesced_ != nullptr, options, [&](CollectiveOptions const& each) {
          for (std::size_t i = 0; i < sends.size(); ++i) {
            communicator.all_gather(view(sends[i], here, "input"), flats[i].view(), each);
          }
        });
      },
      [flats] {
        for (auto const& flat : flats) flat.unpack();
      });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                               c10d::AllgatherOptions const& opts) {
  auto const here = place(kAllGatherCoalesced);
  Pairs const pairs(outputs, inputs, getRank(), here);
  return run(kAllGatherCoalesced, {opts.asyncOp, opts.timeout}, pairs.sources, outputs,
             [&](Communicator& communicator, CollectiveOptions const& options) {
               return together(communicator, coalesced_ != nullptr, options, [&](CollectiveOptions const& each) {
                 for (auto const& pair : pairs.all) communicator.all_gather(pair.send, pair.recv, each);
               });
             });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::gather(TensorLists& outputs, Tensors& inputs,
                                                      c10d::GatherOptions const& opts) {
  auto const here = place(kGather);
  auto const& input = only(inputs, here);
  auto const root = static_cast<int>(opts.rootRank);
  if (getRank() != root) {
    TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(), here, ": only the root, rank ", root,
                      ", passes outputs; pass none on the others");
    check_reachable(input, here, "input");
    auto const source = input.contiguous();
    auto const send = view(source, here, "input");
    return run(kGather, {opts.asyncOp, opts.timeout}, source, {},
               [&](Communicator& communicator, CollectiveOptions const& options) {
                 return communicator.gather(send, {nullptr, 0, send.dtype}, root, options);
               });
  }
  auto const& list = only(outputs, static_cast<std::size_t>(getSize()), here, "output");
  check_all_alike(list, input, here, "output");
  FlatList const recv(list, here, "output");
  auto const send = row_major(input, recv, getRank(), here);
  return run(
      kGather, {opts.asyncOp, opts.timeout}, send, list,
      [&](Communicator& communicator, CollectiveOptions const& options) {
        return communicator.gather(view(send, here, "input"), recv.view(), root, options);
      },
      [recv] { recv.unpack(); });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::scatter(Tensors& outputs, TensorLists& inputs,
                                                       c10d::ScatterOptions const& opts) {
  auto const here = place(kScatter);
  auto const& output = only(outputs, here);
  FlatList const recv({output}, here, "output");
  auto const root = static_cast<int>(opts.rootRank);
  if (getRank() != root) {
    TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(), here, ": only the root, rank ", root,
                      ", passes inputs; pass none on the others");
    return run(
        kScatter, {opts.asyncOp, opts.timeout}, outputs, outputs,
        [&](Communicator& communicator, CollectiveOptions const& options) {
          return communicator.scatter({nullptr, 0, recv.view().dtype}, recv.view(), root, options);
        },
        [recv] { recv.unpack(); });
  }
  auto const& list = only(inputs, static_cast<std::size_t>(getSize()), here, "input");
  check_all_alike(list, output, here, "input");
  FlatList const send(list, here, "input");
  send.pack();
  return run(
      kScatter, {opts.asyncOp, opts.timeout}, list, outputs,
      [&](Communicator& communicator, CollectiveOptions const& options) {
        return communicator.scatter(send.view(), recv.view(), root, options);
      },
      [send, recv] {
        send.record_use();
        recv.unpack();
      });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                              c10d::ReduceScatterOptions const& opts) {
  auto const here = place(kReduceScatter);
  auto const& output = only(outputs, here);
  auto const& list = only(inputs, static_cast<std::size_t>(getSize()), here, "input");
  auto const equal = has_equal_parts(list, output, getRank(), here, "input");
  FlatList const recv({output}, here, "output");
  FlatList send(list, here, "input");
  send.keep_apart(recv.view(), getRank());
  send.pack();
  return run(
      kReduceScatter, {opts.asyncOp, opts.timeout}, list, outputs,
      [&](Communicator& communicator, CollectiveOptions const& options) {
        auto const how = reduction(opts.reduceOp, output, here);
        if (equal) return communicator.reduce_scatter(send.view(), recv.view(), how, options);
        return communicator.reduce_scatter(send.view(), recv.view(), {send.counts()}, how, options);
      },
      [send, recv] {
        send.record_use();
        recv.unpack();
      });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                    c10d::ReduceScatterOptions const& opts) {
  auto const here = place(kReduceScatterBase);
  Pair const pair(output, input, getRank(), here);
  return run(kReduceScatterBase, {opts.asyncOp, opts.timeout}, pair.source, output,
             [&](Communicator& communicator, CollectiveOptions const& options) {
               return communicator.reduce_scatter(pair.send, pair.recv, reduction(opts.reduceOp, output, here),
                                                  options);
             });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                               c10d::ReduceScatterOptions const& opts) {
  auto const here = place(kReduceScatterBase);
  Pairs const pairs(outputs, inputs, getRank(), here);
  return run(kReduceScatterBase, {opts.asyncOp, opts.timeout}, pairs.sources, outputs,
             [&](Communicator& communicator, CollectiveOptions const& options) {
               return together(communicator, coalesced_ != nullptr, options, [&](CollectiveOptions const& each) {
                 for (auto const& pair : pairs.all) {
                   communicator.reduce_scatter(pair.send, pair.recv, reduction(opts.reduceOp, pair.source, here), each);
                 }
               });
             });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                             std::vector<int64_t>& output_splits,
                                                             std::vector<int64_t>& input_splits,
                                                             c10d::AllToAllOptions const& opts) {
  auto const here = place(kAllToAllBase);
  check_same_type(output, input, here);
  auto const recv = contiguous_view(output, here, "output");
  auto const send = contiguous_view(input, here, "input");
  Split const to(input, input_splits, getSize(), here, "input");
  Split const from(output, output_splits, getSize(), here, "output");
  return run(kAllToAllBase, {opts.asyncOp, opts.timeout}, input, output,
             [&](Communicator& communicator, CollectiveOptions const& options) {
               if (input_splits.empty() && output_splits.empty()) return communicator.all_to_all(send, recv, options);
               return communicator.all_to_all(send, {to.counts}, recv, {from.counts}, options);
             });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::alltoall(Tensors& outputs, Tensors& inputs,
                                                        c10d::AllToAllOptions const& opts) {
  auto const here = place(kAllToAll);
  check_one_per_rank(outputs, static_cast<std::size_t>(getSize()), here, "output");
  check_one_per_rank(inputs, static_cast<std::size_t>(getSize()), here, "input");
  FlatList const from(outputs, here, "output");
  FlatList const to(inputs, here, "input");
  TORCH_CHECK_VALUE(from.view().dtype == to.view().dtype, here, ": inputs are ", to_string(to.view().dtype),
                    " but outputs ", to_string(from.view().dtype));
  to.pack();
  return run(
      kAllToAll, {opts.asyncOp, opts.timeout}, inputs, outputs,
      [&](Communicator& communicator, CollectiveOptions const& options) {
        return communicator.all_to_all(to.view(), {to.counts()}, from.view(), {from.counts()}, options);
      },
      [to, from] {
        to.record_use();
        from.unpack();
      });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::barrier(c10d::BarrierOptions const& opts) {
  How const how{opts.asyncOp, opts.timeout};
  auto const issue = [](Communicator& communicator, CollectiveOptions const& options) {
    return communicator.barrier(options);
  };
  if (auto const device = device_of_barrier(opts)) return run_on_gpu(kBarrier, how, *device, {}, {}, issue, Nothing{});
  return run(kBarrier, how, {}, {}, issue);
}

}  // namespace weft::torch_backend
