"""Training goes on from a checkpoint at another number of ranks and by another strategy, as if it had not stopped."""

import functools
import random

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import weft
from models import batch
from ranks import run_ranks
from torch import nn
from weft.shards import Shard, boxes


def test_boxes_are_the_range():
    rng = random.Random(1)
    for _ in range(300):
        shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(0, 4)))
        whole = torch.arange(int(torch.Size(shape).numel()))
        first = rng.randint(0, whole.numel())
        count = rng.randint(0, whole.numel() - first)
        parts = [whole.view(shape)[tuple(slice(o, o + s) for o, s in zip(*box))].flatten() for box in boxes(shape, first, count)]
        assert torch.equal(torch.cat(parts or [whole[:0]]), whole[first : first + count])
        assert len(parts) <= max(1, 2 * len(shape) - 1)


def test_a_shard_of_another_order_of_memory():
    like = torch.empty(3, 4, 2, 2).to(memory_format=torch.channels_last)
    numbers = torch.arange(48.0).view(3, 4, 2, 2).to(memory_format=torch.channels_last)
    flat = numbers.permute(0, 2, 3, 1).reshape(-1)
    shard = Shard(like, 5, flat[5:40].clone())
    seen = 0
    for item in shard.__create_write_items__("w", shard):
        block = shard.__get_tensor_shard__(item.index)
        where = tuple(slice(o, o + s) for o, s in zip(item.tensor_data.chunk.offsets, item.tensor_data.chunk.sizes))
        assert torch.equal(block, numbers[where])
        seen += block.numel()
    assert seen == 35


class Net(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.blocks = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh())
        self.head = nn.Linear(12, 4)
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)

    def forward(self, x):
        return self.head(self.blocks(x)) + self.frozen


def made(strategy, precision, seed):
    """Every rank has the same data, so that ranks may differ in number."""
    rule = functools.partial(weft.optim.AdamW, lr=0.02)
    schedule = functools.partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.9)
    return weft.compose(Net(seed), rule, schedule, strategy=strategy, precision=precision)


def steps(model, optimizer, scheduler, numbers):
    losses = []
    for number in numbers:
        inputs, targets = batch(number, 8)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.backward(loss)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def save_by_torch(rank, folder, strategy, precision):
    model, optimizer, scheduler = made(strategy, precision, 0)
    steps(model, optimizer, scheduler, range(3))
    dcp.save({"training": weft.TrainingState(model, optimizer, scheduler)}, checkpoint_id=folder)
    return steps(model, optimizer, scheduler, range(3, 6))


def load_by_torch(rank, folder, strategy, precision):
    model, optimizer, scheduler = made(strategy, precision, 5)
    dcp.load({"training": weft.TrainingState(model, optimizer, scheduler)}, checkpoint_id=folder)
    return steps(model, optimizer, scheduler, range(3, 6))


@pytest.mark.parametrize(
    ("before", "after", "precision"),
    [("zero3", "zero2", "fp32"), ("zero2", "zero3", "bf16"), ("ddp", "hsdp", "fp32"), ("zero3", "ddp", "bf16")],
)
def test_torchs_checkpoints(tmp_path, before, after, precision):
    (expected, _) = run_ranks(2, "weft", save_by_torch, tmp_path / "saved", before, precision)
    for losses in run_ranks(3, "weft", load_by_torch, tmp_path / "saved", after, precision):
        torch.testing.assert_close(losses, expected, rtol=1e-5 if precision == "fp32" else 2e-2, atol=0)


class Late(nn.Module):
    """One of its layers is used later than the others, and its first is frozen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.frozen, self.always, self.later = (nn.Linear(8, 8) for _ in range(3))
        self.frozen.requires_grad_(False)

    def forward(self, x, step):
        x = self.always(self.frozen(x))
        return self.later(x) if step >= 2 else x


def late_steps(model, optimizer, numbers):
    for number in numbers:
        optimizer.zero_grad()
        inputs, _ = batch(number, 8)
        model(inputs, number).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("saved_after", [0, 1, 3])
def test_steps_are_each_parameters(tmp_path, saved_after):
    def made():
        model = Late()
        return model, weft.optim.Adam(model.parameters(), lr=0.1)  # the frozen ones too

    model, optimizer = made()
    late_steps(model, optimizer, range(saved_after))
    dcp.save({"training": weft.TrainingState(model, optimizer)}, checkpoint_id=tmp_path / "saved", no_dist=True)
    late_steps(model, optimizer, range(saved_after, 5))
    again, other = made()
    late_steps(again, other, range(4))
    dcp.load({"training": weft.TrainingState(again, other)}, checkpoint_id=tmp_path / "saved", no_dist=True)
    late_steps(again, other, range(saved_after, 5))
    for mine, expected in zip(again.parameters(), model.parameters()):
        torch.testing.assert_close(mine, expected, rtol=0, atol=0)


def check_one_number_of_steps(rank):
    """Which earlier versions saved, and which is all that a ZeroOptimizer has."""
    model = Late()
    zero = weft.ZeroOptimizer(model, weft.optim.Adam, stage=3)
    state = weft.TrainingState(model, zero)
    saved = state.state_dict()
    state.load_state_dict({**saved, "steps": 7})
    assert zero._core.step_count() == 7
    with pytest.raises(ValueError, match="different numbers of steps"):
        state.load_state_dict({**saved, "steps": '{"always.weight": 3, "always.bias": 2}'})


def test_one_number_of_steps():
    run_ranks(1, "weft", check_one_number_of_steps)


def load_plainly(rank, folder):
    model = Net(3)
    dcp.load({"training": {"model": model.state_dict()}}, checkpoint_id=folder)
    state = {"training": {"model": model.state_dict()}}
    dcp.load(state, checkpoint_id=folder)
    return state["training"]["model"]


def whole_state(rank, folder):
    model, optimizer, scheduler = made("zero3", "fp32", 0)
    steps(model, optimizer, scheduler, range(2))
    state = weft.TrainingState(model, optimizer, scheduler)
    elements = sum(one.values.numel() for one in state.state_dict()["model"].values() if isinstance(one, Shard))
    dcp.save({"training": state}, checkpoint_id=folder)
    return model.state_dict(), elements


def test_a_plain_module_loads_it(tmp_path):
    """And each rank saves its part alone."""
    results = run_ranks(3, "weft", whole_state, tmp_path / "saved")
    (loaded,) = run_ranks(1, "weft", load_plainly, tmp_path / "saved")
    trained = sum(p.numel() for p in Net(0).parameters() if p.requires_grad)
    assert sum(elements for _, elements in results) == trained
    for name, value in results[0][0].items():
        torch.testing.assert_close(loaded[name], value, rtol=0, atol=0)


def save_by_weft(rank, folder, stage):
    model = Net(0)
    zero = weft.ZeroOptimizer(model, weft.optim.Adam, stage=stage, lr=0.02)
    losses = [one_step(model, zero, number) for number in range(2)]
    saver = weft.CheckpointSaver(folder)
    saver.save(zero, {"epoch": 3, "name": "x"})
    saver.wait()
    with pytest.raises(TypeError, match="SGD is not sharded"):
        saver.save(torch.optim.SGD([torch.zeros(2)], lr=1))
    return losses + [one_step(model, zero, number) for number in range(2, 4)]


def one_step(model, optimizer, number):
    inputs, targets = batch(number, 8)
    loss = nn.functional.mse_loss(model.train(False)(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def load_by_weft(rank, folder, stage):
    model = Net(0)
    with torch.no_grad():
        model.head.weight.fill_(9.0)
    zero = weft.ZeroOptimizer(model, weft.optim.Adam, stage=stage, lr=0.02)
    assert weft.load_checkpoint(folder, zero) == {"epoch": 3, "name": "x"}
    return [one_step(model, zero, number) for number in range(2, 4)]


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_the_librarys_checkpoints(tmp_path, before, after):
    (expected, _) = run_ranks(2, "weft", save_by_weft, tmp_path / "saved", before)
    for losses in run_ranks(3, "weft", load_by_weft, tmp_path / "saved", after):
        torch.testing.assert_close(losses, expected[2:], rtol=1e-5, atol=0)
