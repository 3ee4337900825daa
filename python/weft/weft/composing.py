"""One call that makes a model, its optimizer and its schedule ready for training on many ranks."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from weft import amp, bare, memory, optim, replicas, strategies, tuning
from weft.ddp import DistributedDataParallel
from weft.units import blocks_of
from weft.zero import ZeroOptimizer

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def compose(
    model: torch.nn.Module,
    optimizer=optim.AdamW,
    lr_scheduler_fn=None,
    *,
    strategy: str = "ddp",
    precision: str = "fp32",
    clip_grad: float | None = None,
    accumulate: int = 1,
    checkpoint_activations: bool = False,
    memory_budget: int | str | None = None,
    shard_size: int | None = None,
    autotune: int | bool | None = None,
    process_group=None,
    **options,
):
    """Returns (model, optimizer, scheduler) for the loop

        for data in loader:
            optimizer.backward(loss_of(model(data)))
            optimizer.step()
            scheduler.step()

    in which every `accumulate`-th step updates: backward() takes the part of the loss that is due, and step() of both does
    nothing in between. All ranks call it. Losses are those of torch's DistributedDataParallel with the same optimizer, of
    equal bits where no norm is taken, whatever the strategy.

    optimizer               one of weft.optim's or torch.optim's classes, which `options` go to (or a functools.partial of
                            one), or an optimizer over the model's parameters, whose class and groups are taken
    lr_scheduler_fn         makes a torch.optim.lr_scheduler of the optimizer that is returned; absent: there is none
    strategy                ddp, zero1, zero2, zero3, hsdp (zero3 in groups of `shard_size` ranks), or auto: the fastest by
                            weft.strategies' estimate that fits the budget; rank 0 writes in one line which and why
    precision               bf16 and fp16: parameters are 16-bit with float32 originals, floating-point inputs are converted,
                            outputs float32 again, and fp16's loss is scaled
    clip_grad               to this norm over all parameters and ranks
    checkpoint_activations  blocks (see weft.fully_shard) are computed again in backward instead of kept
    autotune                so many first updates try settings, of equal bits, and keep the fastest (``optimizer.tuning``;
                            weft.DistributedDataParallel and ZeroOptimizer say more); 0: none; absent: WEFT_AUTOTUNE, or 100
    memory_budget           bytes, or "2G" (of 1024, as 2Gi and 2GiB), of this rank for all that the library allocates, and parameters; activations
                            are the program's. What cannot fit is refused before anything is made.
    """
    dtype = _checked(precision, strategy, accumulate)
    device = replicas.device_of(model)
    group, _ = replicas.group_of(process_group, device)
    bare.check(model, "compose")
    kind, groups, options = _rule(model, optimizer, options)
    model.to(dtype)
    autotune = tuning.steps_of(autotune, group, otherwise=True, device=device)
    plan = strategies.choose(model, kind, strategy, group, memory_budget, shard_size, accumulate > 1, autotune > 0)
    memory.set_budget(plan.budget)
    if checkpoint_activations:
        for block in blocks_of(model):
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    scaler = amp.GradScaler(device) if precision == "fp16" else None
    if plan.strategy == "ddp":
        wrapped = DistributedDataParallel(model, process_group=group, wait_in_step=True, autotune=autotune)
        inner = kind(groups(model), max_norm=clip_grad, zero_gradients=True, **options)
    else:
        wrapped = model
        sharding = dict(stage=plan.stage, process_group=group, max_norm=clip_grad, scaler=scaler, autotune=autotune)
        inner = ZeroOptimizer(model, kind, groups=groups(model), shard_size=plan.shard_size, **sharding, **options)
    if dtype != torch.float32:
        _convert(wrapped, dtype)
    composed = ComposedOptimizer(wrapped, inner, scaler, accumulate, plan)
    scheduler = None if lr_scheduler_fn is None else ComposedScheduler(lr_scheduler_fn(composed), composed)
    return wrapped, composed, scheduler


def _checked(precision, strategy, accumulate):
    if precision not in PRECISIONS:
        raise ValueError(f"weft.compose: precision is {precision!r}; it must be one of {', '.join(PRECISIONS)}")
    if strategy != "auto" and strategy not in strategies.NAMES:
        raise ValueError(f"weft.compose: strategy is {strategy!r}; it must be auto or one of {', '.join(strategies.NAMES)}")
    if int(accumulate) != accumulate or accumulate < 1:
        raise ValueError(f"weft.compose: accumulate is {accumulate}; it must be a whole number above 0")
    return PRECISIONS[precision]


def _rule(model, optimizer, options):
    """The class of weft.optim's, what makes its groups of the model, and its options."""
    if isinstance(optimizer, functools.partial):
        optimizer, options = optimizer.func, {**optimizer.keywords, **options}
    given = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
    name = getattr(optimizer if given is None else type(optimizer), "__name__", repr(optimizer))
    kind = getattr(optim, name, None) if name in optim.__all__ else None
    if kind is None:
        raise ValueError(f"weft.compose: optimizer is {name}; it must be one of {', '.join(optim.__all__)}")
    if given is None:
        return kind, lambda module: [{"params": [p for p in module.parameters() if p.requires_grad]}], options
    names = {parameter: name for name, parameter in model.named_parameters()}
    for index, group in enumerate(given.param_groups):
        for position, parameter in enumerate(group["params"]):
            if parameter not in names:
                raise ValueError(
                    f"weft.compose: parameter {position} of the optimizer's group {index}, of shape {tuple(parameter.shape)}, "
                    f"is none of the {type(model).__name__}'s; make the optimizer of this model's parameters"
                )
    known = {"lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "momentum", "dampening", "nesterov", "lr_decay"}
    known |= {"initial_accumulator_value", "params"}
    groups = [{key: value for key, value in group.items() if key in known} for group in given.param_groups]
    return kind, lambda module: groups, options


def _convert(module, dtype):
    def to(wanted, tree):
        return tree_map(lambda one: one.to(wanted) if isinstance(one, torch.Tensor) and one.is_floating_point() else one, tree)

    module.register_forward_pre_hook(lambda _, args, kwargs: to(dtype, (args, kwargs)), with_kwargs=True, prepend=True)
    module.register_forward_hook(lambda _, args, output: to(torch.float32, output))


class ComposedOptimizer(torch.optim.Optimizer):
    """What compose() returns: ``inner`` is the optimizer, ``scaler`` the one of fp16, ``plan`` the strategy and why."""

    def __init__(self, model, inner, scaler, accumulate, plan):
        # Not torch's: groups and states are the inner one's.
        self.model, self.inner, self.scaler, self.accumulate, self.plan = model, inner, scaler, accumulate, plan
        self.updated = False  # by the last step()
        self._passes = 0  # since the last update
        self._ready = False
        model.register_forward_pre_hook(lambda *_: self._before_forward(), prepend=True)

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)
    defaults = property(lambda self: self.inner.defaults)
    grad_norm = property(lambda self: self.inner.grad_norm)
    tuning = property(lambda self: self._sharding.tuning)

    @property
    def _sharding(self):
        return self.model if isinstance(self.model, DistributedDataParallel) else self.inner

    def _before_forward(self):
        if torch.is_grad_enabled() and self.accumulate > 1:
            self._sharding.set_sync(self._passes + 1 == self.accumulate)

    def backward(self, loss: torch.Tensor) -> None:
        """Of loss / accumulate, scaled where the precision asks for it."""
        if self._ready:
            raise RuntimeError("weft.compose: backward() again without step(); add the losses up and call it once")
        loss = loss / self.accumulate if self.accumulate > 1 else loss
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        self._ready = True

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._ready:
            module = getattr(self.model, "module", self.model)
            parameter = next(name for name, p in module.named_parameters() if p.requires_grad)
            raise RuntimeError(
                f"weft.compose: step() without optimizer.backward(loss): no parameter of the {type(module).__name__}, such as "
                f"{parameter}, has a gradient since the last step"
            )
        self._ready = False
        self._passes += 1
        self.updated = self._passes == self.accumulate
        if self.updated:
            self._passes = 0
            if self.scaler is None:
                self.inner.step()
            else:
                self.scaler.step(self.inner)
                self.scaler.update()
        return loss

    def zero_grad(self, set_to_none=True):
        """Nothing: step() leaves zeros."""

    def state_dict(self):
        """Collective: the whole optimizer's, as one of torch's."""
        return self.inner.state_dict()

    def load_state_dict(self, state_dict):
        self.inner.load_state_dict(state_dict)

    def add_param_group(self, param_group):
        raise RuntimeError("weft.compose: no parameters can be added any more; give compose() a model that has them")

    def __getstate__(self):
        raise TypeError("weft.compose: the optimizer cannot be pickled; save its state_dict()")

    def __repr__(self):
        return f"{type(self).__name__}({self.plan.strategy}, {self.inner!r})"


class ComposedScheduler:
    """A scheduler that counts updates: its step() does nothing after an optimizer.step() that did not update."""

    def __init__(self, inner, optimizer):
        self.inner, self._optimizer = inner, optimizer

    def step(self, *args, **kwargs):
        if self._optimizer.updated:
            self.inner.step(*args, **kwargs)

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)
