"""Lists of tensors of any strides, chunks of one tensor, and inputs that overlap outputs."""

import itertools

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

SHAPE = (3, 4)


def rows(values):
    return values.clone()


def transposed(values):
    return values.t().contiguous().t()


def columns(values):
    return torch.cat([values, values], dim=1)[:, : values.shape[1]]


def every_second(values):
    wide = torch.zeros(*values.shape, 2)
    wide[..., 1] = values
    return wide[..., 1]


LAYOUTS = [rows, transposed, columns, every_second]
PAIRS = list(itertools.product(LAYOUTS, LAYOUTS))


def numbers(*seed) -> torch.Tensor:
    return torch.randint(0, 100, SHAPE, generator=torch.Generator().manual_seed(hash(seed))).float()


def pick(rank, number):
    """Layouts that differ between the ranks."""
    return PAIRS[(number + 5 * rank) % len(PAIRS)]


def both_ways(call, outputs, wanted, clear=torch.Tensor.zero_):
    """The call that torch waits for, and the one that it does not."""
    for asynchronous in (False, True):
        for output in outputs:
            clear(output)
        work = call(asynchronous)
        if asynchronous:
            work.wait()
        for got, want in zip(outputs, wanted):
            assert got.equal(want), (asynchronous, got, want)


def check_gathered_lists(rank):
    ranks = dist.get_world_size()
    everyones = [numbers(r) for r in range(ranks)]
    for number in range(len(PAIRS)):
        of_input, of_output = pick(rank, number)
        mine = of_input(numbers(rank))
        outputs = [of_output(torch.zeros(SHAPE)) for _ in range(ranks)]
        both_ways(lambda asynchronous: dist.all_gather(outputs, mine, async_op=asynchronous), outputs, everyones)
        target = outputs if rank == 1 else None
        both_ways(
            lambda asynchronous: dist.gather(mine, target, dst=1, async_op=asynchronous), target or [], everyones
        )


def check_scattered_lists(rank):
    ranks = dist.get_world_size()
    for number in range(len(PAIRS)):
        of_input, of_output = pick(rank, number)
        output = of_output(torch.zeros(SHAPE))
        inputs = [of_input(numbers(rank, r)) for r in range(ranks)]
        target = inputs if rank == 1 else None
        both_ways(
            lambda asynchronous: dist.scatter(output, target, src=1, async_op=asynchronous), [output], [numbers(1, rank)]
        )
        total = sum(numbers(r, rank) for r in range(ranks))
        both_ways(
            lambda asynchronous: dist.reduce_scatter(output, inputs, async_op=asynchronous), [output], [total]
        )
        outputs = [of_output(torch.zeros(SHAPE)) for _ in range(ranks)]
        both_ways(
            lambda asynchronous: dist.all_to_all(outputs, inputs, async_op=asynchronous),
            outputs,
            [numbers(r, rank) for r in range(ranks)],
        )


def check_leaves_that_require_gradients(rank):
    """Results are written below autograd, as by every back end."""
    leaves = [torch.zeros(3, requires_grad=True) for _ in range(dist.get_world_size())]
    dist.all_gather(leaves, torch.full((3,), float(rank)))
    dist.all_gather(leaves, torch.full((3,), float(rank)), async_op=True).wait()
    strided = torch.zeros(2, 3).t().requires_grad_()
    dist.scatter(strided, [torch.ones(3, 2)] * len(leaves) if rank == 0 else None)
    assert leaves[1].eq(1).all() and leaves[0].eq(0).all() and strided.eq(1).all()
    assert leaves[0].is_leaf and strided.is_leaf
    sparse = torch.eye(3).to_sparse().requires_grad_()
    dist.all_reduce(sparse)
    assert sparse.is_leaf and sparse.to_dense().equal(torch.eye(3) * len(leaves))


def check_overlap(rank):
    """Inputs that lie somewhere in the output, or the other way round."""
    ranks = dist.get_world_size()
    for offset in range(ranks + 1):
        fresh = [torch.arange(2.0 * ranks + 2) + 100 * r for r in range(ranks)]
        wanted = torch.cat([one[offset : offset + 2] for one in fresh])
        flat = fresh[rank].clone()
        dist.all_gather_into_tensor(flat[: 2 * ranks], flat[offset : offset + 2])
        assert flat[: 2 * ranks].equal(wanted), (offset, flat, wanted)
        flat = fresh[rank].clone()
        dist.all_gather(list(flat[: 2 * ranks].chunk(ranks)), flat[offset : offset + 2])
        assert flat[: 2 * ranks].equal(wanted), (offset, flat, wanted)
        wanted = sum(fresh)[2 * rank : 2 * rank + 2]
        flat = fresh[rank].clone()
        dist.reduce_scatter_tensor(flat[offset : offset + 2], flat[: 2 * ranks], async_op=True).wait()
        assert flat[offset : offset + 2].equal(wanted), (offset, flat, wanted)


def check_overlap_of_lists(rank):
    """The same where a list is the whole, also of parts that differ."""
    ranks = dist.get_world_size()
    for sizes in ([2] * ranks, [r + 1 for r in range(ranks)]):
        whole = slice(0, sum(sizes))
        for offset in range(sum(sizes) + 1):
            fresh = [torch.arange(2.0 * sum(sizes)) + 100 * r for r in range(ranks)]
            mine = slice(offset, offset + sizes[rank])
            flat = fresh[rank].clone()
            dist.all_gather(list(flat[whole].split(sizes)), flat[mine])
            assert flat[whole].equal(torch.cat([fresh[r][offset : offset + sizes[r]] for r in range(ranks)])), (sizes, offset)
            flat = fresh[rank].clone()
            dist.reduce_scatter(flat[mine], list(flat[whole].split(sizes)))
            assert flat[mine].equal(sum(fresh)[whole].split(sizes)[rank]), (sizes, offset)


def check_coalesced_overlap(rank):
    """The same in calls that are made together."""
    ranks = dist.get_world_size()
    for offset in range(ranks + 1):
        flats = [[torch.arange(n * (ranks + 1.0)) + 100 * r for n in (2, 3000)] for r in range(ranks)]
        gathered = [torch.cat([flats[r][i][offset * n : (offset + 1) * n] for r in range(ranks)]) for i, n in enumerate((2, 3000))]
        reduced = [sum(flats[r][i] for r in range(ranks))[n * rank : n * (rank + 1)] for i, n in enumerate((2, 3000))]
        mine = [flat.clone() for flat in flats[rank]]
        with dist._coalescing_manager():
            for flat, n in zip(mine, (2, 3000)):
                dist.all_gather_into_tensor(flat[: n * ranks], flat[offset * n : (offset + 1) * n])
        for flat, n, wanted in zip(mine, (2, 3000), gathered):
            assert flat[: n * ranks].equal(wanted), (offset, n)
        mine = [flat.clone() for flat in flats[rank]]
        with dist._coalescing_manager(async_ops=True) as manager:
            for flat, n in zip(mine, (2, 3000)):
                dist.reduce_scatter_tensor(flat[offset * n : (offset + 1) * n], flat[: n * ranks])
        manager.wait()
        for flat, n, wanted in zip(mine, (2, 3000), reduced):
            assert flat[offset * n : (offset + 1) * n].equal(wanted), (offset, n)


def check_wholes(rank):
    """Calls on one tensor match elements by their indices, also where the ranks' tensors lie differently."""
    ranks = dist.get_world_size()
    everyones = [numbers(r) for r in range(ranks)]
    total = torch.stack(everyones).sum(0)
    for number in range(2 * ranks):
        layout = rows if (rank + number) % 2 == 0 else transposed
        mine, root = layout(everyones[rank]), number % ranks
        start = mine.clone(memory_format=torch.preserve_format)
        again = lambda output: output.copy_(start)  # noqa: B023, E731
        both_ways(lambda later: dist.broadcast(mine, root, async_op=later), [mine], [everyones[root]], again)  # noqa: B023
        both_ways(lambda later: dist.all_reduce(mine, async_op=later), [mine], [total], again)  # noqa: B023
        assert mine.stride() == start.stride()
        reduced = total if rank == root else everyones[rank]
        both_ways(lambda later: dist.reduce(mine, root, async_op=later), [mine], [reduced], again)  # noqa: B023
        several = [layout(everyones[rank]), rows(everyones[rank]), transposed(everyones[rank])]
        dist.all_reduce_coalesced(several)
        with dist._coalescing_manager():
            dist.all_reduce(again(mine))
        for got in (mine, *several):
            assert got.equal(total), number


def check_messages(rank):
    """So do messages, which are received in row-major order."""
    ranks = dist.get_world_size()
    for layout in (rows, transposed, columns, every_second):
        got = torch.zeros(SHAPE)
        sent = dist.isend(layout(numbers(rank)), (rank + 1) % ranks)
        dist.recv(got, (rank - 1) % ranks)
        sent.wait()
        assert got.equal(numbers((rank - 1) % ranks)), layout
    with pytest.raises(ValueError, match="recv: tensor of shape .* is not in row-major order"):
        dist.recv(torch.zeros(4, 3).t(), (rank - 1) % ranks)


def check_lists_shown_otherwise_than_stored(rank):
    """Numbers that torch shows negated, or conjugated, count as they are shown."""
    ranks = dist.get_world_size()
    for show in (torch._neg_view, lambda one: torch.complex(torch.ones(3), one[0, :3])[:1].conj().imag):
        def shown(*seed):
            made = show(numbers(*seed) + 1)  # noqa: B023
            assert made.is_neg()
            return made

        everyones = [shown(r).resolve_neg() for r in range(ranks)]
        outputs = [shown(7) for _ in range(ranks)]
        both_ways(lambda later: dist.all_gather(outputs, shown(rank), async_op=later), outputs, everyones)  # noqa: B023
        target = outputs if rank == 1 else None
        both_ways(lambda later: dist.gather(shown(rank), target, dst=1, async_op=later), target or [], everyones)  # noqa: B023
        output, inputs = torch.zeros_like(everyones[0]), [shown(rank, r) for r in range(ranks)]
        target = inputs if rank == 1 else None
        both_ways(lambda later: dist.scatter(output, target, src=1, async_op=later), [output], [shown(1, rank)])  # noqa: B023
        total = sum(shown(r, rank) for r in range(ranks))
        both_ways(lambda later: dist.reduce_scatter(output, inputs, async_op=later), [output], [total])  # noqa: B023
    mine = torch.complex(numbers(rank), numbers(rank, 1))
    outputs = [torch.zeros(SHAPE, dtype=torch.complex64).conj() for _ in range(ranks)]
    dist.gather(mine.conj(), outputs if rank == 0 else None)
    if rank == 0:
        assert all(got.equal(torch.complex(numbers(r), -numbers(r, 1))) for r, got in enumerate(outputs))


BOTH = [check_gathered_lists, check_overlap, check_coalesced_overlap]
ONLY_WEFT = {
    check_wholes: "gloo sends what lies in memory, not what the tensor holds",
    check_messages: "gloo refuses to send what is not in row-major order",
    check_scattered_lists: "gloo sends what lies in memory, not what the tensor holds",
    check_leaves_that_require_gradients: "gloo sends what lies in memory, not what the tensor holds",
    check_lists_shown_otherwise_than_stored: "gloo sends what lies in memory, not what the tensor holds",
    check_overlap_of_lists: "gloo gathers tensors of one shape, and reads of a list what it has overwritten",
}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("check", [*BOTH, *ONLY_WEFT])
def test_layouts(check, ranks, backend):
    if backend == "gloo" and check in ONLY_WEFT:
        pytest.skip(ONLY_WEFT[check])
    run_ranks(ranks, backend, check)


def scratch_of(call) -> int:
    """How many tensors a call makes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return sum(event.name == "aten::empty" for event in profile.events())


def check_chunks(rank):
    ranks = dist.get_world_size()
    whole, mine = torch.zeros(ranks * 5, 7), torch.full((5, 7), float(rank))
    apart = [torch.zeros(5, 7) for _ in range(2 * ranks)][::2]
    for chunks in (list(whole.chunk(ranks)), list(whole.split([5] * ranks)), list(whole.view(ranks, 5, 7).unbind())):
        assert scratch_of(lambda: dist.all_gather(chunks, mine)) == 0
        assert scratch_of(lambda: dist.reduce_scatter(mine, chunks)) == 0
        assert scratch_of(lambda: dist.all_to_all(list(torch.zeros_like(whole).chunk(ranks)), chunks)) <= 1  # zeros_like
        assert scratch_of(lambda: dist.gather(mine, chunks if rank == 0 else None)) == 0
        assert scratch_of(lambda: dist.scatter(mine, chunks if rank == 0 else None)) == 0
    assert scratch_of(lambda: dist.all_gather(apart, mine)) > 0


def test_chunks_of_one_tensor_are_not_copied():
    run_ranks(2, "weft", check_chunks)
