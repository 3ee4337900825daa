"""weft.ZeroOptimizer on GPUs, stages 1 to 3: ranks train as one process does, and share memory out."""

import pytest
import torch
import torch.distributed as dist
import weft
from gpu_models import (
    FEATURES,
    OPTIONS,
    STAGES,
    STEPS,
    Branches,
    alone,
    assert_same,
    batch,
    each_number,
    loss_of,
    meet,
    model,
    on_gpu,
    optimizer_of,
    seeded,
    sharded,
    share,
    trained,
)
from gpu_ranks import fake_only, needs_gpu, run_gpu_ranks, weft_only
from torch import nn

pytestmark = [needs_gpu, weft_only]
each_stage = pytest.mark.parametrize("kind", STAGES)


def check_sharded(gpu, kind, optimizer, passes):
    net, zero = sharded(gpu, kind, optimizer)
    trained(gpu, net, zero, passes=passes)
    with zero.whole_parameters():
        assert_same(gpu, net, alone(optimizer, passes=passes))


@fake_only
@each_number
@each_stage
@pytest.mark.parametrize(("optimizer", "passes"), [("AdamW", 1), ("SGD", 3)])
def test_sharded_optimizers_train_as_one_process(ranks, kind, optimizer, passes):
    run_gpu_ranks(ranks, check_sharded, kind, optimizer, passes)


def check_16_bits(gpu, kind):
    net, zero = sharded(gpu, kind, "SGD", dtype=torch.bfloat16)
    trained(gpu, net, zero, dtype=torch.bfloat16)
    masters = [one["master"] for one in zero.state_dict()["state"].values()]
    with zero.whole_parameters():
        for parameter, master, wanted in zip(net.parameters(), masters, alone("SGD").parameters(), strict=True):
            assert gpu.get(parameter).equal(master.bfloat16())
            torch.testing.assert_close(master, wanted.detach(), rtol=0.03, atol=0.03)


def check_norms(gpu, kind):
    net, zero = sharded(gpu, kind, "SGD", max_norm=0.05)
    trained(gpu, net, zero)
    with zero.whole_parameters():
        assert_same(gpu, net, alone("SGD", max_norm=0.05))
    here = alone("SGD", max_norm=0.05, steps=STEPS - 1)
    here.zero_grad()
    loss_of(here, batch(STEPS - 1)).backward()
    wanted = nn.utils.clip_grad_norm_(here.parameters(), 1e9)
    torch.testing.assert_close(zero.grad_norm, wanted, rtol=1e-3, atol=1e-6)


def check_scaler(gpu, kind):
    scaler = weft.amp.GradScaler(gpu.device, init_scale=1024.0, growth_interval=2)
    net, zero = sharded(gpu, kind, "SGD", scaler=scaler)
    good = 0
    for step in range(4):
        rows = gpu.put(share(good, gpu.rank))
        overflows = step == 1 and gpu.rank == dist.get_world_size() - 1
        loss = scaler.scale(loss_of(net, rows))
        (loss * float("inf") if overflows else loss).backward()
        scaler.step(zero)
        scaler.update()
        good += step != 1
    with zero.whole_parameters():
        assert_same(gpu, net, alone("SGD", steps=3))
    assert scaler.get_scale() == 1024.0  # halved, and doubled after two good steps
    assert zero.state_dict()["state"] and zero._core.step_count() == 3


three_stages = pytest.mark.parametrize("kind", ["stage 1", "stage 2", "stage 3"])


def check_unused_by_all(gpu, kind):
    """What nobody has a gradient of is not updated where that is found out."""
    net = on_gpu(gpu, Branches())
    finds = kind != "stage 3"
    zero = weft.ZeroOptimizer(net, weft.optim.AdamW, find_unused_parameters=finds, **STAGES[kind], **OPTIONS["AdamW"])
    here = Branches()
    optimizer = optimizer_of(here, "AdamW")
    for step in range(STEPS):
        net(gpu.put(share(step, gpu.rank)), step == 1).pow(2).mean().backward()
        zero.step()
        optimizer.zero_grad()
        here(batch(step), step == 1).pow(2).mean().backward()
        if not finds:
            for parameter in here.chosen.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        optimizer.step()
    with zero.whole_parameters():
        assert_same(gpu, net.first, here.first)
        if not finds:  # torch counts the steps of each parameter, ZeroOptimizer those of all
            assert_same(gpu, net.chosen, here.chosen)


def check_training_state(gpu, kind):
    """This rank's part, as torch.distributed.checkpoint takes it."""
    net, zero = sharded(gpu, kind)
    trained(gpu, net, zero)
    state = weft.TrainingState(net, zero).state_dict()
    other, again = sharded(gpu, kind)
    weft.TrainingState(other, again).load_state_dict(state)
    trained(gpu, other, again, first=STEPS, steps=2)
    with again.whole_parameters():
        assert_same(gpu, other, alone(steps=STEPS + 2))


def check_saver(gpu, kind, folder):
    net, zero = sharded(gpu, kind)
    trained(gpu, net, zero)
    saver = weft.CheckpointSaver(f"{folder}/checkpoint")
    saver.save(zero, {"epoch": 3})
    saver.wait()
    other, again = sharded(gpu, kind)
    assert weft.load_checkpoint(f"{folder}/checkpoint", again) == {"epoch": 3}
    trained(gpu, other, again, first=STEPS, steps=2)
    with again.whole_parameters():
        assert_same(gpu, other, alone(steps=STEPS + 2))


SHARDED_CHECKS = [check_16_bits, check_norms, check_scaler, check_unused_by_all, check_training_state]


@fake_only
@three_stages
@pytest.mark.parametrize("check", SHARDED_CHECKS)
def test_sharded_optimizers(kind, check):
    run_gpu_ranks(2, check, kind)


@three_stages
@fake_only
def test_checkpoints_are_saved_and_loaded(kind, tmp_path):
    run_gpu_ranks(2, check_saver, kind, str(tmp_path))


def check_states(gpu, kind):
    """A state_dict goes on in another optimizer, of weft's and of torch's."""
    net, zero = sharded(gpu, kind)
    trained(gpu, net, zero)
    state, values = zero.state_dict(), {name: one.clone() for name, one in net.state_dict().items()}
    reference = model()
    torchs = optimizer_of(reference, "AdamW")
    reference.load_state_dict({name: gpu.get(one) if one.is_cuda else one for name, one in values.items()})
    torchs.load_state_dict(state)
    trained(gpu, net, zero, first=STEPS, steps=2)
    del zero

    other, again = sharded(gpu, kind)
    other.load_state_dict(values)
    again.load_state_dict(state)
    trained(gpu, other, again, first=STEPS, steps=2)
    for step in (STEPS, STEPS + 1):
        torchs.zero_grad()
        loss_of(reference, batch(step)).backward()
        torchs.step()
    with again.whole_parameters():
        assert_same(gpu, other, reference)
    assert_same(gpu, other, reference) if kind != "stage 3" else None
    [step] = {float(one["step"]) for one in again.state_dict()["state"].values()}
    assert step == STEPS + 2


@fake_only
@three_stages
@pytest.mark.parametrize("ranks", [1, 2])
def test_state_dicts_go_on(kind, ranks):
    run_gpu_ranks(ranks, check_states, kind)


def check_hybrid(gpu):
    net, zero = sharded(gpu, "stage 3", shard_size=1)
    trained(gpu, net, zero)
    with zero.whole_parameters():
        assert_same(gpu, net, alone())


@fake_only
def test_groups_of_replicas():
    run_gpu_ranks(2, check_hybrid)


class Block(nn.Module):
    """A unit in which another lies, and a parameter that both it and the model have."""

    def __init__(self, shared):
        super().__init__()
        self.inner, self.outer, self.shared = nn.Linear(FEATURES, 12), nn.Linear(12, FEATURES), shared

    def forward(self, rows):
        return self.shared(rows) + self.outer(torch.tanh(self.inner(rows)))


def nested() -> nn.Module:
    shared = nn.Linear(FEATURES, FEATURES)
    return seeded(nn.Sequential(Block(shared), Block(shared), nn.Linear(FEATURES, 4)), 7)


def check_nested_units(gpu):
    net = nested()
    # Tied parameters stay tied.
    placed = {id(p): nn.Parameter(gpu.put(p)) for p in net.parameters()}
    for layer in net.modules():
        for name, parameter in list(layer._parameters.items()):
            layer._parameters[name] = placed[id(parameter)]
    for block in (net[0], net[1]):
        weft.fully_shard(block)
        weft.fully_shard(block.inner)
    zero = weft.ZeroOptimizer(net, weft.optim.AdamW, stage=3, poison=True, **OPTIONS["AdamW"])
    for step in range(STEPS):
        loss_of(net, gpu.put(share(step, gpu.rank))).backward()
        zero.step()
    with zero.whole_parameters():
        assert_same(gpu, net, alone(net=nested()))


@fake_only
def test_units_may_lie_in_one_another():
    run_gpu_ranks(2, check_nested_units)


def check_memory(gpu, stage, parts):
    if gpu.rank == 0:
        weft.memory.set_budget("1G")  # a new account, of both ranks since they are threads
    meet.wait()
    net = on_gpu(gpu, seeded(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), 9))
    whole = sum(p.nbytes for p in net.parameters())
    zero = weft.ZeroOptimizer(net, weft.optim.AdamW, stage=stage, lr=0.01, bucket_cap_mb=0.02, first_bucket_mb=0.02)
    for _ in range(2):
        loss_of(net, gpu.put(torch.ones(2, 64))).backward()
        zero.step()
    meet.wait()
    report = weft.memory_report()
    found = [report[kind]["live"] / 2 / whole for kind in ("parameters", "gradients", "optimizer")]
    meet.wait()
    assert found == pytest.approx(parts, rel=0.05)


@fake_only
@pytest.mark.parametrize(("stage", "parts"), [(1, [1, 1, 1]), (2, [1, 0.5, 1]), (3, [0.5, 0.5, 1])])
def test_memory_is_shared_out(stage, parts):
    run_gpu_ranks(2, check_memory, stage, parts)
