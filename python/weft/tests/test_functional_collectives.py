"""torch.distributed._functional_collectives: eager, under autograd and inside compiled graphs."""

import pytest
import torch
import torch._inductor.config
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from ranks import run_ranks


def mine(rank, *shape):
    """A tensor that differs by rank, in numbers that sums keep exact."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + 100 * rank


def everyones(shape):
    return [mine(rank, *shape) for rank in range(dist.get_world_size())]


def all_reduce_sum(x):
    return funcol.all_reduce(x, "sum", dist.group.WORLD)


def all_reduce_avg(x):
    return funcol.all_reduce(x, "avg", dist.group.WORLD)


def all_gather(x):
    return funcol.all_gather_tensor(x, 0, dist.group.WORLD)


def all_gather_columns(x):
    return funcol.all_gather_tensor(x, 1, dist.group.WORLD)


def reduce_scatter(x):
    return funcol.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD)


def broadcast(x):
    return funcol.broadcast(x, 0, dist.group.WORLD)


def all_to_all(x):
    return funcol.all_to_all_single(x, None, None, dist.group.WORLD)


def all_reduce_coalesced(x):
    first, second = funcol.all_reduce_coalesced([x, 2 * x], "sum", dist.group.WORLD)
    return first + second


def all_gather_coalesced(x):
    first, second = funcol.all_gather_into_tensor_coalesced([x, 2 * x], dist.group.WORLD)
    return first + second


def reduce_scatter_coalesced(x):
    first, second = funcol.reduce_scatter_tensor_coalesced([x, 2 * x], "sum", [0, 0], dist.group.WORLD)
    return first + second


def part(tensor, rank):
    return tensor.chunk(dist.get_world_size())[rank]


EXPECTED = {
    all_reduce_sum: lambda rank, all: sum(all),
    all_reduce_avg: lambda rank, all: sum(all) / len(all),
    all_gather: lambda rank, all: torch.cat(all),
    all_gather_columns: lambda rank, all: torch.cat(all, dim=1),
    reduce_scatter: lambda rank, all: part(sum(all), rank),
    broadcast: lambda rank, all: all[0],
    all_to_all: lambda rank, all: torch.cat([part(x, rank) for x in all]),
    all_reduce_coalesced: lambda rank, all: 3 * sum(all),
    all_gather_coalesced: lambda rank, all: 3 * torch.cat(all),
    reduce_scatter_coalesced: lambda rank, all: 3 * part(sum(all), rank),
}
# What torch 2.11 itself compiles in more than one graph.
SEVERAL_GRAPHS = {all_gather_columns}


def around(operation):
    """Computation before and after, so that there is something for a compiler to fuse and to order."""
    return lambda x: operation(x * 2) / 2 + 1


def check_collective(rank, operation, compiler):
    call = around(operation)
    if compiler:
        call = torch.compile(call, backend=compiler, fullgraph=operation not in SEVERAL_GRAPHS)
    shape = (4 * dist.get_world_size(), 3)
    for _ in range(2):
        actual = call(mine(rank, *shape))
        torch.testing.assert_close(actual + 0, EXPECTED[operation](rank, everyones(shape)) + 1)


@pytest.mark.parametrize("compiler", ["", "aot_eager"], ids=["eager", "compiled"])
@pytest.mark.parametrize("operation", EXPECTED, ids=lambda operation: operation.__name__)
def test_collective(backend, operation, compiler):
    run_ranks(2, backend, check_collective, operation, compiler)


def check_inductor(rank):
    # The generated C++ compiles in half the time: one short file, no precompiled headers, no trial of vector instructions.
    inductor = torch._inductor.config
    inductor.compile_threads, inductor.cpp_cache_precompile_headers, inductor.cpp.simdlen = 1, False, 0

    def step(x):
        gathered = funcol.all_gather_tensor(x.sin(), 0, dist.group.WORLD)
        return funcol.reduce_scatter_tensor(gathered * gathered, "sum", 0, dist.group.WORLD).relu() + 1

    x = mine(rank, 4, 3)
    torch.testing.assert_close(torch.compile(step, fullgraph=True)(x), step(x) + 0)


@pytest.mark.slow
def test_inductor(backend):
    run_ranks(2, backend, check_inductor, timeout=900)  # against hanging: a compiler on busy cores takes minutes


def check_gradients(rank):
    ranks = dist.get_world_size()
    group = dist.group.WORLD

    x = mine(rank, 2, 3).requires_grad_()
    gathered = funcol.all_gather_tensor_autograd(x, 0, group)
    (gathered * mine(rank, 2 * ranks, 3)).sum().backward()
    torch.testing.assert_close(x.grad, part(sum(everyones((2 * ranks, 3))), rank))

    x = mine(rank, 2 * ranks, 3).requires_grad_()
    scattered = funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group)
    (scattered * mine(rank, 2, 3)).sum().backward()
    torch.testing.assert_close(x.grad, torch.cat(everyones((2, 3))))

    x = mine(rank, 2 * ranks, 3).requires_grad_()
    exchanged = funcol.all_to_all_single_autograd(x, None, None, group)
    (exchanged * mine(rank, 2 * ranks, 3)).sum().backward()
    torch.testing.assert_close(x.grad, torch.cat([part(other, rank) for other in everyones((2 * ranks, 3))]))


def test_gradients(backend):
    run_ranks(2, backend, check_gradients)


def check_uneven_all_to_all(rank):
    ranks = dist.get_world_size()
    # Rank r sends r + s + 1 rows to rank s.
    sends = [rank + other + 1 for other in range(ranks)]
    rows = torch.cat([torch.full((count, 2), 10.0 * rank + other) for other, count in enumerate(sends)])
    received = funcol.all_to_all_single(rows, sends, sends, dist.group.WORLD)
    expected = torch.cat([torch.full((count, 2), 10.0 * other + rank) for other, count in enumerate(sends)])
    torch.testing.assert_close(received + 0, expected)


def test_uneven_all_to_all(backend):
    run_ranks(3, backend, check_uneven_all_to_all)


def check_nn_functional(rank):
    import torch.distributed.nn.functional as differentiable

    x = mine(rank, 4).requires_grad_()
    torch.stack(differentiable.all_gather(x)).square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * dist.get_world_size() * x.detach())

    x = mine(rank, 4).requires_grad_()
    differentiable.all_reduce(x * 1).square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * dist.get_world_size() * sum(everyones((4,))))


def test_differentiable_collectives(backend):
    run_ranks(2, backend, check_nn_functional)


def check_subgroup(rank):
    evens, odds = dist.new_group([0, 2]), dist.new_group([1, 3])
    group = odds if rank % 2 else evens
    compiled = torch.compile(lambda x: funcol.all_reduce(x, "sum", group) + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(mine(rank, 5)), mine(rank % 2, 5) + mine(rank % 2 + 2, 5) + 1)


def test_subgroups_compiled(backend):
    run_ranks(4, backend, check_subgroup)
