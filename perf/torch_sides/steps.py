"""Stock DDP's step, and many small all_reduces."""
import contextlib
import os
from time import perf_counter_ns

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from torch_sides.ranks import slowest

LAYERS, WIDTH, BATCH = 24, 1024, 16
BUCKETS = [1, 7, 7, 7, 2]  # layers in each of DDP's buckets: they close beyond 1 MB, then beyond 25 MB
SMALL_TENSORS, SMALL_FLOATS = 150, 256


def _idle_hook(_, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


class Steps:
    """Forward and backward of LAYERS × Linear(WIDTH, WIDTH): without an optimizer, which would dilute what DDP adds."""

    def __init__(self, groups, meet):
        self.meet = meet
        self.weft = groups["weft"]
        layer = WIDTH * WIDTH + WIDTH
        self.buckets = [torch.zeros(layer * layers) for layers in BUCKETS]
        self.data = torch.randn(BATCH, WIDTH)
        self.models = {}
        for views, name in ((True, "views"), (False, "buckets")):
            for side in ("weft", "idle", "gloo"):
                self.models[f"{side} {name}"] = self._model(groups["gloo" if side == "gloo" else "weft"], views, side)
        self.models["divided views"] = self._divided(groups["weft"])
        self.models["no_sync"] = self.models["idle views"]

    @staticmethod
    def _model(group, views, side):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        model = DistributedDataParallel(layers, process_group=group, gradient_as_bucket_view=views)
        if side == "idle":
            model.register_comm_hook(None, _idle_hook)
        return model

    @classmethod
    def _divided(cls, group):
        """The idle hook's model, whose gradients are divided by the ranks as stock DDP does, each as soon as it is there."""
        def divide(parameter):
            parameter.grad.div_(group.size())

        model = cls._model(group, True, "idle")
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(divide)
        return model

    def _step(self, model):
        model.zero_grad()
        model(self.data).square().mean().backward()

    def _alone(self, steps):
        """Microseconds of the all_reduces of a step, when nothing computes beside them."""
        taken = []
        for turn in range(steps + 2):
            for bucket in self.buckets:
                bucket.fill_(turn)
            self.meet()
            begin = perf_counter_ns()
            for work in [dist.all_reduce(bucket, group=self.weft, async_op=True) for bucket in self.buckets]:
                work.wait()
            taken.append(perf_counter_ns() - begin)
        return slowest(taken[2:])

    def _timed_step(self, name, model):
        with model.no_sync() if name == "no_sync" else contextlib.nullcontext():
            self.meet()
            begin = perf_counter_ns()
            self._step(model)
            return perf_counter_ns() - begin

    def measure(self, steps):
        """side → microseconds of a step, of one round, in which the sides take turns step by step."""
        times = {name: [] for name in self.models}
        for _ in range(steps + 1):
            for name, model in self.models.items():
                times[name].append(self._timed_step(name, model))
        for model in self.models.values():
            model.zero_grad()
        return {"alone": self._alone(steps), **{name: slowest(taken[1:]) for name, taken in times.items()}}


class Small:
    """SMALL_TENSORS all_reduces of SMALL_FLOATS floats, as one gradient after the other would be."""

    def __init__(self, groups, meet, core):
        self.groups, self.meet, self.core = groups, meet, core
        self.tensors = [torch.ones(SMALL_FLOATS) for _ in range(SMALL_TENSORS)]

    def _blocking(self, group):
        for tensor in self.tensors:
            dist.all_reduce(tensor, group=group)

    def _asynchronous(self, group):
        for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in self.tensors]:
            work.wait()

    def _coalesced(self, group):
        with dist._coalescing_manager(group):
            for tensor in self.tensors:
                dist.all_reduce(tensor, group=group)

    def measure(self, times):
        """"SIDE FORM" → microseconds of all of them, of one round."""
        found = {}
        for form, call in (("blocking", self._blocking), ("async", self._asynchronous), ("coalesced", self._coalesced)):
            for side in ("weft", "gloo", "fake"):
                (self.core.free if side == "gloo" else self.core.bind)()
                taken = []
                for turn in range(times + 2):
                    for tensor in self.tensors:
                        tensor.fill_(turn)
                    self.meet()
                    begin = perf_counter_ns()
                    call(self.groups[side])
                    taken.append(perf_counter_ns() - begin)
                    assert side == "fake" or all(tensor[-1].item() == 2 * turn for tensor in self.tensors)
                found[f"{side} {form}"] = slowest(taken[2:])
        self.core.free()
        return found
