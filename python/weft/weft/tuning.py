"""Settings that a wrapper's first steps find: the library's autotuner."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from weft import backend, memory

_VARIABLE = "WEFT_AUTOTUNE"
_STEPS = 100
_MOST_STEPS = 1_000_000


def steps_of(asked: int | bool | None, process_group, otherwise: int | bool = False, device=torch.device("cpu")) -> int:
    """How many first steps may try settings: `asked`, or else what the environment says, or else `otherwise`; True: 100.
    None on a GPU, where the library tries nothing. Collective: rank 0's counts, and any rank's mistake is every rank's."""
    if device.type != "cpu" and asked is None:
        asked = 0
    steps, source = (asked, "autotune") if asked is not None else (os.environ.get(_VARIABLE, otherwise), _VARIABLE)
    if isinstance(steps, bool):
        steps = _STEPS if steps else 0
    wrong = not str(steps).isdecimal() or int(steps) > _MOST_STEPS
    everybodys = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(everybodys, str(steps) if wrong else int(steps), group=process_group)
    for rank, one in enumerate(everybodys):
        if isinstance(one, str):
            raise ValueError(
                f"weft: {source}={one} on rank {rank}: expected a number of steps up to {_MOST_STEPS}, in which settings are tried, or 0"
            )
    if device.type != "cpu" and any(everybodys):
        raise ValueError(f"weft: autotune={asked}: settings are tried on the CPU only, and the parameters are on {device}; leave it out")
    return everybodys[0]


class Tuning:
    """Tries settings of a wrapped model in its first steps, and goes on with the one whose steps are shortest: buckets'
    sizes and when they leave, or units gathered ahead and whether they stay from forward to backward. What is computed
    keeps its bits. All ranks take the same; the library writes one line on rank 0 that says what was chosen and gained.

    outcome   None, or once it has settled {"setting", "seconds", "standard", "standard_seconds", "tried", "steps", "from_cache"}
    seconds   a function of the setting's name, or None: what a step counts as, instead of what it took
    """

    def __init__(self, core, steps: int):
        workload = f"torch, {torch.get_num_threads()} threads"
        self._tuner = backend.extension().Tuner(core, memory.account(), steps, workload)
        self._counts = True
        self.seconds = None

    candidates = property(lambda self: self._tuner.candidates())
    setting = property(lambda self: self._tuner.setting())
    outcome = property(lambda self: self._tuner.outcome())

    def skip(self) -> None:
        """The step under way says nothing, since something else takes time in it."""
        self._counts = False

    def end_step(self) -> None:
        """Collective, until it has settled: a step has ended. What lies in buckets may have moved afterwards."""
        seconds = None if self.seconds is None else self.seconds(self.setting)
        self._tuner.end_step(self._counts, seconds)
        self._counts = True


def begun(core, steps: int) -> Tuning | None:
    """Collective. None where nothing is to be tried."""
    return Tuning(core, steps) if steps else None
