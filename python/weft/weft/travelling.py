"""Gradients that are still being averaged when backward returns."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_map


_ABOUT = ("shape dtype device layout ndim requires_grad is_leaf grad_fn is_sparse is_cuda is_cpu is_meta is_quantized is_nested "
          "itemsize nbytes").split()
# What the stand-in can tell by itself. Whatever else is asked waits.
_TOLD_AT_ONCE = {getattr(torch.Tensor, name).__get__ for name in _ABOUT} | {
    torch.Tensor.size, torch.Tensor.stride, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.element_size,
    torch.Tensor.is_contiguous, torch.Tensor.is_floating_point, torch.Tensor.__hash__,
}  # fmt: skip


class TravellingGradient(torch.Tensor):
    """What a parameter's .grad is until its average is there: whoever asks for more than its shape and type waits for all of
    its wrapper's."""

    @staticmethod
    def __new__(cls, owner, index, parameter, view):
        return torch.Tensor._make_wrapper_subclass(cls, view.shape, strides=view.stride(), dtype=view.dtype, device=view.device)

    def __init__(self, owner, index, parameter, view):
        self._owner = weakref.ref(owner)  # which ends what is under way when it goes
        self.position, self.parameter, self.place = index, weakref.ref(parameter), view

    @property
    def owner(self):
        return self._owner()

    def arrived(self) -> None:
        """The average is there: the parameter's .grad is the view, unless the program has put something else there."""
        torch.autograd.graph.increment_version(self.place)
        parameter = self.parameter()
        if parameter is not None and parameter.grad is self:
            parameter.grad = self.place

    def whole(self) -> torch.Tensor:
        if self.owner is not None:
            self.owner.wait()
        return self.place

    @classmethod
    def _of_whole(cls, func, args, kwargs):
        args, kwargs = tree_map(lambda one: one.whole() if isinstance(one, cls) else one, (args, kwargs or {}))
        return func(*args, **kwargs)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # what Python calls
        if func in _TOLD_AT_ONCE:
            return super().__torch_function__(func, types, args, kwargs or {})
        return cls._of_whole(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # what C++ does, as autograd
        return cls._of_whole(func, args, kwargs)

    def __repr__(self):
        return repr(self.whole())

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.whole(), memo)

    def __reduce_ex__(self, protocol):
        return self.whole().__reduce_ex__(protocol)


def await_all(parameters) -> None:
    """Until their gradients are there; none is a stand-in then."""
    for parameter in parameters:
        gradient = parameter.grad
        if type(gradient) is TravellingGradient:
            gradient.whole()
            if type(parameter.grad) is TravellingGradient:  # one that was put back later
                parameter.grad = gradient.place


def in_order_of_arrival(parameters: list) -> Iterator[list]:
    """Some of the parameters at a time, in the end all, as soon as their gradients are there."""
    there, owners = [], {}
    for parameter in parameters:
        gradient = parameter.grad
        travels = type(gradient) is TravellingGradient and gradient.parameter() is parameter
        if not travels or gradient.owner is None or not gradient.owner.travels(gradient.position):
            await_all([parameter])
            there.append(parameter)
        else:
            owners.setdefault(gradient.owner, {})[gradient.position] = parameter
    if there:
        yield there
    for owner, mine in owners.items():
        for bucket in owner.travelling_together():
            some = [index for index in bucket if index in mine]
            if some:
                owner.wait_for(some)
                yield [mine[index] for index in some]
