"""DTensor and tensor parallelism: every placement leads to every other, and parallel layers compute what whole ones do."""

import itertools

import pytest
import torch
import torch.distributed as dist
from models import adam, assert_same_parameters, batch, loss_of, rows_of, small_model, train, trained_alone
from ranks import run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


def tensor(seed=0, shape=(6, 10)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check_redistribute(rank, shape):
    mesh = init_device_mesh("cpu", shape)
    whole = tensor(shape=(7, 10))  # 7: shards of unequal size
    placements = list(itertools.product([Replicate(), Shard(0), Shard(1)], repeat=len(shape)))
    for before, after in itertools.product(placements, repeat=2):
        moved = distribute_tensor(whole, mesh, before).redistribute(mesh, after)
        assert moved.placements == tuple(after)
        torch.testing.assert_close(moved.full_tensor(), whole, rtol=0, atol=0, msg=lambda text: f"{before} {after} {text}")
    for after in placements:
        partial = DTensor.from_local(whole, mesh, [Partial()] * len(shape))
        torch.testing.assert_close(partial.redistribute(mesh, after).full_tensor(), whole * dist.get_world_size())


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2)], ids=lambda shape: "x".join(map(str, shape)))
def test_redistribute(backend, shape):
    run_ranks(torch.Size(shape).numel(), backend, check_redistribute, shape)


def check_average(rank):
    mesh = init_device_mesh("cpu", (2,))
    local = tensor(seed=rank)
    mean = DTensor.from_local(local, mesh, [Partial("avg")]).full_tensor()
    torch.testing.assert_close(mean, (tensor(0) + tensor(1)) / 2)
    largest = DTensor.from_local(local, mesh, [Partial("max")]).full_tensor()
    torch.testing.assert_close(largest, torch.maximum(tensor(0), tensor(1)))


def test_partial_average_and_maximum(backend):
    run_ranks(2, backend, check_average)


def check_products(rank):
    mesh = init_device_mesh("cpu", (2,))
    a, b = tensor(0, (6, 10)), tensor(1, (10, 8))
    for left, right in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2):
        x = distribute_tensor(a.clone(), mesh, [left]).requires_grad_()
        y = distribute_tensor(b.clone(), mesh, [right]).requires_grad_()
        product = (x @ y).relu()
        torch.testing.assert_close(product.full_tensor(), (a @ b).relu(), rtol=1e-4, atol=1e-5)
        product.sum().backward()
        expected = ((a @ b) > 0).float()
        torch.testing.assert_close(x.grad.full_tensor(), expected @ b.T, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(y.grad.full_tensor(), a.T @ expected, rtol=1e-4, atol=1e-5)


def test_matrix_products_and_gradients(backend):
    run_ranks(2, backend, check_products)


PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def full_parameters(model) -> dict:
    return {
        name: parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.detach()
        for name, parameter in model.named_parameters()
    }


def check_tensor_parallel(rank):
    model = parallelize_module(small_model(), init_device_mesh("cpu", (2,)), PLAN)
    train(model, adam_of_dtensors(model), 4, lambda step: batch(step, 8))
    assert_same_parameters(full_parameters(model), trained_alone(small_model(), 4, 8))


def adam_of_dtensors(model):
    # One parameter at a time: a list of DTensors and plain tensors has no fused kernel.
    return torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)


def test_tensor_parallel(backend):
    run_ranks(2, backend, check_tensor_parallel)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(self.up(self.norm(x)).relu())


def check_sequence_parallel(rank):
    mesh = init_device_mesh("cpu", (2,))
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Replicate()),
    }
    block = parallelize_module(Block(), mesh, plan)
    block = parallelize_module(
        block, mesh, PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1))
    )
    x = tensor(0, (2, 6, 8))
    output = block(x)
    alone = Block()
    torch.testing.assert_close(output, alone(x), rtol=1e-4, atol=1e-5)
    output.square().sum().backward()
    alone(x).square().sum().backward()
    for (name, mine), expected in zip(block.named_parameters(), alone.parameters()):
        torch.testing.assert_close(mine.grad.full_tensor(), expected.grad, rtol=1e-4, atol=1e-4, msg=lambda text: f"{name}: {text}")


def test_sequence_parallel(backend):
    run_ranks(2, backend, check_sequence_parallel)


def check_loss_parallel(rank):
    mesh = init_device_mesh("cpu", (2,))
    scores, targets = tensor(0, (6, 10)), torch.tensor([0, 3, 9, 5, 4, 7])
    whole = scores.clone().requires_grad_()
    expected = nn.functional.cross_entropy(whole, targets)
    expected.backward()
    split = distribute_tensor(scores, mesh, [Shard(1)]).requires_grad_()
    with loss_parallel():
        loss = nn.functional.cross_entropy(split, targets)
        loss.backward()
    torch.testing.assert_close(loss.full_tensor(), expected)
    torch.testing.assert_close(split.grad.full_tensor(), whole.grad)


def test_loss_parallel(backend):
    run_ranks(2, backend, check_loss_parallel)


def check_two_dimensional(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(small_model(), mesh["tensor"], PLAN)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    mine = mesh["data"].get_local_rank()
    train(model, adam_of_dtensors(model), 3, lambda step: rows_of(mine, 2, batch(step, 8)))
    # The layer that the plan leaves whole is sharded over the data dimension only, and the same on both tensor ranks.
    assert_same_parameters(full_parameters(model), trained_alone(small_model(), 3, 8))


def test_fsdp2_with_tensor_parallel(backend):
    run_ranks(4, backend, check_two_dimensional)


def check_compiled(rank):
    model = parallelize_module(small_model(), init_device_mesh("cpu", (2,)), PLAN)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    data = batch(0, 8)
    loss_of(compiled, data).backward()
    alone = small_model()
    loss_of(alone, data).backward()
    for mine, expected in zip(model.parameters(), alone.parameters()):
        gradient = mine.grad.full_tensor() if isinstance(mine.grad, DTensor) else mine.grad
        torch.testing.assert_close(gradient, expected.grad, rtol=1e-4, atol=1e-5)


def test_tensor_parallel_compiled(backend):
    run_ranks(2, backend, check_compiled, timeout=900)  # against hanging, as in test_functional_collectives
