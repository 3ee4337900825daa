"""How much of a run's communication was hidden under computation."""

from __future__ import annotations

import atexit
import json
import sys
from collections import Counter, defaultdict

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from weft.backend import extension, weft_of

_TOTALS = ["step_ms", "compute_ms", "communication_ms", "hidden_ms", "exposed_ms", "idle_ms", "hideable_ms"]

_started = False


def start() -> None:
    """Records from now on, forgetting what was recorded before; a step ends with every optimizer's step()."""
    global _started
    loaded = extension()
    loaded.record_overlap()
    if not _started:
        register_optimizer_step_post_hook(lambda *_: loaded.end_step())
    _started = True


def start_from_environment() -> None:
    """What WEFT_REPORT=1 asks for: records, and prints rank 0's report at exit."""
    if extension().report_wanted():
        start()
        atexit.register(_print_at_exit)
        _remember_rank()


def _remember_rank() -> None:
    # The group may be gone at exit.
    import functools

    from torch.distributed import distributed_c10d

    init = distributed_c10d.init_process_group

    @functools.wraps(init)
    def init_and_remember(*arguments, **named):
        init(*arguments, **named)
        _Run.rank, _Run.ranks = dist.get_rank(), dist.get_world_size()
        _Run.has_begun = True

    dist.init_process_group = distributed_c10d.init_process_group = init_and_remember


class _Run:
    rank, ranks = 0, 1
    has_begun = False  # else this may be torchrun, which has nothing to tell


def report() -> Report:
    if dist.is_initialized():
        _Run.rank, _Run.ranks = dist.get_rank(), dist.get_world_size()
    made = Report(extension().overlap_steps(), _Run.rank, _Run.ranks)
    which = made.typical()
    if which is not None:  # now: recording may start afresh
        title = f"{made.who}, step {which} (the first is 0), the median of those alike"
        made.typical_step = extension().format_step(which, title)
    return made


def _print_at_exit() -> None:
    made = report()
    if made.rank == 0 and (made.steps or _Run.has_begun):
        print(made.table(), file=sys.stderr, end="", flush=True)


def _why_nothing() -> str:
    if not _started:
        return "start with WEFT_REPORT=1, or call weft.record_overlap() before the collectives"
    return "none of CPU tensors has run on a group of weft's since recording began; calls on GPUs are not seen"


class Report:
    """One rank's collectives and messages, step by step. A call's time is exposed where the thread that called it did not
    run meanwhile, and hidden otherwise; where collectives overlap one another, a step's totals count time once."""

    def __init__(self, steps: list[dict], rank: int, ranks: int) -> None:
        self.steps = steps
        self.rank = rank
        self.ranks = ranks
        self.who = f"weft: rank {rank} of {ranks}"
        self.typical_step = ""  # call by call, for table()

    def alike(self) -> list[int]:
        """The numbers of the steps that make the calls most steps make. Others set up a model, whose ranks wait for one
        another, or still arrange their buckets."""
        shapes = [tuple((one["operation"], one["bytes"]) for one in step["collectives"]) for step in self.steps]
        if not shapes:
            return []
        # Of shapes that are equally frequent the last.
        shape, _ = max(Counter(reversed(shapes)).items(), key=lambda item: item[1])
        return [index for index, one in enumerate(shapes) if one == shape]

    def typical(self) -> int | None:
        """The number of the median step, by exposed time, of alike()."""
        alike = self.alike()
        return sorted(alike, key=lambda index: self.steps[index]["exposed_ms"])[len(alike) // 2] if alike else None

    def of_steps(self, numbers: list[int]) -> Report:
        """A report of some of the steps."""
        return Report([self.steps[number] for number in numbers], self.rank, self.ranks)

    def totals(self) -> dict:
        """Sums over all steps."""
        return {name: sum(step[name] for step in self.steps) for name in _TOTALS}

    def collectives(self) -> list[dict]:
        """Sums over all steps for each kind of collective: operation and bytes."""
        kinds: dict[tuple, dict] = defaultdict(
            lambda: {"calls": 0, "communication_ms": 0.0, "hidden_ms": 0.0, "exposed_ms": 0.0}
        )
        for step in self.steps:
            for one in step["collectives"]:
                kind = kinds[one["operation"], one["bytes"]]
                kind["calls"] += 1
                for name in ("communication_ms", "hidden_ms", "exposed_ms"):
                    kind[name] += one[name]
        return [{"operation": name, "bytes": size, **sums} for (name, size), sums in sorted(kinds.items())]

    def table(self) -> str:
        """For a terminal: a typical step call by call, then sums over those alike, and over the others."""
        if not self.steps:
            return f"weft: rank {self.rank} has recorded no collective: {_why_nothing()}\n"
        who, steps, alike = self.who, len(self.steps), self.alike()
        lines = [self.typical_step]
        lines.append(f"{who}, all {steps} steps\n" if len(alike) == steps else f"{who}, the {len(alike)} of {steps} steps alike\n")
        lines += self.of_steps(alike)._sums()
        others = [number for number in range(steps) if number not in alike]
        if others:
            lines.append(f"{who}, the other {len(others)}, which make other calls, as when models are set up\n")
            lines += self.of_steps(others)._sums()
        return "".join(lines)

    __str__ = table

    def _sums(self) -> list[str]:
        """Lines of table()."""
        lines = []
        row = "  {:<24} {:>12} {:>8} {:>17} {:>12} {:>12}\n"
        lines.append(row.format("collective", "bytes", "calls", "communication ms", "hidden ms", "exposed ms"))
        kinds = self.collectives()
        for kind in kinds:
            times = [f"{kind[name]:.3f}" for name in ("communication_ms", "hidden_ms", "exposed_ms")]
            lines.append(row.format(kind["operation"], kind["bytes"], kind["calls"], *times))
        sums = self.totals()
        times = [f"{sums[name]:.3f}" for name in ("communication_ms", "hidden_ms", "exposed_ms")]
        lines.append(row.format("total", "", sum(kind["calls"] for kind in kinds), *times))
        return lines

    def to_dict(self) -> dict:
        return {
            "rank": self.rank,
            "ranks": self.ranks,
            "typical_step": self.typical(),
            "totals": self.totals(),
            "collectives": self.collectives(),
            "steps": self.steps,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    def write_trace(self, path: str, group=None) -> None:
        """Collective over `group`: all ranks' steps, as recorded when this is called, as one file for ui.perfetto.dev, which its rank 0 writes."""
        found = weft_of(group or dist.group.WORLD, torch.device("cpu"))
        if found is None:
            raise ValueError("weft: write_trace needs a group whose back end for the CPU is weft")
        found._write_trace(str(path))

    def plot(self, path: str, group=None) -> None:
        """Collective over `group`: draws the typical step of rank 0, as it went on all ranks, as a PNG. Needs
        matplotlib on rank 0."""
        import tempfile

        if not self.steps:
            raise RuntimeError(f"weft: rank {self.rank} has recorded no collective to draw: {_why_nothing()}")
        with tempfile.TemporaryDirectory() as folder:
            trace = f"{folder}/trace.json"
            self.write_trace(trace, group)
            if dist.get_rank(group) == 0:
                from weft import plot_overlap

                step, rows = plot_overlap.rows_of([trace], self.typical())
                plot_overlap.plot(rows, str(path), f"Weft: communication under computation, step {step}")
