"""weft's wrappers of models on a GPU: what ranks train is what one process trains on all of their data, and no step waits."""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest
import torch
import torch.distributed as dist
import weft
from gpu_ranks import ON_A_GPU, fake_only, needs_gpu, run_gpu_ranks, weft_only
from torch import nn
from weft import replicas

pytestmark = [needs_gpu, weft_only]
FEATURES, STEPS, ROWS = 8, 3, 6  # rows: of a batch, divided by 1, 2 and 3 ranks
SMALL = dict(first_bucket_mb=1e-4, bucket_cap_mb=4e-4)  # several buckets
_meet = threading.Barrier(2)  # of ranks that are threads
each_number = pytest.mark.parametrize("ranks", [1, 2, 3])


def seeded(net: nn.Module, seed: int) -> nn.Module:
    # By a generator of its own: ranks may be threads.
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return net


def model() -> nn.Module:
    return seeded(nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 4)), 3)


def on_gpu(gpu, net: nn.Module, dtype=torch.float32) -> nn.Module:
    with torch.no_grad():
        for layer in net.modules():
            for name, parameter in list(layer._parameters.items()):
                setattr(layer, name, nn.Parameter(gpu.put(parameter.to(dtype))))
    return net


def batch(step: int) -> torch.Tensor:
    return torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(100 + step))


def loss_of(net: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return net(rows).pow(2).mean()


def share(step: int, rank: int) -> torch.Tensor:
    return batch(step).chunk(dist.get_world_size())[rank]


# With AdamW's usual eps a gradient that rounding leaves of a sum that vanishes counts as any other.
OPTIONS = {"SGD": dict(lr=0.1, momentum=0.9), "AdamW": dict(lr=0.01, eps=1e-4)}


def optimizer_of(net: nn.Module, kind: str) -> torch.optim.Optimizer:
    return getattr(torch.optim, kind)(net.parameters(), **OPTIONS[kind])


def alone(kind="AdamW", steps=STEPS, passes=1, first=0, net=None, dtype=torch.float32, max_norm=None) -> nn.Module:
    """One process trained on the whole of each batch, on the CPU."""
    net = (net or model()).to(dtype)
    optimizer = optimizer_of(net, kind)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        for one in range(passes):
            (loss_of(net, batch(step * passes + one).to(dtype)) / passes).backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(net.parameters(), max_norm)
        optimizer.step()
    return net


def assert_same(gpu, net: nn.Module, wanted: nn.Module, rtol=1e-4, atol=1e-5) -> None:
    for (name, parameter), expected in zip(net.named_parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(
            gpu.get(parameter), expected.detach(), rtol=rtol, atol=atol, msg=lambda text: f"{name}: {text}"
        )


# --- replicas ---


def update(net: nn.Module) -> None:
    """SGD, of operators that the fake has."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(parameter.grad, alpha=-0.1)
            parameter.grad.zero_()


def plain(steps: int, passes: int = 1) -> nn.Module:
    net = model()
    for step in range(steps):
        for one in range(passes):
            (loss_of(net, batch(step * passes + one)) / passes).backward()
        update(net)
    return net


def check_replicas(gpu, buckets, passes):
    net = on_gpu(gpu, model())
    wrapped = weft.DistributedDataParallel(net, **buckets)
    for step in range(STEPS):
        for one in range(passes):
            with contextlib.nullcontext() if one + 1 == passes else wrapped.no_sync():
                (loss_of(wrapped, gpu.put(share(step * passes + one, gpu.rank))) / passes).backward()
        update(net)
    assert_same(gpu, net, plain(STEPS, passes))


@fake_only
@each_number
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("buckets", [{}, SMALL], ids=["timed", "small"])
def test_replicas_train_as_one_process(ranks, buckets, passes):
    run_gpu_ranks(ranks, check_replicas, buckets, passes)


def check_replicas_of_rank_0s_values(gpu):
    net = model()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(gpu.rank)
    net[1].register_buffer("seen", torch.tensor([float(gpu.rank)]))
    net = on_gpu(gpu, net)
    net[1].seen = gpu.put(net[1].seen)
    wrapped = weft.DistributedDataParallel(net, **SMALL)
    assert_same(gpu, net, model())
    net[1].seen.fill_(gpu.rank + 5.0)
    loss_of(wrapped, gpu.put(share(0, gpu.rank))).backward()
    assert gpu.get(net[1].seen).item() == 5


@fake_only
def test_rank_0s_values_count():
    run_gpu_ranks(2, check_replicas_of_rank_0s_values)


class Branches(nn.Module):
    """`chosen` has no gradient on ranks that leave it out."""

    def __init__(self):
        super().__init__()
        self.first, self.chosen = nn.Linear(FEATURES, 4), nn.Linear(4, 4)
        seeded(self, 5)

    def forward(self, rows, chosen):
        rows = self.first(rows)
        return self.chosen(rows) if chosen else rows


def check_unused(gpu):
    net = on_gpu(gpu, Branches())
    wrapped = weft.DistributedDataParallel(net, find_unused_parameters=True, **SMALL)
    rows = gpu.put(share(0, gpu.rank))
    wrapped(rows, False).pow(2).mean().backward()
    assert net.chosen.weight.grad is None and net.first.weight.grad is not None
    net.zero_grad()
    wrapped(rows, gpu.rank == 0).pow(2).mean().backward()
    here = Branches()
    for rank in range(2):
        (here(share(0, rank), rank == 0).pow(2).mean() / 2).backward()
    for parameter, wanted in zip(net.parameters(), here.parameters()):
        torch.testing.assert_close(gpu.get(parameter.grad), wanted.grad, rtol=1e-4, atol=1e-6)


@fake_only
def test_unused_parameters_are_found():
    run_gpu_ranks(2, check_unused)


# --- sharded ---

STAGES = {
    "stage 1": dict(stage=1, **SMALL),
    "stage 1, timed": dict(stage=1),
    "stage 2": dict(stage=2, **SMALL),
    "stage 3": dict(stage=3),
    "stage 3, kept": dict(stage=3, prefetch=2, reshard_after_forward=False),
    "stage 3, poisoned": dict(stage=3, poison=True),
}
each_stage = pytest.mark.parametrize("kind", STAGES)


def sharded(gpu, kind, optimizer="AdamW", dtype=torch.float32, **more):
    net = on_gpu(gpu, model(), dtype)
    if kind == "stage 3, poisoned":
        for layer in (net[0], net[2]):
            weft.fully_shard(layer)
    return net, weft.ZeroOptimizer(net, getattr(weft.optim, optimizer), **STAGES[kind], **OPTIONS[optimizer], **more)


def trained(gpu, net, optimizer, steps=STEPS, passes=1, first=0, dtype=torch.float32):
    for step in range(first, first + steps):
        for one in range(passes):
            with contextlib.nullcontext() if one + 1 == passes else optimizer.no_sync():
                rows = gpu.put(share(step * passes + one, gpu.rank).to(dtype))
                (loss_of(net, rows) / passes).backward()
        optimizer.step()


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
    _meet.wait()
    net = on_gpu(gpu, seeded(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), 9))
    whole = sum(p.nbytes for p in net.parameters())
    zero = weft.ZeroOptimizer(net, weft.optim.AdamW, stage=stage, lr=0.01, bucket_cap_mb=0.02, first_bucket_mb=0.02)
    for _ in range(2):
        loss_of(net, gpu.put(torch.ones(2, 64))).backward()
        zero.step()
    _meet.wait()
    report = weft.memory_report()
    found = [report[kind]["live"] / 2 / whole for kind in ("parameters", "gradients", "optimizer")]
    _meet.wait()
    assert found == pytest.approx(parts, rel=0.05)


@fake_only
@pytest.mark.parametrize(("stage", "parts"), [(1, [1, 1, 1]), (2, [1, 0.5, 1]), (3, [0.5, 0.5, 1])])
def test_memory_is_shared_out(stage, parts):
    run_gpu_ranks(2, check_memory, stage, parts)


# --- compose ---


def check_composed(gpu, strategy, precision, accumulate, **more):
    kind = "AdamW" if precision == "fp32" else "SGD"
    net, optimizer, scheduler = weft.compose(
        on_gpu(gpu, model()),
        getattr(weft.optim, kind),
        lambda one: torch.optim.lr_scheduler.StepLR(one, 100),
        strategy=strategy,
        precision=precision,
        clip_grad=0.5,
        accumulate=accumulate,
        **OPTIONS[kind],
        **more,
    )
    for number in range(STEPS * accumulate):
        optimizer.backward(loss_of(net, gpu.put(share(number, gpu.rank))))
        optimizer.step()
        scheduler.step()
    wanted = alone(kind, passes=accumulate, max_norm=0.5)
    bare = getattr(net, "module", net)
    whole = optimizer.inner.whole_parameters() if hasattr(optimizer.inner, "whole_parameters") else contextlib.nullcontext()
    close = dict(rtol=1e-4, atol=1e-5) if precision == "fp32" else dict(rtol=0.03, atol=0.03)
    with whole:
        for parameter, expected in zip(bare.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(gpu.get(parameter).float(), expected.detach(), **close)


STRATEGIES = ["ddp", "zero1", "zero2", "zero3"]
PRECISIONS = [("fp32", 1), ("fp32", 2), ("bf16", 2), ("fp16", 1)]


@fake_only
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("precision", "accumulate"), PRECISIONS)
def test_composed_training(strategy, precision, accumulate):
    run_gpu_ranks(2, check_composed, strategy, precision, accumulate)


def check_recomputed(gpu, strategy):
    check_composed(gpu, strategy, "fp32", 2, checkpoint_activations=True)


@fake_only
@pytest.mark.parametrize("strategy", ["ddp", "zero3"])
def test_composed_recomputation(strategy):
    run_gpu_ranks(2, check_recomputed, strategy)


def check_auto(gpu):
    check_composed(gpu, "auto", "fp32", 1, memory_budget="1G")


@fake_only
def test_a_strategy_is_chosen():
    run_gpu_ranks(2, check_auto)


# --- streams ---

def waits(gpu) -> int:
    """Of all ranks so far, which are here."""
    _meet.wait()
    return gpu.fake.host_waits()


def check_no_waits(gpu, kind):
    rows = gpu.put(share(0, gpu.rank))
    if kind == "replicas":
        net = on_gpu(gpu, model())
        wrapped = weft.DistributedDataParallel(net, **SMALL)

        def step():
            loss_of(wrapped, rows).backward()
            update(net)

    else:
        net, zero = sharded(gpu, kind, max_norm=1.0)

        def step():
            loss_of(net, rows).backward()
            zero.step()

    for _ in range(3):
        step()
    before = waits(gpu)
    _meet.wait()
    step()
    step()
    after = waits(gpu)
    _meet.wait()
    assert after == before
    gpu.get(rows)


@fake_only
@pytest.mark.parametrize("kind", ["replicas", "stage 1", "stage 2", "stage 3", "stage 3, kept"])
def test_a_warm_step_waits_for_nothing(kind):
    run_gpu_ranks(2, check_no_waits, kind)


def held_up(gpu) -> None:
    """What comes on the current stream is late."""
    threading.Timer(0.05, gpu.gate().open).start()


def check_streams(gpu, kind):
    """Whatever is late, on whatever stream: the program's passes are on another one than the wrapper was made on."""
    if kind == "replicas":
        net = on_gpu(gpu, model())
        wrapped = weft.DistributedDataParallel(net, **SMALL)
        optimizer = None
    else:
        net, optimizer = sharded(gpu, kind, "SGD")
        wrapped = net
    home, other = gpu.current(), gpu.stream()
    for parameter in (net[0].bias, net[4].weight):  # of the last and of the first bucket
        parameter.register_hook(lambda _: held_up(gpu))
    for step, stream in zip(range(STEPS), itertools.cycle([other, home])):
        stream.wait_stream(gpu.current()) if hasattr(stream, "wait_stream") else _follow(stream, gpu.current())
        gpu.use(stream)
        rows = gpu.put(share(step, gpu.rank))
        held_up(gpu)
        loss_of(wrapped, rows).backward()
        update(net) if optimizer is None else optimizer.step()
    if optimizer is None:
        return assert_same(gpu, net, plain(STEPS))
    with optimizer.whole_parameters():
        assert_same(gpu, net, alone("SGD"))


def check_default_stream(gpu, kind):
    """The one without a handle."""
    gpu.use(torch.cuda.default_stream(gpu.device) if gpu.fake is None else gpu.fake.default_stream(gpu.rank))
    if kind == "replicas":
        return check_replicas(gpu, SMALL, 1)
    check_sharded(gpu, kind, "SGD", 1)


@fake_only
@pytest.mark.parametrize("kind", ["replicas", "stage 1", "stage 2", "stage 3"])
def test_the_default_stream_does_as_well(kind):
    run_gpu_ranks(2, check_default_stream, kind)


def _follow(stream, leader):
    event = torch.Event(device="cuda")
    event.record(leader)
    stream.wait_event(event)


@fake_only
@pytest.mark.parametrize("kind", ["replicas", "stage 1", "stage 2", "stage 3"])
def test_passes_may_be_on_other_streams(kind):
    run_gpu_ranks(2, check_streams, kind)


# --- what is refused ---


def error_of(call) -> str:
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        call()
    return str(caught.value)


def check_refusals(gpu):
    mixed = model()
    mixed[0] = on_gpu(gpu, mixed[0])
    for wrap in (weft.DistributedDataParallel, weft.ZeroOptimizer):
        text = error_of(lambda: wrap(mixed))
        assert "Sequential's parameter 0.weight is on cuda" in text and "2.weight on cpu" in text
        text = error_of(lambda: wrap(on_gpu(gpu, model(), torch.float64)))
        assert "Sequential's parameter 0.weight is torch.float64 on cuda" in text
        assert "autotune=5" in error_of(lambda: wrap(on_gpu(gpu, model()), autotune=5))
    net = on_gpu(gpu, model())
    assert "the scaler is on cpu" in error_of(lambda: weft.ZeroOptimizer(net, scaler=weft.amp.GradScaler()))
    assert "on the CPU only" in error_of(lambda: weft.ZeroOptimizer(net, stage=3, find_unused_parameters=True))
    _, zero = sharded(gpu, "stage 2")
    loss_of(zero.module, gpu.put(share(0, gpu.rank))).backward()
    zero.module[0].weight.grad = gpu.put(torch.zeros(16, FEATURES))
    assert "0.weight was changed" in error_of(zero.step)
    if gpu.fake is not None:
        check_other_builds(gpu)


def check_other_builds(gpu):
    """Without nvcc, and without CUDA."""
    whole, replicas.local.computes_on = replicas.local.computes_on, lambda device: device.type == "cpu"
    try:
        assert "built without nvcc" in error_of(lambda: weft.ZeroOptimizer(on_gpu(gpu, model())))
        weft.DistributedDataParallel(on_gpu(gpu, model()))
    finally:
        replicas.local.computes_on = whole
    extension = replicas.backend.extension()
    whole, extension.moves_gpu_tensors = extension.moves_gpu_tensors, lambda: False
    try:
        for wrap in (weft.DistributedDataParallel, weft.ZeroOptimizer):
            text = error_of(lambda: wrap(on_gpu(gpu, model())))
            assert "Sequential's parameter 0.weight is torch.float32 on cuda" in text and "built without CUDA" in text
    finally:
        extension.moves_gpu_tensors = whole


@fake_only
def test_refusals_name_what_is_wrong():
    run_gpu_ranks(1, check_refusals)


# --- on a real GPU ---


def check_host_goes_on(gpu, kind):
    """While the GPU is held up, warm steps are enqueued, and torch waits nowhere."""
    rows = gpu.put(share(0, gpu.rank))
    if kind == "replicas":
        net = weft.DistributedDataParallel(on_gpu(gpu, model()), **SMALL)
        step = lambda: update(net)  # noqa: E731
    else:
        net, zero = sharded(gpu, kind, max_norm=1.0)
        step = zero.step
    for _ in range(3):
        loss_of(net, rows).backward()
        step()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda._sleep(4_000_000_000)  # cycles: two seconds or more
    torch.cuda.set_sync_debug_mode("error")
    try:
        begin = time.perf_counter()
        for _ in range(2):
            loss_of(net, rows).backward()
            step()
        taken = time.perf_counter() - begin
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert taken < 1, f"{taken:.2f} s on the host"


def checks_of(kind: str, ranks: int) -> list:
    """(check, arguments); all of a kind on one process group, since making one takes seconds there."""
    if kind == "compose":
        composed = zip(["ddp", "zero1", "zero2", "zero3", "ddp", "zero3"], [*PRECISIONS, ("bf16", 2), ("fp16", 1)])
        found = [(check_composed, strategy, *precision) for strategy, precision in composed]
        return found + [(check_recomputed, "ddp"), (check_recomputed, "zero3"), (check_auto,)]
    if kind == "units":
        kinds = ("stage 1, timed", "stage 3, kept", "stage 3, poisoned")
        return [(check_nested_units,), (check_hybrid,)] + [(check_sharded, one, "AdamW", 3) for one in kinds]
    if kind == "refusals":
        return [(check_refusals,)]
    if kind == "replicas":
        found = [(check_replicas, {}, 1), (check_replicas, SMALL, 3)]
        more = [(check_replicas_of_rank_0s_values,), (check_unused,)]
    else:
        found = [(check_sharded, kind, "SGD", 3)]
        more = [(check_sharded, kind, "AdamW", 1), (check_states, kind), (check_saver, kind, f"{tempfile.gettempdir()}/weft {kind}")]
        more += [(check, kind) for check in SHARDED_CHECKS]
    if ranks != 2:
        return found
    return found + more + [(check, kind) for check in (check_streams, check_default_stream, check_host_goes_on)]


def check_all(gpu, kind):
    for check, *arguments in checks_of(kind, dist.get_world_size()):
        print(gpu.rank, check.__name__, *arguments, flush=True)
        check(gpu, *arguments)
        gpu.use(gpu.stream())


KINDS = [(kind, ranks) for ranks in (1, 2, 3) for kind in ("replicas", "stage 1", "stage 2", "stage 3")]
KINDS += [("refusals", 1), ("units", 2), ("compose", 2)]


@pytest.mark.skipif(not ON_A_GPU, reason="needs a GPU, and WEFT_TEST_GPU=1")
@pytest.mark.parametrize(("kind", "ranks"), KINDS)
def test_on_a_real_gpu(kind, ranks):
    run_gpu_ranks(ranks, check_all, kind, seconds=90)


PROGRAM = """
import os, torch, weft

os.environ["NCCL_HOSTID"] = "rank" + os.environ["RANK"]  # ranks share the GPU
device = os.environ["DEVICE"]
torch.distributed.init_process_group("weft")
kept = []
for strategy in ("ddp", "zero1", "zero2", "zero3"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1)).to(device)
    model, optimizer, _ = weft.compose(model, lr=1e-2, strategy=strategy, clip_grad=1.0, autotune=0)
    torch.manual_seed(torch.distributed.get_rank())
    for step in range(200):
        data = torch.randn(128, 64, device=device)
        loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
        optimizer.backward(loss)
        optimizer.step()
    kept += [model, optimizer]
    print(strategy, loss.item(), optimizer.grad_norm.item(), flush=True)
    assert loss.item() < 4
torch.distributed.destroy_process_group()
"""


def test_programs_learn_and_end(tmp_path):
    """Whose wrappers are there until the interpreter goes."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    env = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    env.update(DEVICE="cuda" if ON_A_GPU else "cpu")
    ranks = [
        subprocess.Popen(
            [sys.executable, script], env=dict(env, RANK=str(rank)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    texts = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(texts)
    assert all(strategy in text for strategy in STRATEGIES for text in texts)
