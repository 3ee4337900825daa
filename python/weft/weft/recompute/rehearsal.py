"""A training pass of a module on fake tensors: what it would keep and compute, without memory or time of its own."""

from __future__ import annotations

import contextlib
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry


def tensors(tree) -> list[torch.Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, torch.Tensor)]


def in_forward() -> bool:
    """Also where a forward is run again within backward."""
    return torch._C._current_graph_task_id() == -1 or torch.is_grad_enabled()


class ActivationLedger(TorchDispatchMode):
    """Bytes of the storages that forward made, and makes again, while they live. ``peak`` is the most at one time; real and
    fake tensors alike. Gradients, and what backward needs for a moment, are not activations."""

    def __init__(self, known=()):
        super().__init__()
        self.live = self.peak = 0
        self._seen = weakref.WeakSet()
        for one in known:
            self._seen.add(one.untyped_storage())

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        results = call(*args, **(kwargs or {}))
        if in_forward():
            for one in tensors(results):
                self._made(one.untyped_storage())
        self.ran(call, args, kwargs or {}, results)
        return results

    def _made(self, storage):
        if storage in self._seen:
            return
        self._seen.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, size).atexit = False

    def _gone(self, size):
        self.live -= size

    def ran(self, call, args, kwargs, results):
        """For those that look at operators as well."""


class Rehearsal(ActivationLedger):
    """One that also adds up the work that is done again: ``again`` is (flops, bytes moved)."""

    def __init__(self, known=()):
        super().__init__(known)
        self.again = [0.0, 0.0]

    def ran(self, call, args, kwargs, results):
        if torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled():
            flops, moved = work_of(call, args, kwargs, results)
            self.again[0] += flops
            self.again[1] += moved


def work_of(call, args, kwargs, results) -> tuple[float, float]:
    """Flops, and bytes read and written; views move nothing."""
    counter = flop_registry.get(call.overloadpacket)
    flops = float(counter(*args, **kwargs, out_val=results)) if counter else 0.0
    made, read = tensors(results), tensors((args, kwargs))
    storages = {id(one.untyped_storage()) for one in read}
    if made and all(id(one.untyped_storage()) in storages for one in made) and not call._schema.is_mutable:
        return flops, 0.0
    return flops, float(sum(one.numel() * one.element_size() for one in made + read))


@contextlib.contextmanager
def faked(model: torch.nn.Module, inputs):
    """(args, kwargs) as fake tensors, while the model's parameters and buffers are fake ones as well."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(one):
        return mode.from_tensor(one)

    state = {name: fake(one) for name, one in (*model.named_parameters(), *model.named_buffers())}
    with mode, _reparametrize_module(model, state, tie_weights=True):
        yield tree_map_only(torch.Tensor, fake, inputs), tensors(list(state.values()))


@contextlib.contextmanager
def checkpointed(modules):
    """Within it these modules' forward is checkpointed."""
    for module in modules:
        module.forward = _again(module.forward)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _again(forward):
    return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, **kwargs)


def rehearse(model: torch.nn.Module, inputs, modules=()) -> Rehearsal:
    """Forward and backward with `modules` checkpointed."""
    with torch.random.fork_rng(devices=[]), faked(model, inputs) as ((args, kwargs), state):
        with torch.enable_grad(), checkpointed(modules), Rehearsal(state + tensors((args, kwargs))) as ledger:
            backward(model(*args, **kwargs))
            return ledger


def backward(outputs) -> None:
    ends = [one for one in tensors(outputs) if one.requires_grad]
    if not ends:
        raise ValueError("weft.auto_checkpoint: nothing that the model returns requires a gradient; are its parameters frozen?")
    torch.autograd.backward(ends, [torch.ones_like(one) for one in ends])
