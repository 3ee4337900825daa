"""Parameters that travel from their owners while the forward that needs them begins."""

from __future__ import annotations

import functools
import weakref

from weft import backend
from weft.units import units_of


def _absent(name, tensor):
    """What the parameter is until it is waited for."""
    return backend.extension().absent_tensor(
        tensor,
        f"weft.ZeroOptimizer: parameter {name} is on its way from the rank that updates it, and was used outside of its unit's "
        "module; call optimizer.wait() before, or leave out wait_by_unit",
    )


class UnitArrivals:
    """After a step each unit's parameters are waited for where its module's forward begins, and are not there before: who
    uses them nevertheless gets an error that names one. What is in no unit is waited for by the model's own forward.

    `core.wait_parameter(index)` waits for the parameter that `tensors[index]` is laid over.
    """

    def __init__(self, module, named, tensors, core):
        self._parameters = [parameter for _, parameter in named]
        self._tensors, self._core = tensors, core
        self._absent = [_absent(name, tensor) for (name, _), tensor in zip(named, tensors)]
        self._missing = set()
        index_of = {parameter: index for index, parameter in enumerate(self._parameters)}
        arrivals = weakref.ref(self)  # Python does not find cycles through parameters' hooks
        for unit in units_of(module, named):
            mine = [index_of[parameter] for _, parameter in unit.parameters]
            unit.module.register_forward_pre_hook(functools.partial(lambda mine, *_: arrivals().wait(mine), mine))

    def depart(self):
        """A step has sent them all."""
        for parameter, absent in zip(self._parameters, self._absent):
            parameter.data = absent
        self._missing.update(range(len(self._parameters)))

    def wait(self, indices=None):
        """For all where none are given."""
        for index in self._missing.intersection(indices) if indices is not None else sorted(self._missing):
            self._core.wait_parameter(index)
            self._parameters[index].data = self._tensors[index]
            self._missing.discard(index)

    def kept(self):
        """What each parameter is now."""
        return [self._absent[i] if i in self._missing else tensor for i, tensor in enumerate(self._tensors)]
