"""What ``weft-run`` runs on each rank: a script written for one process, with its optimizer, model, loaders and files made fit
for several.

    making a torch.optim optimizer   replicates the module that has its parameters, or shards the optimizer, by the strategy;
                                     Adam, AdamW, SGD and Adagrad become weft.optim's
    iterating a DataLoader           while that module trains each rank takes its share of every batch; in evaluation, all of it
    torch.save                       rank 0 writes files, the others wait; into memory each rank does
    printing                         rank 0 alone
    random numbers                   all ranks begin with rank 0's seed, which orders the data alike
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import inspect
import io
import os
import random
import runpy
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map

from weft import memory, optim, replicas, strategies
from weft.ddp import DistributedDataParallel
from weft.scaled_script import ScriptScaling
from weft.zero import ZeroOptimizer

# torch's, and weft's of the same arguments.
FUSED = {getattr(torch.optim, name): getattr(optim, name) for name in ("Adam", "AdamW", "SGD", "Adagrad")}


class Refused(Exception):
    """Said in one line, without a traceback."""


class Training:
    """The strategy, and what it has been applied to."""

    def __init__(self, options):
        self.strategy, self.precision = options.strategy, options.precision
        self.clip_grad, self.accumulate = options.clip_grad, options.accumulate
        self.shard_size, self.memory_budget = options.shard_size, options.memory_budget
        self.scaling = ScriptScaling(Refused) if self.precision == "fp16" else None
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.modules, self.optimizers, self.wrappers = [], [], []
        self.batches_shared = False
        self._inside = False  # an optimizer that is made here

    # --- optimizers ---

    def make_optimizer(self, kind: type, arguments: tuple, keywords: dict):
        """Instead of kind.__new__(): an optimizer that is made already, or one whose __init__ is to come."""
        if self._inside or issubclass(kind, (ZeroOptimizer, optim.FusedOptimizer)) or not (arguments or keywords):
            return object.__new__(kind)  # the script knows weft itself, or this is a copy
        if kind not in FUSED and self.strategy not in ("ddp", "auto"):
            names = ", ".join(one.__name__ for one in FUSED)
            raise Refused(f"--strategy {self.strategy} cannot shard {kind.__name__}; it can {names}, and --strategy ddp takes any")
        groups, options = _arguments_of(kind, arguments, keywords)
        module = _module_of(groups, kind)
        if any(module is one for one in self.modules):
            raise Refused(f"a second optimizer, {kind.__name__}, over the parameters of the same {type(module).__name__}")
        if self.scaling is not None and self.optimizers:
            raise Refused(f"--precision fp16 scales the loss of one optimizer, and {kind.__name__} is a second one; take bf16")
        self._inside = True
        try:
            plan = self._plan(kind, module)
            optimizer = (self._shard if plan.stage else self._replicate)(kind, module, groups, options, plan)
        finally:
            self._inside = False
        self._watch(module, optimizer)
        return optimizer

    def _plan(self, kind, module):
        """What compose() would do with the module; of optimizers that weft has none of, replicas alone."""
        strategy = self.strategy if kind in FUSED else "ddp"
        accumulates = self.accumulate > 1
        device = replicas.device_of(module)
        if device.type != "cpu":
            raise Refused(
                f"the {type(module).__name__} is on {device}, and weft-run trains on the CPU so far; call weft.compose() in the script"
            )
        try:
            plan = strategies.choose(
                module, kind, strategy, dist.group.WORLD, self.memory_budget, self.shard_size, accumulates, caller=f"--strategy {self.strategy}"
            )
        except ValueError as error:
            raise Refused(str(error)) from None
        if plan.budget is not None:
            memory.set_budget(plan.budget)
        return plan

    def _replicate(self, kind, module, groups, options, _):
        wrapper = DistributedDataParallel(module)
        module.register_forward_pre_hook(torch.compiler.disable(lambda *_: wrapper.before_forward()))
        self.wrappers.append(wrapper)
        if kind in FUSED:
            return _made(FUSED[kind])(groups, max_norm=self.clip_grad, **_without_torchs(options))
        optimizer = _made(kind)(groups, **options)
        if self.clip_grad is not None:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            clip = torch.nn.utils.clip_grad_norm_
            optimizer.register_step_pre_hook(lambda *_: (clip(parameters, self.clip_grad), None)[1])
        return optimizer

    def _shard(self, kind, module, groups, options, plan):
        sharding = dict(stage=plan.stage, shard_size=plan.shard_size, max_norm=self.clip_grad, groups=groups)
        scaler = self.scaling.scaler if self.scaling is not None else None
        return ZeroOptimizer(module, FUSED[kind], scaler=scaler, **sharding, **_without_torchs(options))

    def _watch(self, module, optimizer):
        self.modules.append(module)
        self.optimizers.append(optimizer)
        # A forward in training is a micro-batch; of --accumulate the last one's backward communicates.
        sharded = isinstance(optimizer, ZeroOptimizer)
        syncs = optimizer if sharded else self.wrappers[-1]
        forwards = [0]

        def count(trained, *_):
            if trained.training and torch.is_grad_enabled():
                forwards[0] += 1
                if self.accumulate > 1:
                    syncs.set_sync(forwards[0] % self.accumulate == 0)

        def check_passes(*_):
            last = forwards[0] % self.accumulate
            if last:
                raise Refused(
                    f"--accumulate {self.accumulate}, but a step of the script comes after {last}; it has to come after every "
                    f"{self.accumulate} backwards, also where an epoch ends"
                )

        # Ahead of those that the strategy has; no part of what the script compiles.
        module.register_forward_pre_hook(torch.compiler.disable(count), prepend=True)
        optimizer.register_step_pre_hook(check_passes)
        if sharded:
            optimizer.register_step_post_hook(lambda *_: optimizer.wait())  # the script reads parameters as it likes
        if self.precision != "fp32":
            module.forward = _autocast(module.forward, {"bf16": torch.bfloat16, "fp16": torch.float16}[self.precision])
        if self.scaling is not None:
            self.scaling.step_of(optimizer)
        self._watch_clipping(module, optimizer)

    def _watch_clipping(self, module, optimizer):
        sharded = isinstance(optimizer, ZeroOptimizer)
        if not sharded and self.scaling is None:
            return
        ours = {id(p) for p in module.parameters()}
        clip, clip_values = torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_

        def are_ours(parameters):
            mine = any(id(p) in ours for p in parameters)
            if mine and not sharded:
                self.scaling.unscale(optimizer)
            return mine

        def clip_grad_value_(parameters, *arguments, **keywords):
            parameters = _list_of(parameters)
            if are_ours(parameters) and sharded:
                raise Refused("the script clips values of gradients, which are sharded; take --strategy ddp")
            return clip_values(parameters, *arguments, **keywords)

        def clip_grad_norm_(parameters, max_norm, *arguments, **keywords):
            parameters = _list_of(parameters)
            if not are_ours(parameters) or not sharded:
                return clip(parameters, max_norm, *arguments, **keywords)
            # Sharded, the gradients that a rank sees are not the ones to clip by.
            if self.clip_grad != max_norm:
                raise Refused(
                    f"the script clips gradients to {max_norm}, which are sharded; pass --clip-grad {max_norm}, and the update does it"
                )
            return optimizer.grad_norm if optimizer.grad_norm is not None else torch.tensor(0.0)

        _set_clips(clip_grad_norm_, clip_grad_value_)

    # --- data ---

    def shares(self) -> bool:
        """Whether batches are of training now."""
        return torch.is_grad_enabled() and any(module.training for module in self.modules)

    def check_batch(self, samples: int) -> None:
        if samples < self.ranks:
            raise Refused(
                f"a batch of {samples} samples for {self.ranks} ranks; make batches larger, or pass drop_last=True to the "
                "DataLoader where it is the last one"
            )

    def share(self, batch: list) -> list:
        """This rank's part of a batch's indices: with those of the others all of them, as equal as can be."""
        self.check_batch(len(batch))
        self.batches_shared = True
        first, last = (len(batch) * one // self.ranks for one in (self.rank, self.rank + 1))
        return batch[first:last]

    def check_end(self, script: str) -> None:
        if not self.optimizers:
            raise Refused(
                f"{script} ended without making a torch.optim optimizer, so --strategy {self.strategy} was never applied; "
                "start it with python"
            )
        if not self.batches_shared and self.ranks > 1 and self.rank == 0:
            print(
                "weft-run: no DataLoader was iterated in training, so every rank has computed the same; load data with "
                "torch.utils.data.DataLoader, made before or after the optimizer and iterated after it",
                file=sys.stderr,
            )


def _arguments_of(kind: type, arguments: tuple, keywords: dict) -> tuple[list, dict]:
    """An optimizer's parameters or groups, and its options by name."""
    signature = inspect.signature(kind.__init__)
    bound = signature.bind(None, *arguments, **keywords).arguments
    _, (_, parameters), *options = bound.items()  # self comes first
    flat = {}
    for name, value in options:
        flat.update(value if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    listed = list(parameters)
    if listed and isinstance(listed[0], dict):
        listed = [{**group, "params": _list_of(group["params"])} for group in listed]
    return _list_of(listed), flat


def _list_of(parameters) -> list:
    listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return [one[1] if isinstance(one, tuple) else one for one in listed]  # named_parameters()


def _without_torchs(options: dict) -> dict:
    """Without what chooses among torch's implementations."""
    return {name: value for name, value in options.items() if name not in ("foreach", "fused", "capturable", "differentiable")}


@functools.cache
def _made(kind: type) -> type:
    """The class, but that one of it which Optimizer.__new__() returns complete is not initialised again."""

    class Made(kind):
        def __init__(self, *arguments, **keywords):
            if "param_groups" not in self.__dict__:
                super().__init__(*arguments, **keywords)

    Made.__name__ = Made.__qualname__ = kind.__name__
    return Made


def _module_of(groups: list, kind: type) -> nn.Module:
    """The innermost module that has all of an optimizer's parameters."""
    parameters = [p for one in groups for p in (one["params"] if isinstance(one, dict) else [one])]
    wanted = {id(p) for p in parameters}
    found = []
    for one in gc.get_objects():
        if issubclass(type(one), nn.Module):  # its type itself: a weak proxy would be asked for what may be gone
            mine = {id(p) for p in one.parameters()}
            if wanted <= mine:
                found.append((len(mine), len(list(one.modules())), one))
    if not found or not wanted:
        raise Refused(
            f"{kind.__name__} is over {len(wanted)} tensors that are not the parameters of one torch.nn.Module; make one that has "
            "them all"
        )
    return min(found, key=lambda each: each[:2])[2]


def _autocast(forward, dtype):
    def under_autocast(*arguments, **keywords):
        with torch.autocast("cpu", dtype):
            out = forward(*arguments, **keywords)
        # Losses are computed in float32.
        return tree_map(lambda leaf: leaf.float() if isinstance(leaf, torch.Tensor) and leaf.dtype == dtype else leaf, out)

    return under_autocast


@contextlib.contextmanager
def applied(training: Training):
    """torch as the script finds it."""
    optimizers, loaders = torch.optim.Optimizer, torch.utils.data.DataLoader
    save, init, iterate = torch.save, dist.init_process_group, loaders.__iter__

    def make(kind, *arguments, **keywords):
        return training.make_optimizer(kind, arguments, keywords)

    def iterated(loader):
        if training.ranks == 1:
            return iterate(loader)
        shares = training.shares()
        indexed = loader.batch_sampler is not None and not isinstance(loader.dataset, torch.utils.data.IterableDataset)
        if shares and not indexed:
            raise Refused(
                "a DataLoader without batches of its own (batch_size=None, or an IterableDataset) cannot be shared among ranks; "
                "give it a dataset with indices and a batch_size"
            )
        if shares:
            same_random_numbers()
        if indexed and not isinstance(loader.batch_sampler, _Shares):
            object.__setattr__(loader, "batch_sampler", _Shares(loader.batch_sampler, training))  # past DataLoader's own guard
        return iterate(loader)

    def refuse_group(*_, **__):
        raise Refused("the script makes a process group itself, so it is no script for one process; start it with torchrun")

    def save_once(obj, f, *arguments, **keywords):
        if isinstance(f, io.BytesIO):  # which nobody else can read; so is a tensor pickled, on whatever rank
            return save(obj, f, *arguments, **keywords)
        if training.rank == 0:
            save(obj, f, *arguments, **keywords)
        dist.barrier()

    optimizers.__new__ = staticmethod(make)
    loaders.__iter__, torch.save, dist.init_process_group = iterated, save_once, refuse_group
    clips = torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_
    try:
        with training.scaling.applied() if training.scaling is not None else contextlib.nullcontext():
            yield
    except replicas.GradientsChanged as changed:
        raise Refused(
            f"the script changes the gradient of parameter {changed.name} after backward, which is sharded by then; take "
            "--strategy ddp, or clip by norm with --clip-grad"
        ) from None
    finally:
        # Deleted, object.__new__() would refuse arguments from then on.
        optimizers.__new__ = staticmethod(lambda kind, *_, **__: object.__new__(kind))
        loaders.__iter__, torch.save, dist.init_process_group = iterate, save, init
        _set_clips(*clips)


def _set_clips(norm, value) -> None:
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        module.clip_grad_norm_, module.clip_grad_value_ = norm, value


def _least_batch(batches) -> int | None:
    """Samples of the smallest batch, where that is known beforehand."""
    if type(batches) is not torch.utils.data.BatchSampler or not type(batches.sampler).__module__.startswith("torch."):
        return None
    rest = 0 if batches.drop_last else len(batches.sampler) % batches.batch_size
    return rest or batches.batch_size


class _Shares:
    """A loader's batches, in training this rank's share of each."""

    def __init__(self, whole, training: Training):
        self._whole, self._training = whole, training

    def __iter__(self):
        shares = self._training.shares()
        least = _least_batch(self._whole) if shares else None
        if least is not None:
            self._training.check_batch(least)  # not after an epoch
        for batch in self._whole:
            yield self._training.share(list(batch)) if shares else batch

    def __len__(self) -> int:
        return len(self._whole)

    def __getattr__(self, name):
        return getattr(self.__dict__["_whole"], name)


def same_seed() -> None:
    seed = torch.tensor([torch.initial_seed() % 2**63])
    dist.broadcast(seed, 0)
    torch.manual_seed(seed.item())
    random.seed(seed.item())
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed.item() % 2**32)


def same_random_numbers() -> None:
    """Rank 0's from here on: samplers draw the order of the data, and shares that are not equally large, or of other samples,
    may have drawn unequally often."""
    numpy = sys.modules.get("numpy")
    of_torch = torch.get_rng_state()
    others = [random.getstate(), None if numpy is None else numpy.random.get_state()]
    dist.broadcast(of_torch, 0)
    dist.broadcast_object_list(others)
    torch.set_rng_state(of_torch)
    random.setstate(others[0])
    if numpy is not None:
        numpy.random.set_state(others[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="weft-run")
    parser.add_argument("--strategy", required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--clip-grad", type=float)
    parser.add_argument("--shard-size", type=int)
    parser.add_argument("--memory-budget")
    parser.add_argument("--all-output", action="store_true")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    dist.init_process_group("weft")
    if dist.get_rank() != 0 and not options.all_output:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115: as long as the process
    same_seed()
    training = Training(options)
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    try:
        with applied(training):
            try:
                runpy.run_path(options.script, run_name="__main__")
            except SystemExit as left:  # sys.exit(main())
                if left.code not in (None, 0):
                    raise
        training.check_end(options.script)
        dist.barrier()
        dist.destroy_process_group()
    except Refused as refused:
        # All ranks run the same script and come here: the first one says it, and the launcher ends the others meanwhile.
        rank = training.rank
        time.sleep(2 if rank else 0)
        print(f"weft-run: {f'rank {rank}: ' if rank else ''}{refused}", file=sys.stderr, flush=True)
        os._exit(2)  # not through what waits for the other ranks


if __name__ == "__main__":
    main()
