"""Gradients that are still being averaged when backward returns."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_map


class TravellingGradient(torch.Tensor):
    """What a parameter's .grad is until its average is there: whoever computes with it waits for all of its wrapper's. No
    numpy() and no data_ptr(): those of a tensor that shares its memory, such as ``.grad.detach()``, are right."""

    @staticmethod
    def __new__(cls, owner, index, parameter, view):
        return torch.Tensor._make_wrapper_subclass(cls, view.shape, strides=view.stride(), dtype=view.dtype, device=view.device)

    def __init__(self, owner, index, parameter, view):
        self._owner = weakref.ref(owner)  # which ends what is under way when it goes
        self.index, self.parameter, self.view = index, weakref.ref(parameter), view

    @property
    def owner(self):
        return self._owner()

    def arrived(self) -> None:
        """The average is there: the parameter's .grad is the view, unless the program has put something else there."""
        torch.autograd.graph.increment_version(self.view)
        parameter = self.parameter()
        if parameter is not None and parameter.grad is self:
            parameter.grad = self.view

    def whole(self) -> torch.Tensor:
        if self.owner is not None:
            self.owner.wait()
        return self.view

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(lambda one: one.whole() if isinstance(one, cls) else one, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __repr__(self):
        return repr(self.whole())


def await_all(parameters) -> None:
    """Until their gradients are there."""
    for parameter in parameters:
        if type(parameter.grad) is TravellingGradient:
            parameter.grad.whole()


def in_order_of_arrival(parameters: list) -> Iterator[list]:
    """Some of the parameters at a time, in the end all, as soon as their gradients are there."""
    there, owners = [], {}
    for parameter in parameters:
        gradient = parameter.grad
        if type(gradient) is not TravellingGradient or gradient.owner is None:
            await_all([parameter])
            there.append(parameter)
        else:
            owners.setdefault(gradient.owner, {})[gradient.index] = parameter
    if there:
        yield there
    for owner, mine in owners.items():
        for bucket in owner.travelling_together():
            some = [index for index in bucket if index in mine]
            if some:
                owner.wait_for(some)
                yield [mine[index] for index in some]
