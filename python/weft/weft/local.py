"""This rank's part of tensors and DTensors, and norms over all parts."""

from __future__ import annotations

import functools
import math

import torch
import torch.distributed as dist

from weft import backend

WIDE, NARROW = torch.float32, (torch.bfloat16, torch.float16)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


@functools.cache
def dtensor():
    if not dist.is_available():
        return ()
    from torch.distributed.tensor import DTensor

    return DTensor


def tensor(one: torch.Tensor) -> torch.Tensor:
    """What of it lies here: the tensor itself unless it is a DTensor."""
    if type(one) in _PLAIN:  # thousands are asked for in a step
        return one
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
    if one.layout != torch.strided or not computes_on(one.device):
        return False
    return (one.dtype == WIDE or one.dtype in NARROW) and is_dense(one)


def computes_on(device: torch.device) -> bool:
    """Whether the library's kernels do: GPUs where weft was built with nvcc."""
    return device.type == "cpu" or device.type == "cuda" and hasattr(backend.extension(), "GpuOptimizer")


def devices_in_words() -> str:
    return "the CPU and GPUs" if computes_on(torch.device("cuda")) else "the CPU (this weft was built without nvcc)"


def is_dense(one: torch.Tensor) -> bool:
    """Whether its elements lie without gaps, in whatever order of dimensions."""
    return backend.extension().is_dense(one)


def _by_mesh(gradients: list, call: str) -> tuple[list, dict]:
    """What is whole here, and parts of DTensors by where the others are: (mesh, its dimensions that they are divided over)."""
    alone, parts = [], {}
    for index, gradient in enumerate(gradients):
        if not isinstance(gradient, dtensor()):
            alone.append(gradient)
            continue
        if any(placement.is_partial() for placement in gradient.placements):
            raise ValueError(f"weft: {call}: gradient {index} is a DTensor that is not summed yet; redistribute() it first")
        sharded = tuple(dim for dim, placement in enumerate(gradient.placements) if placement.is_shard())
        parts.setdefault((gradient.device_mesh, sharded), []).append(tensor(gradient))
    return alone, parts


def measure(gradients: list, kind: str, factor: float, call: str) -> tuple[float, bool]:
    """Σ(factor·g)² or, for kind "inf", max |factor·g|, and whether all of it is finite; of DTensors over all ranks that
    hold a part, which then all call this."""
    alone, parts = _by_mesh(gradients, call)
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


def measure_on_gpu(gradients: list, kind: str, inv_scale: torch.Tensor | None, max_norm: float, found_inf: torch.Tensor, call: str):
    """The same of gradients on a GPU, without waiting: the norm of inv_scale·g, inf where it is not finite, and what brings it to
    at most ``max_norm`` (0: any), tensors of one element. ``found_inf`` becomes 1 where an element is not finite."""
    alone, parts = _by_mesh(gradients, call)
    extension = backend.extension()
    if not parts:
        norm, clip = extension.measure_on_gpu(alone, kind, inv_scale, max_norm, found_inf, call)
    else:
        norms = [extension.measure_on_gpu(alone, kind, inv_scale, 0.0, found_inf, call)[0]] if alone else []
        for (mesh, sharded), mine in parts.items():
            bad = torch.zeros_like(found_inf)
            value = extension.measure_on_gpu(mine, kind, inv_scale, 0.0, bad, call)[0].double()
            numbers = torch.stack([torch.where(bad != 0, 0.0, value**2 if kind == "l2" else value), bad.double()])
            for dim in sharded:
                dist.all_reduce(numbers, dist.ReduceOp.SUM if kind == "l2" else dist.ReduceOp.MAX, mesh.get_group(dim))
            norms.append(numbers[0].sqrt() if kind == "l2" else numbers[0])
            found_inf.masked_fill_(numbers[1] != 0, 1)
        norm = torch.linalg.vector_norm(torch.stack([one.double() for one in norms]), 2 if kind == "l2" else math.inf).float()
        clip = (max_norm / (norm + 1e-6)).clamp_(max=1) if max_norm > 0 else torch.ones_like(norm)
        clip.masked_fill_(found_inf != 0, 1)
    norm.masked_fill_(found_inf != 0, math.inf)
    return norm, clip
