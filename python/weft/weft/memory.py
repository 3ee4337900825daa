"""What weft's wrappers and optimizers allocate, and how much of it there may be."""

from __future__ import annotations

import collections
import contextlib
import functools

import torch

from weft import backend, sizes


@functools.cache
def _accounts() -> list:
    return [backend.extension().MemoryAccount(None)]


def account():
    """What everything that is wrapped from here on is charged to."""
    return _accounts()[-1]


def set_budget(budget: int | str | None) -> None:
    """From here on there is a new account, of so many bytes, or of "2G" as memory_budget=: an allocation that would take it above raises
    torch.OutOfMemoryError, naming what did not fit and what the memory is used for, on every rank. None: no limit."""
    budget = None if budget is None else sizes.of(budget, "weft.memory.set_budget: budget")
    _accounts()[:] = [backend.extension().MemoryAccount(budget)]


class Report(dict):
    """Bytes by kind, ``report["optimizer"]["peak"]``; ``print(report)`` is a table in MiB."""

    def __str__(self):
        lines = [f"{'MiB':<15}{'live':>10}{'peak':>10}"]
        lines += [f"{kind:<15}{one['live'] / 2**20:>10.2f}{one['peak'] / 2**20:>10.2f}" for kind, one in self.items()]
        return "\n".join(lines)


class _Counted:
    """Bytes of storages that autograd holds on to, each once."""

    def __init__(self):
        self._charge = backend.extension().MemoryCharge(account(), 0)
        self._holders = collections.Counter()  # by storage
        self._bytes = 0

    def hold(self, storage, sign):
        key, size = storage._cdata, storage.nbytes()
        before = self._holders[key] > 0
        self._holders[key] += sign
        if before != (self._holders[key] > 0):
            self._bytes += sign * size
            self._charge.set(self._bytes)


class _Saved:
    def __init__(self, tensor, counted):
        self.tensor, self._counted, self._storage = tensor, counted, tensor.untyped_storage()
        counted.hold(self._storage, 1)

    def __del__(self):
        self._counted.hold(self._storage, -1)


@contextlib.contextmanager
def counted_activations(model: torch.nn.Module):
    """Within it the report's activations are what autograd saves in forward, until backward gives it up; parameters, and what
    recomputation keeps by itself, are not. Costs a call of Python's for each saved tensor: to look at a step, not to train."""
    counted = _Counted()

    def pack(tensor):
        storage = tensor.untyped_storage()._cdata
        kept = any(storage == p.untyped_storage()._cdata for p in model.parameters())
        return tensor if kept else _Saved(tensor, counted)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one.tensor if isinstance(one, _Saved) else one):
        yield


_KINDS = {kind: kind for kind in ("parameters", "gradients", "optimizer", "communication", "activations", "other", "total")}
_KINDS["optimizer"] = "optimizer states"  # the library's word


def report() -> Report:
    """This rank's, of what the library allocates for wrappers and optimizers that were made since the last budget."""
    usage = account().usage()
    kinds = Report({kind: dict(zip(("live", "peak"), usage[librarys])) for kind, librarys in _KINDS.items()})
    # Kinds are read one after another, while streams may allocate.
    kinds["total"]["live"] = sum(one["live"] for kind, one in kinds.items() if kind != "total")
    return kinds
