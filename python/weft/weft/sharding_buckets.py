"""Stages 1 and 2 of ZeRO on the library's buckets."""

from __future__ import annotations

import contextlib

import torch

from weft import backend, memory, replicas
from weft.sharding_arrivals import UnitArrivals


class BucketSharding:
    """Parameters and gradients of a module are views of buckets; of each bucket every rank updates a part.

    What ZeroOptimizer asks of it and of UnitSharding: ``core``; ``index(i)`` and ``groups``, how the core counts the
    i-th parameter and which of the optimizer's groups each of its own is; ``reduced``, there is something to step with;
    ``check_gradients()`` refuses those that were changed since;
    ``follow()`` after what may have moved buckets.

    In stage 2 a bucket of gradients has memory from the first that is written in a step until it is reduced, so there are
    no views of it: gradients are copied there.
    """

    def __init__(self, module, named, cores, group, settings, *, stage, bucket_cap_mb, first_bucket_mb, wait_by_unit):
        self._module, self._named = module, named
        self.groups = range(len(cores))
        self.core = backend.extension().ShardedReplicas(
            group,
            cores,
            stage=stage,
            first_bytes=max(1, int(first_bucket_mb * 2**20)),
            bytes=max(1, int(bucket_cap_mb * 2**20)),
            account=memory.account(),
            **settings,
        )
        self._tensors = [self.core.parameter(index) for index in range(len(named))]
        for (_, parameter), tensor in zip(named, self._tensors):
            parameter.data = tensor
        if stage == 2:
            self._gradients = replicas.GradientCopies(named, self)
        else:
            views = [self.core.gradient(index) for index in range(len(named))]
            self._gradients = replicas.GradientViews(named, views, self)
        module.register_forward_pre_hook(lambda *_: self._before_forward(), prepend=True)
        for one in module.modules():
            one.register_state_dict_pre_hook(lambda *_: self.wait())
            one.register_load_state_dict_pre_hook(lambda *_: self.wait())
        self._arrivals = UnitArrivals(module, named, self._tensors, self.core) if wait_by_unit else None
        self._generation = self.core.generation()
        self._marked, self._sync, self._under_way, self.reduced = [], True, False, False
        self._unsent = set()  # what passes under no_sync() have left; where there are none

    def index(self, position):
        return position

    def _before_forward(self):
        self._gradients.check_ended("ZeroOptimizer")
        kept = self._tensors if self._arrivals is None else self._arrivals.kept()
        replicas.check_unchanged(self._module, self._named, kept, "ZeroOptimizer")
        if self._arrivals is None:
            self.wait()

    def wait(self):
        if self._under_way:
            if self._arrivals is not None:
                self._arrivals.wait()
            self.core.wait_parameters()
            self._under_way = False

    def take_gradient(self, index, gradient):
        self.core.take_gradient(index, gradient, index in self._unsent)
        self._unsent.add(index)

    def gradient_ready(self, index):
        if not self._sync:
            self._gradients.take_back(index)
            self._marked.append(index)
            return
        self._gradients.hand_over(index)
        self.core.mark_ready(index)

    def backward_ended(self):
        if self._sync:
            self.reduced = True
            self._gradients.hand_over_rest()
        else:
            self.core.accumulate(self._marked)
            self._marked = []

    def check_gradients(self):
        self._gradients.check()

    def set_sync(self, sync):
        self._sync = sync

    def follow(self):
        """Views lie where the buckets are."""
        if self._generation != self.core.generation():
            self._generation = self.core.generation()
            self.core.follow(self._tensors, self._gradients.views)

    def after_step(self):
        self.reduced, self._under_way = False, True
        self._unsent.clear()
        self._gradients.forget()
        if self._arrivals is not None:
            self._arrivals.depart()
        torch.autograd.graph.increment_version(self._gradients.parameters)

    def shared(self):
        """Parameters are on their way from their owners, as after a step."""
        self._under_way = True
        self.wait()
        torch.autograd.graph.increment_version(self._gradients.parameters)

    def whole_parameters(self):
        return contextlib.nullcontext()

    def values(self, position):
        """What the parameter's float32 original is where a state_dict has none."""
        return self._named[position][1].detach()
