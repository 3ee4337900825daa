"""A module's forward, cut where it enters and leaves the modules that may be checkpointed, as the planner takes it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field

import torch

from weft.recompute.rehearsal import ActivationLedger, faked, in_forward, tensors, work_of


@dataclass
class Segment:
    """Operators that follow one another in one module (`label`; "" outside of all)."""

    label: str
    flops: float = 0.0
    bytes: float = 0.0
    made: dict[int, int] = field(default_factory=dict)  # memories, and their bytes
    read: set[int] = field(default_factory=set)  # memories of earlier segments
    saved: set[int] = field(default_factory=set)  # for backward


class Recorder(ActivationLedger):
    """Takes down the operators of a forward. Memories are numbered, since storages come and go."""

    def __init__(self, known):
        super().__init__(known)
        self.segments: list[Segment] = []
        self.path: list[str] = []
        self._held = []  # every storage, so that no address is used twice
        self._number: dict[int, int] = {}
        self._outside = {id(one.untyped_storage()) for one in known}
        self._held += [one.untyped_storage() for one in known]

    def _segment(self) -> Segment:
        label = "\n".join(self.path)
        if not self.segments or self.segments[-1].label != label:
            self.segments.append(Segment(label))
        return self.segments[-1]

    def number(self, one) -> int | None:
        return self._number.get(id(one.untyped_storage()))

    def ran(self, call, args, kwargs, results):
        if not in_forward():
            return
        segment = self._segment()
        flops, moved = work_of(call, args, kwargs, results)
        segment.flops += flops
        segment.bytes += moved
        for one in tensors((args, kwargs)):
            number = self.number(one)
            if number is not None and number not in segment.made:
                segment.read.add(number)
        for one in tensors(results):
            storage = one.untyped_storage()
            if id(storage) not in self._outside and id(storage) not in self._number:
                self._held.append(storage)
                self._number[id(storage)] = len(self._held)
                segment.made[len(self._held)] = storage.nbytes()

    def pack(self, one):
        number = self.number(one)
        if number is not None:
            self._segment().saved.add(number)
        return one


def record(model: torch.nn.Module, inputs, names: dict[torch.nn.Module, str]) -> tuple[list[Segment], set[int]]:
    """The forward's segments, labelled by the paths of the modules in `names` that they run in, and the memories that are
    returned."""
    hooks = []
    with torch.random.fork_rng(devices=[]), faked(model, inputs) as ((args, kwargs), state):
        recorder = Recorder(state + tensors((args, kwargs)))

        def enter(module, _):
            recorder.path.append(names[module])

        def leave(*_):
            recorder.path.pop()

        for module in names:
            hooks.append(module.register_forward_pre_hook(enter))
            hooks.append(module.register_forward_hook(leave, always_call=True))
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [hook.remove() for hook in hooks])
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(recorder.pack, lambda one: one))
            with recorder:
                results = model(*args, **kwargs)
        returned = {recorder.number(one) for one in tensors(results)} - {None}
    return recorder.segments, returned


def relabelled(segments: list[Segment], whole: set[str]) -> list[Segment]:
    """Segments by the innermost module, but those of blocks in `whole` by the block; glue within other blocks belongs to
    none."""
    merged: list[Segment] = []
    for one in segments:
        path = one.label.split("\n") if one.label else []
        block = next((label for label in path if label in whole), None)
        label = block or (path[-1] if len(path) > 1 else "")
        if not merged or merged[-1].label != label:
            merged.append(Segment(label))
        last = merged[-1]
        last.flops += one.flops
        last.bytes += one.bytes
        last.made |= one.made
        last.saved |= one.saved
        last.read |= one.read - set(last.made)
    return merged


def planner_graph(segments: list[Segment], returned: set[int]) -> tuple[str, list[str]]:
    """As an OpGraph's JSON, and of each of its operators the label that is checkpointed if that runs again.

    A module that is checkpointed keeps what it was given, and what it returns is there for those that read it: so it is two
    operators, one that makes what others read, at no cost, and one for what only its own backward needs, which may run again.
    """
    crossing = set().union(returned, *(one.read for one in segments))
    ops, tensors_, labels = [], [], []
    written: set[int] = set()

    def add(label, **op):
        ops.append({"name": f"op{len(ops)}", "kind": "compute", **op})
        labels.append(label)

    def names(numbers):
        return [f"t{number}" for number in sorted(numbers)]

    for one in segments:
        tensors_ += [{"name": f"t{number}", "bytes": size} for number, size in one.made.items()]
        reads = one.read & written
        outward = set(one.made) & crossing
        inward = {number for number in one.made if number in one.saved} - outward
        ran = f"ran{len(ops)}"  # what others read is made once, from a first run that cannot be put off
        tensors_.append({"name": ran, "bytes": 1})
        add(one.label, reads=names(reads), writes=[*names(inward), ran], flops=one.flops, memory_bytes=one.bytes,
            repeatable=bool(one.label))  # fmt: skip
        add("", reads=[*names(reads), ran], writes=names(outward), seconds=0.0, repeatable=False)
        written |= outward | inward
    needed = written & returned
    for one in reversed(segments):
        before = [ops[-1]["name"]]
        add("", reads=names((one.saved & written) | needed), writes=[], after=before, seconds=0.0, repeatable=False)
        needed = set()
    return json.dumps({"weft_graph": 1, "name": "forward", "tensors": tensors_, "ops": ops}), labels
