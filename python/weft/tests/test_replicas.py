"""weft.DistributedDataParallel trains as torch's does, to the bit, and names what is wrong with a model."""

import copy
import functools
import gc
import weakref

import pytest
import torch
import torch.distributed as dist
import weft
from models import FailsInBackward, batch, loss_of, rows_of, small_model
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

ROWS, STEPS = 8, 4


def trained(model, optimizer, rank, accumulate, set_to_none):
    """Losses and parameters after some steps of so many passes each."""
    ranks, losses = dist.get_world_size(), []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        for part in range(accumulate):
            data = rows_of(rank, ranks, batch(10 * step + part, ROWS))
            if part + 1 < accumulate:
                with model.no_sync():
                    loss_of(model, data).backward()
            else:
                loss = loss_of(model, data)
                loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


def check_ddp(rank, options, accumulate, set_to_none):
    results = []
    for wrap in (lambda model: weft.DistributedDataParallel(model, **options), DistributedDataParallel):
        model = wrap(small_model(seed=rank))  # rank 0's counts
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        results.append(trained(model, optimizer, rank, accumulate, set_to_none))
    assert results[0][0] == results[1][0]
    for mine, theirs in zip(results[0][1], results[1][1]):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("options", [{}, {"bucket_cap_mb": 0.0005, "first_bucket_mb": 0.0001}], ids=["one", "many"])
@pytest.mark.parametrize(("accumulate", "set_to_none"), [(1, True), (3, False), (3, True)])
def test_equals_torchs_ddp(options, accumulate, set_to_none):
    for ranks in (2, 4):
        run_ranks(ranks, "weft", check_ddp, options, accumulate, set_to_none)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.branches = nn.ModuleList([nn.Linear(8, 4) for _ in range(3)])

    def forward(self, inputs, branch):
        return self.branches[branch](inputs)


def check_unused(rank, find):
    ddp = weft.DistributedDataParallel(Branches(), find_unused_parameters=find)
    inputs, targets = batch(0, ROWS)
    nn.functional.mse_loss(ddp(inputs, rank), targets).backward()
    alone = Branches()
    for branch in (0, 1):
        (nn.functional.mse_loss(alone(inputs, branch), targets) / 2).backward()
    for (name, mine), expected in zip(ddp.module.named_parameters(), alone.parameters()):
        if name.startswith("branches.2"):
            assert mine.grad is None if find else not mine.grad.any()
        else:
            torch.testing.assert_close(mine.grad, expected.grad)


@pytest.mark.parametrize("find", [False, True])
def test_unused_parameters(find):
    run_ranks(2, "weft", check_unused, find)


class Recomputed(nn.Module):
    """Every gradient comes in a backward within backward; those of the second block in one within that."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.head = nn.Linear(8, 4).requires_grad_(False)

    def _again(self, x):
        return self.blocks[2](checkpoint(self.blocks[1], x.tanh(), use_reentrant=True))

    def forward(self, x):
        x = checkpoint(self.blocks[0], x.requires_grad_(), use_reentrant=True)
        return self.head(checkpoint(self._again, x, use_reentrant=True))


def recomputing(kind, module):
    if isinstance(kind, int):
        return module, weft.ZeroOptimizer(module, weft.optim.SGD, stage=kind, lr=0.1)
    model = weft.DistributedDataParallel(module, **kind)
    return model, weft.optim.SGD(model.parameters(), lr=0.1)


def check_recomputed(rank, kind):
    alone = Recomputed()
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    model, optimizer = recomputing(kind, Recomputed())
    for step in range(3):
        reference.zero_grad()
        optimizer.zero_grad()
        loss_of(alone, batch(step, ROWS)).backward()
        loss_of(model, rows_of(rank, 2, batch(step, ROWS))).backward()
        reference.step()
        optimizer.step()
    module = getattr(model, "module", model)
    if isinstance(kind, int):
        optimizer.wait()
    for mine, expected in zip(module.parameters(), alone.parameters()):
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kind", [{}, {"find_unused_parameters": True}, {"wait_in_step": True}, 1, 2], ids=["ddp", "finds", "waits in step", "zero1", "zero2"]
)
def test_a_backward_within_backward_ends_no_step(kind):
    run_ranks(2, "weft", check_recomputed, kind)


def check_used_by_two_checkpoints(rank):
    layer = nn.Linear(8, 8)
    model = weft.DistributedDataParallel(layer)
    inputs = torch.ones(1, 8, requires_grad=True)
    twice = checkpoint(layer, checkpoint(layer, inputs, use_reentrant=True), use_reentrant=True)
    model.before_forward()
    assert "has a second gradient in one backward" in error_of(twice.sum().backward)


def test_a_second_gradient_in_one_backward_is_named():
    run_ranks(2, "weft", check_used_by_two_checkpoints)


def check_several_backwards(rank, find):
    """As where nothing is wrapped, gradients of a pass before stay where the next has none, on all ranks or on some."""
    ddp, alone = weft.DistributedDataParallel(Branches(), find_unused_parameters=find), Branches()
    for step, branches in enumerate([(0, 0), (1, 1), (0, 1), (2, 0)]):
        data = batch(step, ROWS)
        inputs, targets = rows_of(rank, 2, data)
        nn.functional.mse_loss(ddp(inputs, branches[rank]), targets).backward()
        for one, branch in enumerate(branches):
            inputs, targets = rows_of(one, 2, data)
            (nn.functional.mse_loss(alone(inputs, branch), targets) / 2).backward()
    for mine, expected in zip(ddp.module.parameters(), alone.parameters()):
        torch.testing.assert_close(mine.grad, expected.grad)


@pytest.mark.parametrize("find", [False, True])
def test_gradients_of_several_backwards_add_up(find):
    run_ranks(2, "weft", check_several_backwards, find)


class WithNothing(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.nothing, self.layer = nn.Parameter(torch.empty(0)), nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(x) + self.nothing.sum()


def check_no_elements(rank, kind):
    alone = WithNothing()
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    model, optimizer = recomputing(kind, WithNothing())
    for step in range(2):
        reference.zero_grad()
        optimizer.zero_grad()
        loss_of(alone, batch(step, ROWS)).backward()
        loss_of(model, rows_of(rank, 2, batch(step, ROWS))).backward()
        reference.step()
        optimizer.step()
    if isinstance(kind, int):
        optimizer.wait()
    torch.testing.assert_close(getattr(model, "module", model).layer.weight, alone.layer.weight)


@pytest.mark.parametrize("kind", [{}, 1, 2], ids=["ddp", "zero1", "zero2"])
def test_a_parameter_without_elements(kind):
    run_ranks(2, "weft", check_no_elements, kind)


def check_buffers_and_optimizers(rank):
    """Batch norm's statistics are rank 0's, and weft's optimizer finds gradients in the buckets."""
    def build():
        torch.manual_seed(rank)
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)).bfloat16()

    model = weft.DistributedDataParallel(build())
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.01, max_norm=1.0, zero_gradients=True)
    scaler = weft.amp.GradScaler(init_scale=8.0)
    for step in range(3):
        inputs, targets = (one.bfloat16() for one in rows_of(rank, 2, batch(step, ROWS)))
        scaler.scale(nn.functional.mse_loss(model(inputs), targets)).backward()
        views = [p.grad for p in model.parameters()]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert all(p.grad is view and not view.any() for p, view in zip(model.parameters(), views))
    model(inputs)
    return [p.detach().float() for p in model.parameters()] + [b.float() for b in model.buffers()][:2]


def test_buffers_and_wefts_optimizers():
    first, second = run_ranks(2, "weft", check_buffers_and_optimizers)
    for one, other in zip(first[:-2], second[:-2]):
        assert torch.equal(one, other)


def check_wrapper_goes(rank):
    """Its model is left with no hooks, at once and not when Python next looks for cycles, and can be wrapped again."""
    module = small_model()
    gc.disable()
    wrapper = weakref.ref(weft.DistributedDataParallel(module))
    assert wrapper() is None
    for _ in range(rank):  # ranks on their own: nothing is sent
        loss_of(module, rows_of(rank, 2, batch(0, ROWS))).backward()
    module.zero_grad()
    again = weft.DistributedDataParallel(module)
    loss_of(again, rows_of(rank, 2, batch(0, ROWS))).backward()
    return [p.grad.clone() for p in module.parameters()]


def test_a_wrapper_goes_with_its_hooks():
    first, second = run_ranks(2, "weft", check_wrapper_goes)
    assert all(torch.equal(one, other) for one, other in zip(first, second))


def error_of(call):
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


def check_wrong_use(rank):
    wider = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4 + rank))
    assert "parameter 2 is 1.weight of shape (4, 4)" in error_of(lambda: weft.DistributedDataParallel(wider))
    frozen = nn.Linear(2, 2).requires_grad_(False)
    assert "no parameter that requires a gradient" in error_of(lambda: weft.DistributedDataParallel(frozen))
    double = nn.Linear(2, 2).double()
    assert "parameter weight is torch.float64" in error_of(lambda: weft.DistributedDataParallel(double))

    model = weft.DistributedDataParallel(small_model())
    data = rows_of(rank, 2, batch(0, ROWS))
    kept = model.module[0].weight
    model.module[0].weight = nn.Parameter(torch.zeros(16, 8))
    assert "parameter 0.weight was replaced" in error_of(lambda: model(data[0]))
    model.module[0].weight = kept
    model.module.append(nn.Linear(4, 4))
    assert "parameter 5.weight came after" in error_of(lambda: model(data[0]))
    del model.module[5]
    loss_of(model, data).backward()  # and goes on


def test_wrong_use_is_named():
    run_ranks(2, "weft", check_wrong_use)


def check_left_backward(rank, make):
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    module = nn.Sequential(first, second)
    model = make(module) or module
    first.register_forward_hook(lambda module, args, output: FailsInBackward.apply(output))
    assert "of the user's" in error_of(model(torch.ones(1, 8)).sum().backward)
    assert "backward was left by an exception" in error_of(lambda: model(torch.ones(1, 8)))


def make_zero(stage, module):
    module.optimizer = weft.ZeroOptimizer(module, weft.optim.SGD, stage=stage, lr=0.1)


@pytest.mark.parametrize(
    "make",
    [
        weft.DistributedDataParallel,
        functools.partial(weft.DistributedDataParallel, wait_in_step=True),
        functools.partial(make_zero, 1),
        functools.partial(make_zero, 2),
    ],
    ids=["ddp", "waits in step", "zero1", "zero2"],
)
def test_a_backward_left_by_an_exception_is_named(make):
    run_ranks(2, "weft", check_left_backward, make)


def check_gloo(rank):
    assert "back end for the CPU is gloo" in error_of(lambda: weft.DistributedDataParallel(small_model()))


def test_needs_weft():
    run_ranks(1, "gloo", check_gloo)
    assert "init_process_group" in error_of(lambda: weft.DistributedDataParallel(copy.deepcopy(small_model())))
