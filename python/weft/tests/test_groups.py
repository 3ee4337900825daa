"""Several groups, and barriers that name who is missing, on gloo and on weft."""

import datetime
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks


def check_subgroups(rank):
    size = dist.get_world_size()
    for _ in range(3):
        pair = dist.new_group([0, size - 1])
        if rank in (0, size - 1):
            tensor = torch.ones(2)
            dist.all_reduce(tensor, group=pair)
            assert tensor[0] == 2
            dist.destroy_process_group(pair)
        dist.barrier()
    other = dist.new_group()
    tensors = [torch.full((10,), float(rank + i)) for i in range(10)]
    works = [dist.all_reduce(t, group=other if i % 2 else None, async_op=True) for i, t in enumerate(tensors)]
    for i, (work, tensor) in enumerate(zip(works, tensors)):
        work.wait()
        assert tensor[0] == sum(r + i for r in range(size))
    dist.destroy_process_group(other)


def check_monitored_barrier(rank):
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30), wait_all_ranks=True)
    other = dist.new_group()
    if rank == 0:
        with pytest.raises(RuntimeError, match="Rank 1 failed to pass monitoredBarrier"):
            dist.monitored_barrier(other, timeout=datetime.timedelta(seconds=1))


def check_monitored_barrier_after_failures(rank):
    """Ranks that gave up, were late, or did not come agree afterwards on which barrier is which."""
    size = dist.get_world_size()
    group = dist.new_group()
    short, long = datetime.timedelta(seconds=0.3), datetime.timedelta(seconds=30)
    # All but rank 0 come and give up, twice; what they left must not let rank 0 pass later.
    for _ in range(2):
        if rank != 0:
            with pytest.raises(RuntimeError):
                dist.monitored_barrier(group, timeout=short)
    dist.barrier()
    if rank == 0:
        with pytest.raises(RuntimeError, match=f"Rank.* {size - 1} failed|Rank 1 failed"):
            dist.monitored_barrier(group, timeout=short, wait_all_ranks=True)
    dist.barrier()
    total = torch.ones(3)
    dist.all_reduce(total, group=group)
    assert total.eq(size).all()
    # Rank 0 waits for the late.
    store = dist.distributed_c10d._get_default_store()
    if rank == size - 1:
        time.sleep(1)
        store.set("late", "")
    dist.monitored_barrier(group, timeout=long)
    assert store.check(["late"])
    dist.monitored_barrier(group, timeout=long)
    dist.destroy_process_group(group)


COMMON = [check_subgroups, check_monitored_barrier]
ONLY_WEFT = {check_monitored_barrier_after_failures: "a monitored_barrier that failed leaves gloo ranks waiting"}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("check", [*COMMON, *ONLY_WEFT])
def test_group(check, ranks, backend):
    if backend == "gloo" and check in ONLY_WEFT:
        pytest.skip(ONLY_WEFT[check])
    run_ranks(ranks, backend, check)
