"""What updates an optimizer's tensors: the library's optimizers of one device, over torch's tensors."""

from __future__ import annotations

import dataclasses

import torch

from weft import backend


@dataclasses.dataclass
class Inputs:
    """What a step multiplies gradients with, and whether it is one: numbers on the host, tensors of one element on a GPU."""

    inv_scale: float | torch.Tensor | None = None
    clip: float | torch.Tensor | None = None
    found_inf: torch.Tensor | None = None  # on a GPU: not 0, nothing is updated and the step does not count


class HostCore:
    """All parameters', whose numbers count over all groups."""

    def __init__(self, groups, slots, master_weights, zero_gradients, steps):
        """`groups`: kind and options of each; `slots`: those of each, their numbers counted through; `steps`: that each has had."""
        entries = [(kind, options, [slot.for_core() for slot in mine]) for (kind, options), mine in zip(groups, slots)]
        self._core = backend.extension().TensorOptimizer(entries, master_weights, zero_gradients)

    @staticmethod
    def options(given: dict) -> dict:
        """As the core keeps them."""
        return {**given, "lr": float(given["lr"])}

    def takes(self, numbers) -> bool:
        """Whether it can make a step of just these."""
        return True

    def set_options(self, group, kind, options):
        self._core.set_options(group, kind, options)

    def step(self, numbers, gradients, steps, inputs: Inputs):
        """`steps`: how many each has had, which this counts."""
        inv_scale, clip = (1.0 if one is None else one for one in (inputs.inv_scale, inputs.clip))
        self._core.step(numbers, gradients, steps, inv_scale, clip)


@dataclasses.dataclass
class _Cohort:
    """Parameters of one group that have stepped together since they first did, and whose steps one number on the GPU counts."""

    group: int
    first: int
    end: int
    core: object
    lr: torch.Tensor | None = None


class GpuCore:
    """The same, by cohorts, which are neighbours. Where one is to step in part, a new core has to divide it; divided ones stay so, or
    parameters whose gradients come and go would make cores without end."""

    def __init__(self, groups, slots, master_weights, zero_gradients, steps):
        self._cohorts = []
        for group, ((kind, options), mine) in enumerate(zip(groups, slots)):
            first = 0
            for end in range(1, len(mine) + 1):
                if end < len(mine) and mine[first].cohort == mine[end].cohort:
                    continue
                tensors = [slot.for_core() for slot in mine[first:end]]
                core = backend.extension().GpuOptimizer(
                    kind, _numbers(options), tensors, int(steps[mine[first].index]), master_weights, zero_gradients
                )
                self._cohorts.append(_Cohort(group, mine[first].index, mine[end - 1].index + 1, core, _on_gpu(options["lr"])))
                first = end

    @staticmethod
    def options(given: dict) -> dict:
        lr = given["lr"]
        return given if isinstance(lr, torch.Tensor) and lr.is_cuda else HostCore.options(given)

    def takes(self, numbers) -> bool:
        wanted = set(numbers)
        whole = sum(cohort.end - cohort.first for cohort in self._cohorts if cohort.first in wanted)
        return whole == len(wanted) and all(
            number in wanted for cohort in self._cohorts if cohort.first in wanted for number in range(cohort.first, cohort.end)
        )

    def set_options(self, group, kind, options):
        for cohort in self._cohorts:
            if cohort.group == group:
                cohort.core.set_options(kind, _numbers(options))
                cohort.lr = _on_gpu(options["lr"])

    def step(self, numbers, gradients, steps, inputs: Inputs):
        by_number = dict(zip(numbers, gradients))
        counts = 1 if inputs.found_inf is None else inputs.found_inf.eq(0)
        stepping = [cohort for cohort in self._cohorts if cohort.first in by_number]
        done = []
        try:
            for cohort in stepping:
                mine = [by_number[number] for number in range(cohort.first, cohort.end)]
                cohort.core.step(mine, cohort.lr, inputs.inv_scale, inputs.clip, inputs.found_inf)
                done.append(cohort)
        finally:  # what was enqueued counts, whatever refused the next one
            if len(done) == len(self._cohorts):
                steps += counts
            else:
                for cohort in done:
                    steps[cohort.first : cohort.end] += counts


def _on_gpu(lr) -> torch.Tensor | None:
    """A learning rate that is read there, when a step runs."""
    return lr if isinstance(lr, torch.Tensor) else None


def _numbers(options):
    return options if _on_gpu(options["lr"]) is None else {**options, "lr": 0.0}
