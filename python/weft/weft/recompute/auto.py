"""weft.auto_checkpoint(): recomputes as little as a budget of activation memory allows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper, checkpoint_wrapper

from weft import backend
from weft.recompute.rehearsal import rehearse
from weft.recompute.segments import planner_graph, record, relabelled
from weft.graph import cluster as clusters

_SHARES = (0.0, 0.5, 1.0)  # of the blocks that may only be checkpointed as a whole
_SLACK = 0.15  # by how much the planner's peak may differ from the rehearsal's
_TRIES = 5


@dataclass(frozen=True)
class CheckpointReport:
    """``peak_bytes`` of activations at one time in a step (``peak_before`` without checkpoints), and what is computed again:
    ``modules``, by name, ``flops`` of them and ``seconds`` that the cost model says."""

    budget: int
    peak_bytes: int
    peak_before: int
    modules: tuple[str, ...]
    flops: float
    seconds: float

    def __str__(self):
        return (
            f"activations {self.peak_bytes / 1e6:.1f} MB of {self.budget / 1e6:.1f} ({self.peak_before / 1e6:.1f} without "
            f"checkpoints); computed again: {len(self.modules)} modules, {self.flops / 1e9:.2f} GFLOP"
        )


class _Search:
    """Selections of modules, each rehearsed once."""

    def __init__(self, model, inputs, blocks, cluster):
        self.model, self.inputs, self.blocks = model, inputs, blocks
        self.cluster = cluster
        self.speeds = clusters.fields(cluster)
        self.modules = dict(model.named_modules())
        names = {self.modules[block]: block for block in blocks}
        for block in blocks:
            names |= {child: f"{block}.{name}" for name, child in self.modules[block].named_children()}
        self.segments, self.returned = record(model, inputs, names)
        self.tried: dict[tuple[str, ...], tuple[int, float, float]] = {}
        self.without = self.measure(())

    def measure(self, labels) -> tuple[int, float, float]:
        """(peak, seconds again, flops again)"""
        labels = tuple(sorted(labels))
        if labels not in self.tried:
            done = rehearse(self.model, self.inputs, [self.modules[label] for label in labels])
            flops, moved = done.again
            seconds = max(flops / self.speeds["flops_per_s"], moved / self.speeds["memory_bytes_per_s"])
            self.tried[labels] = done.peak, seconds, flops
        return self.tried[labels]

    def run(self, budget: int) -> None:
        """Tries what may be the cheapest selections that fit; where none does, those that take the least."""
        if self.without[0] <= budget:
            return
        graphs = []
        for share in _SHARES:
            whole = set(self.blocks[: round(share * len(self.blocks))])
            graphs.append(planner_graph(relabelled(self.segments, whole), self.returned))
        for text, labels in graphs:
            self._fit(text, labels, budget)
        if self.best(budget) is None:
            self.measure(self.blocks)
            for text, labels in graphs:
                self._shrink(text, labels)

    def _fit(self, text, labels, budget) -> None:
        """The planner does not know all that lives for a moment, so what it is asked for is what makes the rehearsal fit."""
        low, high, ask = (1 - _SLACK) * budget, (1 + _SLACK) * budget, budget
        for _ in range(_TRIES):
            chosen = self._planned(text, labels, ask)
            if chosen is not None and self.measure(chosen)[0] > budget:
                high = ask
            else:
                low = ask
            ask = (low + high) / 2

    def _shrink(self, text, labels) -> None:
        try:
            backend.extension().plan_recompute(text, self.cluster, 0)
        except torch.OutOfMemoryError as error:
            if least := re.search(r"the least found is (\d+)", str(error)):
                self.measure(self._planned(text, labels, int(least[1])) or ())

    def _planned(self, text, labels, budget) -> set[str] | None:
        """The modules to checkpoint, or None where the planner knows of none that fit."""
        try:
            plan = backend.extension().plan_recompute(text, self.cluster, int(budget))
        except torch.OutOfMemoryError:
            return None
        return {labels[op] for op in plan["again"]} - {""}

    def best(self, budget) -> tuple[str, ...] | None:
        fitting = [labels for labels, (peak, _, _) in self.tried.items() if peak <= budget]
        return min(fitting, key=lambda labels: (self.tried[labels][1], self.tried[labels][0]), default=None)


def blocks_of(model: torch.nn.Module, wanted=None) -> list[str]:
    """Names of the modules that repeat: the outermost in ModuleLists and Sequentials, or those of the classes `wanted`."""
    found: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(f"{outer}.") for outer in found):
            continue
        if wanted is not None:
            if isinstance(module, tuple(wanted)):
                found.append(name)
        elif name and isinstance(_parent(model, name), (torch.nn.ModuleList, torch.nn.Sequential)):
            if any(True for _ in module.parameters()):
                found.append(name)
    return found


def _parent(model, name):
    return model.get_submodule(name.rpartition(".")[0])


def _cluster_of(model, cluster) -> str:
    if cluster is not None:
        return clusters.text_of(cluster)
    # Only what operators cost beside one another counts: machines of a kind are alike in that.
    devices = {parameter.device.type for parameter in model.parameters()}
    named = clusters.text_of("a100-400g")
    if devices <= {"cuda"}:
        return named
    return json.dumps(json.loads(named) | {"name": "cpu", "flops_per_s": 5e10, "memory_bytes_per_s": 1e10})


def auto_checkpoint(
    model: torch.nn.Module,
    budget: int | str,
    example=None,
    *,
    blocks: list[type] | None = None,
    cluster=None,
) -> CheckpointReport | None:
    """Checkpoints (torch.utils.checkpoint) as few of a model's modules as its activations need to fit a budget:

        weft.auto_checkpoint(model, "2G", example=(tokens,))

    Candidates are the blocks that repeat, as a whole, and their children. A step is rehearsed on fake tensors: nothing is
    computed, no memory taken. Call it after precision and inputs' shapes are settled, before torch.compile and wrappers of
    data parallelism. Modules that are chosen are wrapped as torch's ``checkpoint_wrapper`` does: names in state_dicts stay.

    budget   bytes of activations at one time in a step, those computed again included ("2G" is 2e9)
    example  the forward's arguments: a tensor, a tuple, a dict of keywords; None: those of the first call that trains
    blocks   classes of blocks, where they are not the outermost modules of ModuleLists and Sequentials
    cluster  whose speeds say what computing again costs, as weft.graph.options() has it

    Returns what was chosen; None where it waits for the first call, which then leaves it in ``model.checkpoint_report``.
    ValueError where the budget cannot be met, naming the least that can be.
    """
    budget = clusters.size(budget)
    if any(isinstance(module, CheckpointWrapper) for module in model.modules()):
        raise ValueError("weft.auto_checkpoint: the model is checkpointed already; call it once, on the model as it was made")
    if example is not None:
        model.checkpoint_report = _checkpoint(model, budget, _arguments(example), blocks, cluster)
        return model.checkpoint_report

    def first(module, args, kwargs):
        if not torch.is_grad_enabled():
            return
        hook.remove()
        module.checkpoint_report = _checkpoint(module, budget, (args, kwargs), blocks, cluster)

    hook = model.register_forward_pre_hook(first, with_kwargs=True, prepend=True)
    return None


def _arguments(example):
    if isinstance(example, dict):
        return (), example
    return (tuple(example) if isinstance(example, (tuple, list)) else (example,)), {}


def _checkpoint(model, budget, inputs, blocks, cluster) -> CheckpointReport:
    names = blocks_of(model, blocks)
    if not names:
        raise ValueError(
            f"weft.auto_checkpoint: {type(model).__name__} has no ModuleList or Sequential of modules with parameters; name the "
            "classes of its blocks in blocks="
        )
    search = _Search(model, inputs, names, _cluster_of(model, cluster))
    search.run(budget)
    chosen = search.best(budget)
    if chosen is None:
        least, (peak, _, _) = min(search.tried.items(), key=lambda one: one[1][0])
        raise ValueError(
            f"weft.auto_checkpoint: {budget} bytes of activations are too few for {type(model).__name__}: {peak} are the least that "
            f"can be met, with {len(least)} modules computed again; without, it takes {search.without[0]}. Raise the budget to "
            f"{peak}, or take a smaller batch"
        )
    for label in chosen:
        model.set_submodule(label, checkpoint_wrapper(model.get_submodule(label)))
    peak, seconds, flops = search.tried[chosen]
    return CheckpointReport(budget, peak, search.without[0], chosen, flops, seconds)
