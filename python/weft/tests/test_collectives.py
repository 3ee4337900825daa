"""Every collective of torch.distributed against what it is to compute, on gloo where gloo has it, and on weft."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
ALL_TYPES = FLOATS + INTEGERS + COMPLEX + FLOAT8 + UNSIGNED + [torch.bool]
ONLY_MOVED = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex32]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (1000,), (257, 131)]


def values(rank: int, shape, dtype, seed: int = 0) -> torch.Tensor:
    """Small whole numbers, so that sums and products are exact in every type."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    numbers = torch.randint(0, 3, shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.double() - 1).to(dtype)
    return numbers.to(dtype)


def everyone(shape, dtype, seed: int = 0) -> list:
    return [values(rank, shape, dtype, seed) for rank in range(dist.get_world_size())]


def same(got: torch.Tensor, wanted: torch.Tensor, what=None) -> None:
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, what
    # As bytes: some types cannot be compared.
    assert got.reshape(-1).view(torch.uint8).equal(wanted.reshape(-1).contiguous().view(torch.uint8)), (what, got, wanted)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64 if tensor.is_floating_point() else torch.int64)


def reduced(tensors: list, op) -> torch.Tensor:
    dtype = tensors[0].dtype
    stacked = torch.stack([wide(tensor) for tensor in tensors])
    if op == dist.ReduceOp.AVG:
        result = stacked.sum(0) / len(tensors)
        result = result if dtype.is_floating_point or dtype.is_complex else result.trunc()
    else:
        result = {
            dist.ReduceOp.SUM: lambda: stacked.sum(0),
            dist.ReduceOp.PRODUCT: lambda: stacked.prod(0),
            dist.ReduceOp.MIN: lambda: stacked.amin(0),
            dist.ReduceOp.MAX: lambda: stacked.amax(0),
        }[op]()
    return result.to(dtype)


def check_reductions(rank):
    for dtype in FLOATS + INTEGERS + FLOAT8 + UNSIGNED:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            for seed, shape in enumerate(SHAPES):
                wanted = reduced(everyone(shape, dtype, seed), op)
                tensor = values(rank, shape, dtype, seed)
                dist.all_reduce(tensor, op)
                same(tensor, wanted, (dtype, op, shape))
    for dtype in COMPLEX:
        tensor = values(rank, (9,), dtype)
        dist.all_reduce(tensor)
        same(tensor, reduced(everyone((9,), dtype), dist.ReduceOp.SUM))
    for dtype in INTEGERS + [torch.bool]:
        for op, combine in (
            (dist.ReduceOp.BAND, torch.bitwise_and),
            (dist.ReduceOp.BOR, torch.bitwise_or),
            (dist.ReduceOp.BXOR, torch.bitwise_xor),
        ):
            wanted = values(0, (50,), dtype)
            for other in everyone((50,), dtype)[1:]:
                wanted = combine(wanted, other)
            tensor = values(rank, (50,), dtype)
            dist.all_reduce(tensor, op)
            same(tensor, wanted, (dtype, op))


def check_averages(rank):
    size = dist.get_world_size()
    for dtype in FLOATS:
        tensor = values(rank, (100,), dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        torch.testing.assert_close(tensor, reduced(everyone((100,), dtype), dist.ReduceOp.AVG))
        output = torch.empty(10, dtype=dtype)
        dist.reduce_scatter_tensor(output, values(rank, (10 * size,), dtype), dist.ReduceOp.AVG)
        wanted = reduced(everyone((10 * size,), dtype), dist.ReduceOp.AVG)[10 * rank : 10 * rank + 10]
        torch.testing.assert_close(output, wanted)


def check_factors(rank):
    size = dist.get_world_size()
    for factor in (0.5, torch.tensor([0.25])):
        tensor = torch.full((5,), 4.0)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        same(tensor, torch.full((5,), 4.0 * float(factor) * size))


def check_movement(rank):
    size = dist.get_world_size()
    for dtype in ALL_TYPES + ONLY_MOVED:
        for shape in SHAPES[1:]:
            mine, all_of_them = values(rank, shape, dtype), everyone(shape, dtype)
            tensor = mine.clone()
            dist.broadcast(tensor, size - 1)
            same(tensor, all_of_them[size - 1], ("broadcast", dtype, shape))

            outputs = [torch.empty(shape, dtype=dtype) for _ in range(size)]
            dist.all_gather(outputs, mine)
            for got, wanted in zip(outputs, all_of_them):
                same(got, wanted, ("all_gather", dtype, shape))

            output = torch.empty((size * shape[0], *shape[1:]), dtype=dtype)
            dist.all_gather_into_tensor(output, mine)
            same(output, torch.cat(all_of_them), ("all_gather_into_tensor", dtype, shape))

            outputs = [torch.empty(shape, dtype=dtype) for _ in range(size)] if rank == 0 else None
            dist.gather(mine, outputs, 0)
            for got, wanted in zip(outputs or [], all_of_them):
                same(got, wanted, ("gather", dtype, shape))

            output = torch.empty(shape, dtype=dtype)
            inputs = [values(100 + r, shape, dtype) for r in range(size)]
            dist.scatter(output, inputs if rank == 1 else None, 1)
            same(output, inputs[rank], ("scatter", dtype, shape))

            inputs = [values(10 * rank + r, shape, dtype) for r in range(size)]
            outputs = [torch.empty(shape, dtype=dtype) for _ in range(size)]
            dist.all_to_all(outputs, inputs)
            for r, got in enumerate(outputs):
                same(got, values(10 * r + rank, shape, dtype), ("all_to_all", dtype, shape))


def check_reductions_of_what_is_only_moved(rank):
    size = dist.get_world_size()
    for dtype in ONLY_MOVED[:3]:  # torch hands complex numbers on as pairs of float16
        tensor = torch.zeros(size, dtype=dtype)
        for call in (
            lambda: dist.all_reduce(tensor, async_op=True),
            lambda: dist.reduce(tensor, 0),
            lambda: dist.reduce_scatter_tensor(torch.zeros(1, dtype=dtype), tensor),
        ):
            with pytest.raises(TypeError, match=f"rank {rank}: .*are moved but not reduced"):
                call()
    dist.barrier()


def check_reduce_scatter(rank):
    size = dist.get_world_size()
    for dtype in FLOATS + INTEGERS:
        for count in (1, 7, 5000):
            contributions = [[values(10 * r + to, (count,), dtype) for to in range(size)] for r in range(size)]
            wanted = reduced([contributions[r][rank] for r in range(size)], dist.ReduceOp.SUM)
            output = torch.empty(count, dtype=dtype)
            dist.reduce_scatter(output, contributions[rank])
            same(output, wanted, dtype)
            output = torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(output, torch.cat(contributions[rank]))
            same(output, wanted, dtype)


def uneven_shapes(size, kind) -> list:
    """The shape of each rank's part."""
    return {
        "rows": lambda: [(r + 1, 3) for r in range(size)],
        "none of rank 0": lambda: [(7 * r,) for r in range(size)],
        "all of the last": lambda: [(5000 if r == size - 1 else 0,) for r in range(size)],
        "large": lambda: [(70_000 + 30_011 * r,) for r in range(size)],
        "equal numbers, other shapes": lambda: [(6,) if r % 2 else (2, 3) for r in range(size)],
        "scalars beside others": lambda: [() if r == 0 else (r, 2) for r in range(size)],
    }[kind]()


UNEVEN = ["rows", "none of rank 0", "all of the last", "large", "equal numbers, other shapes", "scalars beside others"]


def check_uneven_all_gather(rank):
    size = dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex32):
        for kind in UNEVEN:
            shapes = uneven_shapes(size, kind)
            flat = torch.empty(sum(torch.Size(shape).numel() for shape in shapes), dtype=dtype)
            pieces = flat.split([torch.Size(shape).numel() for shape in shapes])
            for outputs in (
                [torch.empty(shape, dtype=dtype) for shape in shapes],
                [piece.view(shape) for piece, shape in zip(pieces, shapes)],
                [torch.empty(shape, dtype=dtype).transpose(0, -1).contiguous().transpose(0, -1) if shape else
                 torch.empty(shape, dtype=dtype) for shape in shapes],
            ):
                for asynchronous in (False, True):
                    mine = values(rank, shapes[rank], dtype, asynchronous)
                    work = dist.all_gather(outputs, mine, async_op=asynchronous)
                    if asynchronous:
                        work.wait()
                    for r, got in enumerate(outputs):
                        same(got, values(r, shapes[r], dtype, asynchronous), (kind, dtype, asynchronous, r))
    outputs = [torch.zeros(r + 2) for r in range(size)]
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_gather(outputs, torch.full((rank + 2,), rank + 1.0))
        total = torch.ones(3)
        dist.all_reduce(total)
    manager.wait()
    assert [got.tolist() for got in outputs] == [[r + 1.0] * (r + 2) for r in range(size)]


def check_uneven_reduce_scatter(rank):
    size = dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.int64):
        for kind in UNEVEN:
            shapes = uneven_shapes(size, kind)
            contributions = [[values(10 * r + to, shapes[to], dtype) for to in range(size)] for r in range(size)]
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
                wanted = reduced([contributions[r][rank] for r in range(size)], op)
                for asynchronous in (False, True):
                    output = torch.empty(shapes[rank], dtype=dtype)
                    work = dist.reduce_scatter(output, contributions[rank], op, async_op=asynchronous)
                    if asynchronous:
                        work.wait()
                    same(output, wanted, (kind, dtype, op, asynchronous))


def check_wrong_lists(rank):
    """What a rank can see is refused there, before anything is sent; what only all of them can, on all."""
    size = dist.get_world_size()
    shapes = [(r + 2,) for r in range(size)]
    outputs = [torch.zeros(shape) for shape in shapes]
    with pytest.raises(ValueError, match=f"rank {rank}: all_gather: output.{rank}., this rank's part, has shape"):
        dist.all_gather(outputs, torch.zeros(rank + 3))
    with pytest.raises(ValueError, match=f"rank {rank}: reduce_scatter: input.{rank}., this rank's part, has shape"):
        dist.reduce_scatter(torch.zeros(rank + 3), outputs)
    with pytest.raises(ValueError, match=f"rank {rank}: all_gather: the list of output tensors has {size - 1} entries"):
        dist.all_gather(outputs[1:], torch.zeros(2))
    dist.all_gather(outputs, torch.full(shapes[rank], rank + 1.0))
    assert [got[-1].item() for got in outputs] == [r + 1.0 for r in range(size)]
    for call in (
        lambda mine, parts: dist.all_gather(parts, mine),
        lambda mine, parts: dist.reduce_scatter(mine, parts),
    ):
        for first in (5, 1):  # of rank 0's list: another size, or one that makes it even
            group = dist.new_group()
            parts = [torch.zeros(1 if r == 0 else first if r == 1 and rank == 0 else 2) for r in range(size)]
            with pytest.raises(RuntimeError, match=r"differs between ranks: .*(all_gather|reduce_scatter)(_v)?\("):
                dist.barrier(group=group)
                call(torch.zeros(parts[rank].shape), parts)
                dist.barrier(group=group)


def check_reduce(rank):
    for root in range(dist.get_world_size()):
        tensor = values(rank, (33,), torch.float32)
        dist.reduce(tensor, root)
        if rank == root:
            same(tensor, reduced(everyone((33,), torch.float32), dist.ReduceOp.SUM))


def check_splits(rank):
    size = dist.get_world_size()
    to = [(rank + other) % 3 for other in range(size)]
    of = [(other + rank) % 3 for other in range(size)]
    rows = torch.full((sum(to), 4), float(rank))
    output = torch.empty(sum(of), 4)
    dist.all_to_all_single(output, rows, of, to)
    same(output, torch.cat([torch.full((count, 4), float(other)) for other, count in enumerate(of)]))
    output = torch.empty(2 * size)
    dist.all_to_all_single(output, torch.arange(2.0 * size) + 100 * rank)
    wanted = torch.cat([torch.arange(2.0) + 2 * rank + 100 * other for other in range(size)])
    same(output, wanted)
    inputs = [torch.full((other,), float(rank)) for other in range(size)]
    outputs = [torch.empty(rank) for _ in range(size)]
    dist.all_to_all(outputs, inputs)
    for other, got in enumerate(outputs):
        same(got, torch.full((rank,), float(other)))


def check_coalesced(rank):
    size = dist.get_world_size()
    tensors = [values(rank, (count,), torch.float32, count) for count in (1, 70, 3, 9000)]
    wanted = [reduced(everyone((count,), torch.float32, count), dist.ReduceOp.SUM) for count in (1, 70, 3, 9000)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for got, want in zip(tensors, wanted):
        same(got, want)
    outputs = [torch.empty(size * count) for count in (2, 300)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, count in zip(outputs, (2, 300)):
            dist.all_gather_into_tensor(output, values(rank, (count,), torch.float32))
    manager.wait()
    for output, count in zip(outputs, (2, 300)):
        same(output, torch.cat(everyone((count,), torch.float32)))
    outputs = [torch.empty(count) for count in (2, 300)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, count in zip(outputs, (2, 300)):
            dist.reduce_scatter_tensor(output, values(rank, (count * size,), torch.float32))
    manager.wait()
    for output, count in zip(outputs, (2, 300)):
        total = reduced(everyone((count * size,), torch.float32), dist.ReduceOp.SUM)
        same(output, total[count * rank : count * (rank + 1)])


def check_permuted(rank):
    size = dist.get_world_size()
    images = values(rank, (2, 3, 4, 5), torch.float32).to(memory_format=torch.channels_last)
    total = reduced(everyone((2, 3, 4, 5), torch.float32), dist.ReduceOp.SUM)
    tensor = images.clone()
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    dist.all_reduce(tensor)
    assert tensor.equal(total)
    outputs = [torch.empty_like(images) for _ in range(size)]
    dist.all_gather(outputs, images)
    for got, want in zip(outputs, everyone((2, 3, 4, 5), torch.float32)):
        assert got.equal(want)
    square = values(rank, (4, 6), torch.float32).t()
    dist.broadcast(square, 0)
    assert square.equal(values(0, (4, 6), torch.float32).t())


def check_async(rank):
    tensors = [torch.full((100,), float(rank + i)) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    after = torch.ones(3)
    dist.all_reduce(after)  # comes after them although it does not wait for their Works
    assert after[0] == dist.get_world_size()
    for work in works:
        work.wait()
        assert work.is_completed() and work.is_success()
    for i, tensor in enumerate(tensors):
        assert tensor[0] == sum(r + i for r in range(dist.get_world_size()))
    tensor = torch.full((3,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    chained = work.get_future().then(lambda future: future.value()[0] + 1)
    assert chained.wait()[0] == sum(range(dist.get_world_size())) + 1
    work.wait()
    assert work.result()[0].data_ptr() == tensor.data_ptr()


def check_futures_asked_for_as_calls_end(rank):
    """Both sides may find the call complete: one of them completes the future."""
    tensor = torch.zeros(1)
    for number in range(3000):
        work = dist.all_reduce(tensor, async_op=True)
        for _ in range(number % 100):
            work.is_completed()
        assert work.get_future().wait()[0].data_ptr() == tensor.data_ptr()


def check_inputs_go_while_calls_are_asked(rank):
    """A call lets go of its input where it ends, on another thread, with the interpreter that is_completed() may hold."""
    outputs = torch.empty(dist.get_world_size())
    for number in range(1000):
        work = dist.all_gather_into_tensor(outputs, torch.full((1,), float(number)), async_op=True)
        while not work.is_completed():
            pass
        assert outputs.eq(number).all()


def check_futures_wait_for_further_calls(rank):
    def again(future):
        tensor = future.value()[0]
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    tensor = torch.ones(4)
    size = dist.get_world_size()
    assert dist.all_reduce(tensor, async_op=True).get_future().then(again).wait()[0] == size * size


def check_sparse(rank):
    indices = torch.tensor([[0, rank + 1], [1, 0]])
    tensor = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0]), (6, 2), check_invariants=True)
    dist.all_reduce(tensor)
    wanted = torch.zeros(6, 2)
    for r in range(dist.get_world_size()):
        wanted[0, 1] += 1
        wanted[r + 1, 0] += 2
    assert tensor.to_dense().equal(wanted)


COMMON = [
    check_reduce,
    check_async,
    check_futures_asked_for_as_calls_end,
    check_inputs_go_while_calls_are_asked,
    check_futures_wait_for_further_calls,
    check_sparse,
    check_averages,
    check_coalesced,
    check_permuted,
    check_uneven_reduce_scatter,
]
ONLY_WEFT = {
    check_reductions: "gloo reduces neither int16 nor float8",
    check_reduce_scatter: "gloo reduces neither int16 nor float8",
    check_factors: "gloo has no PREMUL_SUM",
    check_reductions_of_what_is_only_moved: "gloo knows none of these types",
    check_movement: "gloo has no all_to_all of lists",
    check_uneven_all_gather: "gloo gathers tensors of one shape",
    check_wrong_lists: "gloo gathers tensors of one shape",
    check_splits: "gloo has no all_to_all of lists",
}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("check", [*COMMON, *ONLY_WEFT])
def test_collective(check, ranks, backend):
    if backend == "gloo" and check in ONLY_WEFT:
        pytest.skip(ONLY_WEFT[check])
    run_ranks(ranks, backend, check)
