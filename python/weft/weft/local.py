"""This rank's part of tensors and DTensors, and norms over all parts."""

from __future__ import annotations

import torch
import torch.distributed as dist

from weft import backend

WIDE, NARROW = torch.float32, (torch.bfloat16, torch.float16)


def dtensor():
    if not dist.is_available():
        return ()
    from torch.distributed.tensor import DTensor

    return DTensor


def tensor(one: torch.Tensor) -> torch.Tensor:
    """What of it lies here: the tensor itself unless it is a DTensor."""
    return one.to_local() if isinstance(one, dtensor()) else one


def is_sharded(one: torch.Tensor) -> bool:
    return isinstance(one, dtensor()) and any(placement.is_shard() for placement in one.placements)


def like(one: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
    """`here` as this rank's part of what is laid out as `one` is."""
    if not isinstance(one, dtensor()):
        return here
    return dtensor().from_local(
        here, one.device_mesh, one.placements, run_check=False, shape=one.shape, stride=one.stride()
    )


def computable(one: torch.Tensor) -> bool:
    """Whether the library's kernels take it."""
    if one.layout != torch.strided or one.device.type != "cpu":
        return False
    return (one.dtype == WIDE or one.dtype in NARROW) and is_dense(one)


def is_dense(one: torch.Tensor) -> bool:
    """Whether its elements lie without gaps, in whatever order of dimensions."""
    return backend.extension().is_dense(one)


def measure(gradients: list, kind: str, factor: float, call: str) -> tuple[float, bool]:
    """Σ(factor·g)² or, for kind "inf", max |factor·g|, and whether all of it is finite; of DTensors over all ranks that
    hold a part, which then all call this."""
    alone, parts = [], {}
    for index, gradient in enumerate(gradients):
        if not isinstance(gradient, dtensor()):
            alone.append(gradient)
            continue
        if any(placement.is_partial() for placement in gradient.placements):
            raise ValueError(f"weft: {call}: gradient {index} is a DTensor that is not summed yet; redistribute() it first")
        sharded = tuple(dim for dim, placement in enumerate(gradient.placements) if placement.is_shard())
        parts.setdefault((gradient.device_mesh, sharded), []).append(tensor(gradient))
    extension = backend.extension()
    whole, finite = extension.measure_gradients(alone, kind, factor, call)
    for (mesh, sharded), mine in parts.items():
        value, good = extension.measure_gradients(mine, kind, factor, call)
        numbers = torch.tensor([value if good else 0.0, 0.0 if good else 1.0], dtype=torch.float64)
        for dim in sharded:
            dist.all_reduce(numbers, dist.ReduceOp.SUM if kind == "l2" else dist.ReduceOp.MAX, mesh.get_group(dim))
        value, bad = numbers.tolist()
        whole = whole + value if kind == "l2" else max(whole, value)
        finite = finite and bad == 0
    return whole, finite
