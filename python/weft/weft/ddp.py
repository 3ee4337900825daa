"""Replicated models on the library's own buckets."""

from __future__ import annotations

import contextlib

import torch

from weft import backend, bare, memory, replicas, speeds, tuning
from weft.travelling import TravellingGradient


class _Gradients(replicas.GradientViews):
    def take(self, index: int) -> None:
        self._owner().wait()  # another backward without a forward
        super().take(index)


class DistributedDataParallel(torch.nn.Module):
    """torch.nn.parallel.DistributedDataParallel on weft's buckets: memory that all ranks see, into which backward writes
    gradients and from which they are averaged while backward goes on.

    Collective. Rank 0's parameters and buffers count. On the CPU, or each rank's on a GPU, where no step waits for it (with
    find_unused_parameters each does, for the other ranks'); the process group's back end is weft. Every .grad is a view
    into a bucket; ``zero_grad(set_to_none=False)``, or weft's optimizers' ``zero_gradients``, saves a copy of each. Where
    the wrapper goes, as with torch's, the module it held trains by itself from then on.

    bucket_cap_mb, first_bucket_mb  how large buckets are; the first is small, so that sending begins early. Absent: what suits
                                    the model and the group's all_reduce, timed now (``weft.speeds.bucket_mb``), from 1 to 25
    broadcast_buffers               rank 0's buffers go to all ranks before each forward in training
    find_unused_parameters          ranks ask each other who has which gradient; a parameter that none has one of keeps
                                    its .grad. Otherwise such a gradient counts as zero, or as what .grad has of passes before
    wait_in_step                    backward does not wait for the last averages: step() of weft's optimizers updates what has come
                                    while the rest travels, where no norm of all gradients is asked for first. Until then .grad
                                    is a ``travelling.TravellingGradient``: what else computes with one waits, as wait() does.
                                    Not while autotune tries, nor with find_unused_parameters; on a GPU nobody waits anyway
    autotune                        in so many first steps buckets of several sizes are tried, of equal bits, and the fastest
                                    kept (``tuning``); gradients move then, so neither data_ptr()s nor numpy() of them may be
                                    held. True: 100; 0 or False: none; absent: WEFT_AUTOTUNE, or none; none where bucket_cap_mb is given.
                                    On GPUs nothing is tried
    """

    def __init__(
        self,
        module: torch.nn.Module,
        process_group=None,
        *,
        bucket_cap_mb: float | None = None,
        first_bucket_mb: float = 1,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
        wait_in_step: bool = False,
        autotune: int | bool | None = None,
    ):
        super().__init__()
        if first_bucket_mb <= 0 or (bucket_cap_mb is not None and bucket_cap_mb <= 0):
            raise ValueError("weft.DistributedDataParallel: buckets must be larger than 0 MB")
        if wait_in_step and find_unused_parameters:
            raise ValueError(
                "weft.DistributedDataParallel: wait_in_step needs to know at backward's end which gradients there are; leave it or "
                "find_unused_parameters out"
            )
        self.module = module
        device = replicas.device_of(module)
        self.process_group, group = replicas.group_of(process_group, device)
        named = replicas.trained_parameters(module, "DistributedDataParallel")
        replicas.check_alike(named, self.process_group, "DistributedDataParallel")
        asked = 0 if autotune is None and bucket_cap_mb is not None else autotune
        steps = tuning.steps_of(asked, self.process_group, device=device)
        bucket_cap_mb = speeds.bucket_mb(named, self.process_group, bucket_cap_mb)
        untrained = [p.data for p in module.parameters() if not p.requires_grad]
        replicas.broadcast(list(module.buffers()) + untrained, self.process_group)
        self._buckets = backend.extension().Replicas(
            group,
            [parameter.detach() for _, parameter in named],
            first_bytes=max(1, int(first_bucket_mb * 2**20)),
            bytes=max(1, int(bucket_cap_mb * 2**20)),
            find_unused=find_unused_parameters,
            rebuild=steps > 0,
            account=memory.account(),
        )
        views = [self._buckets.gradient(index) for index in range(len(named))]
        self._gradients = _Gradients(named, views, self)
        self._travelling = {}  # by index
        self._stand_ins = []
        if wait_in_step and device.type == "cpu":
            self._stand_ins = [TravellingGradient(self, index, p, view) for index, ((_, p), view) in enumerate(zip(named, views))]
        bare.keep(self, named)
        self._find_unused = find_unused_parameters
        self._broadcast_buffers = broadcast_buffers
        self._sync = True
        self._generation = self._buckets.generation()
        self.tuning = tuning.begun(self._buckets, steps)
        self._follow()

    def forward(self, *inputs, **kwargs):
        self.before_forward()
        return self.module(*inputs, **kwargs)

    def __getstate__(self):
        raise TypeError("weft.DistributedDataParallel: it cannot be copied or pickled; copy its module, or save its state_dict()")

    def before_forward(self) -> None:
        """What forward() does ahead of the module's, for who calls the module itself. Collective."""
        self._gradients.check_ended("DistributedDataParallel")
        self.wait()
        replicas.check_unchanged(self.module, self._gradients.named, self._gradients.views, "DistributedDataParallel", False)
        if self.tuning is not None and not self.training:
            self.tuning.skip()
        if self._broadcast_buffers and self._sync and self.training:
            replicas.broadcast(list(self.module.buffers()), self.process_group)

    @contextlib.contextmanager
    def no_sync(self):
        """Within it gradients are added up and not sent; the next backward outside sends the sums."""
        before = self._sync
        self.set_sync(False)
        try:
            yield
        finally:
            self.set_sync(before)

    def set_sync(self, sync: bool) -> None:
        """no_sync() for passes that are no block of a program: False begins it, True ends it."""
        self.wait()
        self._sync = sync
        self._buckets.set_sync(sync)

    def bytes(self) -> dict:
        """What the wrapper holds on this rank."""
        return {"gradients": self._buckets.bytes()}

    def _follow(self):
        """Views lie where the buckets are."""
        if self._generation != self._buckets.generation():
            self._generation = self._buckets.generation()
            self._buckets.follow(self._gradients.views)

    def gradient_ready(self, index: int) -> None:  # replicas.GradientViews calls this and the next
        self._buckets.mark_ready(index)

    def backward_ended(self) -> None:
        if self._sync:
            for index in self._gradients.take_rest():  # of passes before, with nothing of this one
                self._buckets.mark_ready(index)
        # While settings are tried, a step's end is a call of all ranks: no place for who first uses a gradient.
        settled = self.tuning is None or self.tuning.outcome is not None
        if self._stand_ins and self._sync and settled:
            self._buckets.finish_launching()
            self._travelling = dict(enumerate(self._stand_ins))
            for index, stand_in in self._travelling.items():
                self._gradients.parameters[index].grad = stand_in
            return
        self._buckets.finish()
        self._follow()
        if not self._sync:
            return
        for index in range(len(self._gradients.parameters)):
            if not self._find_unused or self._buckets.has_gradient(index):
                self._gradients.parameters[index].grad = self._gradients.views[index]
        torch.autograd.graph.increment_version(self._gradients.views)
        self._step_ended()

    def travelling_together(self) -> list[list[int]]:
        """Parameters by bucket, in the order in which they are averaged."""
        return self._buckets.plan()

    def travels(self, index: int) -> bool:
        return index in self._travelling

    def wait_for(self, indices: list[int]) -> None:
        """Until these parameters' gradients are averages."""
        for index in indices:
            self._buckets.wait(index)
            self._travelling.pop(index).arrived()
        if not self._travelling:
            self._end_travels()

    def wait(self) -> None:
        """Until all gradients are, after a backward with ``wait_in_step``; otherwise they are anyway."""
        if self._travelling:
            self._end_travels()

    def _end_travels(self) -> None:
        self._buckets.finish()
        self._follow()
        rest, self._travelling = self._travelling, {}
        for stand_in in rest.values():
            stand_in.arrived()
        self._step_ended()

    def _step_ended(self) -> None:
        if self.tuning is not None:
            self.tuning.end_step()
            self._follow()
