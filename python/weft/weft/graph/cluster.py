"""Clusters that graphs are planned for: by name, from a file, or measured where the program runs."""

from __future__ import annotations

import json
import os
import time

import torch
import torch.distributed as dist

from weft import backend


def text_of(cluster) -> str:
    """In the library's JSON, from a name, a JSON file's path, a dict of its keys, or None: measured here."""
    if cluster is None:
        cluster = measure()
    if isinstance(cluster, dict):
        cluster = json.dumps(cluster)
    elif os.path.isfile(cluster):
        with open(cluster) as file:
            cluster = file.read()
    return backend.extension().cluster_json(cluster)


def fields(text: str) -> dict:
    return json.loads(text)


def size(memory) -> int:
    """Bytes, from a number or "80G" (10^9), "70Gi" (2^30)."""
    if isinstance(memory, (int, float)):
        amount, unit = memory, ""
    else:
        digits = memory.rstrip("KMGTiB")
        amount, unit = digits, memory[len(digits) :].removesuffix("B")
    scales = {prefix: 1000**power for power, prefix in enumerate(["", "K", "M", "G", "T"])}
    scales |= {prefix + "i": 1024**power for power, prefix in enumerate(["", "K", "M", "G", "T"]) if prefix}
    try:
        result = int(float(amount) * scales[unit])
    except (ValueError, KeyError):
        raise ValueError(f"weft: memory is {memory!r}; give bytes, or text like '80G', '70Gi'") from None
    if result < 0:
        raise ValueError(f"weft: memory is {memory!r}; it must not be negative")
    return result


def measure(group=None, device: str | torch.device | None = None, *, dtype=torch.float32, repeats: int = 5) -> dict:
    """What this machine does, for cluster=: matrix products' and copies' speed on `device` (the default group's, else the CPU),
    and `group`'s link from all_reduces of two sizes. Collective over the group; the slowest rank counts, on all of them."""
    device = torch.device(device or "cpu")
    size = 1024 if device.type == "cpu" else 8192
    a = torch.ones(size, size, dtype=dtype, device=device)
    flops = 2 * size**3 / _best(lambda: a @ a, repeats, device)
    flat = torch.ones(2**24 if device.type == "cpu" else 2**28, dtype=torch.uint8, device=device)
    target = torch.empty_like(flat)
    memory = 2 * flat.numel() / _best(lambda: target.copy_(flat), repeats, device)
    ranks, step, bandwidth = 1, 0.0, 1e12
    if dist.is_available() and dist.is_initialized() and (ranks := dist.get_world_size(group)) > 1:
        step, bandwidth = _link(group, ranks, repeats, device)
    link = {"bytes_per_s": bandwidth, "step_s": step}
    found = [flops, memory, step, bandwidth]
    if ranks > 1:  # equal on all ranks, so that all plan the same
        slowest = torch.tensor([-flops, -memory, step, -bandwidth], dtype=torch.float64, device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
        found = [abs(one) for one in slowest.tolist()]
    link = {"bytes_per_s": found[3], "step_s": found[2]}
    return {
        "name": "measured",
        "ranks_per_host": max(1, ranks),
        "flops_per_s": found[0],
        "memory_bytes_per_s": found[1],
        "within": link,
        "between": link,
    }


def _link(group, ranks, repeats, device):
    """alpha and beta of an all_reduce's 2 (n - 1) steps of 1 / n of the bytes each."""
    small, large = (torch.zeros(count, dtype=torch.float32, device=device) for count in (1024, 2**21))
    times = []
    for one in (small, large):
        dist.barrier(group)
        times.append(_best(lambda: dist.all_reduce(one, group=group), repeats, device))
    steps = 2 * (ranks - 1)
    moved = [steps / ranks * 4 * one.numel() for one in (small, large)]
    per_byte = max((times[1] - times[0]) / (moved[1] - moved[0]), 1e-13)
    return max(times[0] - per_byte * moved[0], 0.0) / steps, 1 / per_byte


def _best(call, repeats, device) -> float:
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
