"""weft.DistributedDataParallel on GPUs: ranks train as one process does."""

import contextlib

import pytest
import torch
import weft
from gpu_models import SMALL, STEPS, Branches, assert_same, each_number, loss_of, model, on_gpu, plain, share, update
from gpu_ranks import fake_only, needs_gpu, run_gpu_ranks, weft_only

pytestmark = [needs_gpu, weft_only]


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
