"""Which strategy a model is to be trained by: what each keeps on a rank and how long its communication and update take.

The figures are those of docs/sharding.md, "What each rank keeps" and "What is sent in a step": an all_reduce of n bytes takes
α + β·n, of which reduce_scatter and all_gather are half, and an update the bytes it reads and writes at the speed of
memory. α, β and that speed are measured here. What overlaps with computation is not counted: it is the same order.
"""

from __future__ import annotations

import dataclasses
import sys
import time

import torch
import torch.distributed as dist

from weft import backend, replicas, sizes, speeds
from weft.units import units_of

NAMES = ("ddp", "zero1", "zero2", "zero3", "hsdp")
_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3}
_BUCKET = 25 * 2**20  # the wrappers' largest
_PADDING = 1.02
_TUNER = 5 * 2**18  # the communicator of a weft.tuning.Tuning
_PIECE = 2 * 2**20  # in which FullySharded passes first values on


@dataclasses.dataclass
class Plan:
    """`seconds` and `bytes` are estimates by strategy, of those that were looked at."""

    strategy: str
    stage: int
    shard_size: int
    budget: int | None
    bytes: dict
    seconds: dict


@dataclasses.dataclass
class _Model:
    """Of the trained parameters; `states` and `widest` (the two largest neighbouring units) in bytes."""

    elements: int
    bytes: int
    states: int
    units: int
    widest: int


def _measured(model, kind, caller) -> _Model:
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise ValueError(f"{caller}: {type(model).__name__} has no parameter that requires a gradient")
    elements = sum(p.numel() for _, p in named)
    each = 8 if kind.__name__ in ("Adam", "AdamW", "Lamb") else 4
    masters = 4 * sum(p.numel() for _, p in named if p.dtype != torch.float32)
    units = units_of(model, named)
    of_units = [sum(p.numel() * p.element_size() for _, p in unit.parameters) for unit in units]
    around = max((sum(of_units[units.index(one)] for one in unit.around) for unit in units), default=0)
    widest = around + max(sum(of_units[i : i + 2]) for i in range(len(of_units)))
    return _Model(elements, sum(p.numel() * p.element_size() for _, p in named), each * elements + masters, len(units), widest)


def bytes_of(strategy: str, model: _Model, ranks: int, shard_size: int, staging: int, accumulates: bool) -> int:
    """What a rank keeps, at the most. Gradients that are added up before they are sent are whole."""
    if strategy in ("zero3", "hsdp"):
        communicators = 3 if shard_size == ranks else 4
        pools = (2 if shard_size > 1 else 1) * model.widest
        pools += model.bytes if accumulates else 0
        return int(_PADDING * ((2 * model.bytes + model.states) / shard_size + pools)) + communicators * staging + _PIECE
    states = model.states / (1 if strategy == "ddp" else ranks)
    # Gradients are whole before they are reduced, and what zero2 reduces them to lies by itself.
    parts = model.bytes / ranks if strategy == "zero2" else 0
    return int(_PADDING * (2 * model.bytes + parts + states)) + staging


def seconds_of(strategy: str, model: _Model, ranks: int, shard_size: int, alpha: float, beta: float, copy: float) -> float:
    """Of a step's collectives, one after the other, and its update."""
    updated = (2 * model.bytes + 2 * model.states) * copy
    per_byte = beta * ranks / (2 * (ranks - 1)) if ranks > 1 else 0.0  # that a rank sends
    buckets = -(-model.bytes // _BUCKET)
    if strategy == "ddp":
        return buckets * alpha + model.bytes * beta + updated
    if strategy in ("zero1", "zero2"):
        return 2 * buckets * alpha + model.bytes * beta + updated / ranks
    replicas = ranks // shard_size
    gathers = 0 if shard_size == 1 else 2 * model.units
    sent = 2 * (shard_size - 1) / shard_size + (ranks - 1) / ranks + (replicas - 1) / replicas / shard_size
    collectives = gathers + model.units * (1 if replicas == 1 else 2)
    # Gradients are copied to where they are reduced.
    return collectives * alpha + sent * model.bytes * per_byte + updated / shard_size + 2 * model.bytes * copy


def _speeds(group, device) -> tuple[float, float, float]:
    """α, β and seconds a byte of a copy, of the slowest rank."""
    alpha, beta = speeds.of_all_reduce(group, device)
    large = torch.zeros(2**20, device=device)

    def copied():
        large.copy_(large.roll(1))
        speeds.wait_for(device)

    copy = speeds.median_seconds(copied) / (4 * large.numel() * 4)
    slowest = torch.tensor([copy], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return alpha, beta, slowest.item()


def _shard_size(ranks: int, wanted: int | None, caller: str) -> int:
    if wanted is None:
        return max((size for size in range(1, ranks) if ranks % size == 0), default=1)
    if wanted < 1 or ranks % wanted != 0:
        raise ValueError(f"{caller}: shard_size is {wanted}; it must divide the number of ranks, {ranks}")
    return wanted


def choose(model, kind, strategy: str, group, budget: int | str | None, shard_size: int | None, accumulates=False, tunes=False, caller="weft.compose") -> Plan:
    """Collective. The strategy named, or of "auto" the one whose step takes least of those that fit the budget. `tunes`:
    first steps will try settings. `caller` is named by errors."""
    ranks = dist.get_world_size(group)
    size = _shard_size(ranks, shard_size, caller)
    group_sizes = {name: size if name == "hsdp" else ranks if name == "zero3" else 0 for name in NAMES}
    if budget is not None:
        budget = sizes.of(budget, f"{caller}: memory_budget")
    measured = _measured(model, kind, caller)
    device = replicas.device_of(model)
    _, weft_group = replicas.group_of(group, device)
    staging = backend.extension().staging_bytes(weft_group)
    tuner = _TUNER if tunes else 0
    needs = {name: tuner + bytes_of(name, measured, ranks, group_sizes[name] or ranks, staging, accumulates) for name in NAMES}
    fitting = [name for name in NAMES if budget is None or needs[name] <= budget]
    if kind.__name__ == "Lamb":
        fitting = [name for name in fitting if name == "ddp"]
    seconds = {}
    if strategy not in fitting and (strategy != "auto" or not fitting):
        raise ValueError(f"{caller}: {_too_little(model, kind, strategy, ranks, budget, needs, fitting)}")
    if strategy == "auto":
        speeds = _speeds(group, device)
        seconds = {name: seconds_of(name, measured, ranks, group_sizes[name] or ranks, *speeds) for name in NAMES}
        strategy = min(fitting, key=lambda name: seconds[name])
        if dist.get_rank(group) == 0:
            print(_reason(strategy, seconds, needs, fitting, budget), file=sys.stderr)
    return Plan(strategy, _STAGES[strategy], size if strategy == "hsdp" else 0, budget, needs, seconds)


def _too_little(model, kind, strategy, ranks, budget, needs, fitting) -> str:
    if budget is None:
        return f"{kind.__name__} needs norms of whole parameters; take strategy ddp for it"
    largest, parameter = max(model.named_parameters(), key=lambda one: one[1].numel())
    wanted = NAMES if strategy == "auto" else [strategy]
    return (
        f"memory_budget is {budget / 2**20:.1f} MiB, but {type(model).__name__} with {kind.__name__} takes, "
        f"beside activations, on each of {ranks} ranks (MiB): {', '.join(f'{name} {needs[name] / 2**20:.1f}' for name in wanted)}"
        f"{'; ' * bool(fitting)}{', '.join(fitting)}{' would fit' * bool(fitting)}. "
        f"Its largest parameter is {largest}, {parameter.numel() * parameter.element_size() / 2**20:.1f} MiB"
    )


def _reason(chosen, seconds, needs, fitting, budget) -> str:
    figures = (
        f"{name} {1e3 * seconds[name]:.2f} ms {needs[name] / 2**20:.1f} MiB{'' if name in fitting else ' (does not fit)'}"
        for name in NAMES
    )
    limit = "no budget" if budget is None else f"budget {budget / 2**20:.1f} MiB"
    return (
        f"weft: compose: strategy {chosen}: least communication and update of those that fit ({limit}), estimated: "
        f"{', '.join(figures)}"
    )
