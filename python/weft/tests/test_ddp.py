"""DistributedDataParallel, Join and ZeroRedundancyOptimizer train as one process would on the whole batch."""

import copy

import pytest
import torch
import torch.distributed as dist
from models import adam, assert_same_parameters, batch, loss_of, rows_of, small_model, train, trained_alone
from ranks import run_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

ROWS, STEPS = 8, 4


def check_ddp(rank, options):
    ranks = dist.get_world_size()
    model = small_model(seed=rank)  # rank 0's counts
    ddp = DDP(model, **options)
    train(ddp, adam(ddp), STEPS, lambda step: rows_of(rank, ranks, batch(step, ROWS)))
    assert_same_parameters(dict(ddp.module.named_parameters()), trained_alone(small_model(seed=0), STEPS, ROWS))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 0.0005},
    ],
    ids=lambda options: "_".join(options) or "default",
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ddp_equals_one_process(backend, ranks, options):
    run_ranks(ranks, backend, check_ddp, options)


def check_no_sync(rank):
    ranks = dist.get_world_size()
    ddp = DDP(small_model())
    first, second = (rows_of(rank, ranks, batch(step, ROWS)) for step in (0, 1))
    with ddp.no_sync():
        loss_of(ddp, first).backward()
    loss_of(ddp, second).backward()

    alone = small_model()
    (loss_of(alone, batch(0, ROWS)) + loss_of(alone, batch(1, ROWS))).backward()
    for mine, expected in zip(ddp.module.parameters(), alone.parameters()):
        torch.testing.assert_close(mine.grad, expected.grad)


def test_no_sync_accumulates(backend):
    run_ranks(2, backend, check_no_sync)


class Branches(nn.Module):
    """Takes one of two branches, so that each rank leaves another one unused."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.branches = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])

    def forward(self, inputs, branch):
        return self.branches[branch](inputs)


def check_unused(rank):
    ddp = DDP(Branches(), find_unused_parameters=True)
    inputs, targets = batch(0, ROWS)
    nn.functional.mse_loss(ddp(inputs, rank), targets).backward()
    alone = Branches()
    for branch in (0, 1):
        (nn.functional.mse_loss(alone(inputs, branch), targets) / 2).backward()
    for mine, expected in zip(ddp.module.parameters(), alone.parameters()):
        torch.testing.assert_close(mine.grad, expected.grad)


def test_unused_parameters_differ_by_rank(backend):
    run_ranks(2, backend, check_unused)


HOOKS = {
    "allreduce": (default_hooks.allreduce_hook, lambda: None),
    "fp16": (default_hooks.fp16_compress_hook, lambda: None),
    "bf16": (default_hooks.bf16_compress_hook, lambda: None),
    "powersgd": (
        powerSGD_hook.powerSGD_hook,
        lambda: powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
    ),
}


def check_hook(rank, name):
    hook, make_state = HOOKS[name]
    ranks = dist.get_world_size()
    ddp = DDP(small_model())
    ddp.register_comm_hook(make_state(), hook)
    losses = train(ddp, adam(ddp), 30, lambda step: rows_of(rank, ranks, batch(0, ROWS)))
    assert losses[-1] < 0.7 * losses[0]
    return [parameter.detach() for parameter in ddp.parameters()]


@pytest.mark.parametrize("name", HOOKS)
def test_comm_hooks(backend, name):
    first, second = run_ranks(2, backend, check_hook, name)
    for mine, others in zip(first, second):
        torch.testing.assert_close(mine, others, rtol=0, atol=0)


def check_join(rank):
    ddp = DDP(small_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    steps = 0
    with Join([ddp]):
        for step in range(3 + 2 * rank):
            optimizer.zero_grad()
            loss_of(ddp, batch(10 * rank + step, ROWS)).backward()
            optimizer.step()
            steps += 1
    return steps, [parameter.detach() for parameter in ddp.parameters()]


def test_join_with_uneven_inputs(backend):
    results = run_ranks(3, backend, check_join)
    assert [steps for steps, _ in results] == [3, 5, 7]
    for _, parameters in results[1:]:
        for mine, others in zip(parameters, results[0][1]):
            torch.testing.assert_close(mine, others, rtol=0, atol=0)


def check_zero(rank, overlap):
    ranks = dist.get_world_size()
    ddp = DDP(small_model())
    optimizer = ZeroRedundancyOptimizer(
        ddp.parameters(), optimizer_class=torch.optim.Adam, lr=0.01, parameters_as_bucket_view=overlap
    )
    train(ddp, optimizer, STEPS, lambda step: rows_of(rank, ranks, batch(step, ROWS)))
    assert_same_parameters(dict(ddp.module.named_parameters()), trained_alone(small_model(), STEPS, ROWS))
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        assert len(optimizer.state_dict()["state"]) == len(list(ddp.parameters()))


@pytest.mark.parametrize("bucket_view", [False, True], ids=["tensors", "bucket_view"])
def test_zero_redundancy_optimizer(backend, bucket_view):
    run_ranks(2, backend, check_zero, bucket_view)


def check_join_with_zero(rank):
    ddp = DDP(small_model())
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    with Join([ddp, optimizer]):
        for step in range(2 + rank):
            optimizer.zero_grad()
            loss_of(ddp, batch(10 * rank + step, ROWS)).backward()
            optimizer.step()
    return [copy.deepcopy(parameter.detach()) for parameter in ddp.parameters()]


def test_join_with_zero(backend):
    first, second = run_ranks(2, backend, check_join_with_zero)
    for mine, others in zip(first, second):
        torch.testing.assert_close(mine, others, rtol=0, atol=0)
