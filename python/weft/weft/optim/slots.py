"""Where one parameter and what an optimizer keeps of it lie."""

from __future__ import annotations

import torch

from weft import backend, local, memory

MASTER = "master"


class Slot:
    """``target`` is what is computed with: the parameter, its float32 original, or where the elements of a parameter lie
    with gaps between them a copy without, which is brought up to date before each step and copied back after."""

    def __init__(self, parameter: torch.Tensor, copy: torch.Tensor | None, master_weights: bool):
        here = local.tensor(parameter).detach()
        self.here = here
        self.dense = here if local.is_dense(here) else torch.empty_like(here, memory_format=torch.contiguous_format)
        self.copy = copy
        self.has_master = master_weights and here.dtype in local.NARROW
        self.memory = {}  # name → (what `state` shows, what lies here)
        self.step = None
        self.version = None

    def fits(self, parameter, state: dict, names: list[str]) -> bool:
        """Whether all is still where this slot has it."""
        if local.tensor(parameter).data_ptr() != self.here.data_ptr():
            return False
        if self.step is not None and "step" in names and state.get("step") is not self.step:
            return False
        kept = [name for name in names if name != "step"] + ([MASTER] if self.has_master else [])
        return len(kept) == len(self.memory) and all(
            name in self.memory and state.get(name) is self.memory[name][0] for name in kept
        )

    def adopt(self, parameter: torch.Tensor, state: dict, names: list[str], initial: float) -> None:
        """Memory of the library's for each of `names`, with the values that `state` has, or their first ones."""
        if self.dense is not self.here:
            self.dense.copy_(self.here)
        names = names + ([MASTER] if self.has_master else [])
        sizes = [self.dense.numel()] * len(names)
        if self.dense.is_cuda:
            flats = backend.extension().state_memory_on_gpu(sizes, self.dense.device, memory.account())
        else:
            flats = backend.extension().state_memory(sizes, memory.account())
        for name, flat in zip(names, flats):
            mine = flat.as_strided(self.dense.shape, self.dense.stride())
            theirs = state.get(name)
            if theirs is not None:
                mine.copy_(local.tensor(theirs))
            elif name == MASTER:
                mine.copy_(self.here)
            elif initial != 0:
                mine.fill_(initial)
            state[name] = local.like(parameter, mine)
            self.memory[name] = (state[name], mine)
        if self.has_master:
            self._renew_master()
        self.version = self.here._version

    def place(self, index: int, cohort: int, number: torch.Tensor, state: dict, shown: bool) -> None:
        """Where it is in the core; `cohort` has steps with the others of its name. Its own are counted in `number` from now on."""
        self.index, self.cohort = index, cohort
        if shown:
            state["step"] = number
        self.step = number

    def for_core(self):
        states = [mine for name, (_, mine) in self.memory.items() if name != MASTER]
        if self.copy is not None:
            return self.copy, self.dense, states
        return self.dense, self.memory[MASTER][1] if self.has_master else None, states

    def _renew_master(self):
        """Where the parameter is not its rounded original, it was written from elsewhere, and counts."""
        master = self.memory[MASTER][1]
        master.copy_(torch.where(master.to(self.here.dtype) == self.here, master, self.here.float()))

    def read(self) -> None:
        if self.dense is not self.here:
            self.dense.copy_(self.here)
        if self.has_master and self.here._version != self.version:
            self._renew_master()

    def write(self) -> None:
        if self.dense is not self.here:
            self.here.copy_(self.dense)
        else:
            torch.autograd.graph.increment_version(self.here)
        if self.copy is not None:
            torch.autograd.graph.increment_version(self.copy)
        self.version = self.here._version
