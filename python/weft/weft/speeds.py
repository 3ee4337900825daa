"""How fast a group's all_reduce is here, and the buckets that suit it."""

from __future__ import annotations

import math
import time

import torch
import torch.distributed as dist

_FEW, _MANY = 1024, 2**20  # elements of the all_reduces that are timed
_LEAST_MB, _MOST_MB = 1, 25


def median_seconds(call, repeats: int = 5) -> float:
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return sorted(taken)[repeats // 2]


def wait_for(device: torch.device) -> None:
    """Until what was enqueued there has run."""
    if device.type != "cpu":
        torch.cuda.current_stream(device).synchronize()


def of_all_reduce(group, device: torch.device = torch.device("cpu")) -> tuple[float, float]:
    """α and β of the slowest rank: seconds of a small one, on a stream, and of each byte more. Collective."""

    def call(one):
        dist.all_reduce(one, group=group, async_op=True).wait()
        wait_for(device)

    seconds = []
    for size in (_FEW, _MANY):
        one = torch.zeros(size, device=device)
        wait_for(device)
        seconds.append(median_seconds(lambda: call(one)))
    beta = max(seconds[1] - seconds[0], 1e-9) / ((_MANY - _FEW) * 4)
    found = torch.tensor([seconds[0], beta], dtype=torch.float64, device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX, group=group)
    return tuple(found.tolist())


def bucket_mb(named: list, group, asked: float | None) -> float:
    """`asked`, or else what keeps short both what nothing hides, the last bucket, and what all of them cost besides their
    bytes: k buckets of β·B seconds in all leave β·B/k + k·α, least at k = √(β·B/α). Equal on all ranks. Collective where
    nothing is asked."""
    if asked is not None:
        return asked
    size = sum(p.numel() * p.element_size() for _, p in named)
    alpha, beta = of_all_reduce(group, named[0][1].device)
    best = size / max(1.0, math.sqrt(beta * size / alpha))
    return min(max(best / 2**20, _LEAST_MB), _MOST_MB)
