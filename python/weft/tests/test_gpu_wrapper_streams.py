"""What wrappers do on streams of a GPU: warm steps wait for nothing, passes may be on other streams."""

import itertools
import threading

import pytest
import torch
import weft
from gpu_models import SMALL, STEPS, meet, alone, assert_same, loss_of, model, on_gpu, plain, sharded, share, update
from gpu_ranks import fake_only, needs_gpu, run_gpu_ranks, weft_only
from test_gpu_replicas import check_replicas
from test_gpu_zero import check_sharded

pytestmark = [needs_gpu, weft_only]


def waits(gpu) -> int:
    """Of all ranks so far, which are here."""
    meet.wait()
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
    meet.wait()
    step()
    step()
    after = waits(gpu)
    meet.wait()
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
