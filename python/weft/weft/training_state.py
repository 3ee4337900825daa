"""Checkpoints of training: by torch.distributed.checkpoint, and in the library's own format."""

from __future__ import annotations

import json

import torch

from weft import backend, optim, replicas
from weft.shards import Shard
from weft.zero import ZeroOptimizer


def _zero(optimizer) -> ZeroOptimizer | None:
    inner = getattr(optimizer, "inner", optimizer)  # of compose()
    return inner if isinstance(inner, ZeroOptimizer) else None


class TrainingState:
    """A model and its optimizer for torch.distributed.checkpoint:

        state = weft.TrainingState(model, optimizer, scheduler)
        torch.distributed.checkpoint.save({"training": state}, checkpoint_id=folder)
        torch.distributed.checkpoint.load({"training": state}, checkpoint_id=folder)

    Collective. With a ZeroOptimizer each rank saves and loads its part, of every parameter and state; else tensors are
    whole, and each is written by one rank. What was saved loads at any number of ranks, by any strategy, with an optimizer
    of the same class; "model" has the names and shapes of a plain module's state_dict().

    model, optimizer  as wrapped, or compose()'s; before the first step, or after one
    extra             what else has state_dict() and load_state_dict(), such as a scheduler or a scaler: kept as it is
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *extra):
        self._module = getattr(model, "module", model)
        self._optimizer, self._extra = getattr(optimizer, "inner", optimizer), extra
        if not isinstance(self._optimizer, (ZeroOptimizer, optim.FusedOptimizer)):
            raise TypeError(
                f"weft.TrainingState: {type(optimizer).__name__} is none of weft's optimizers; torch.distributed.checkpoint has "
                "get_state_dict() for torch's"
            )

    def _rest(self) -> dict:
        """Of the module what is no trained parameter."""
        trained = {id(p) for p in self._module.parameters() if p.requires_grad}
        kept = {name: p.detach() for name, p in self._module.named_parameters() if id(p) not in trained}
        for path, module in self._module.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None and name not in module._non_persistent_buffers_set:
                    kept[f"{path}.{name}" if path else name] = buffer
        return kept

    def state_dict(self) -> dict:
        zero = _zero(self._optimizer)
        model, states, steps = _sharded(zero) if zero is not None else _whole(self._module, self._optimizer)
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self._optimizer.param_groups]
        return {
            "model": {**self._rest(), **model},
            "optimizer": states,
            "steps": json.dumps(steps),
            "groups": json.dumps(groups, default=float),
            "extra": {str(index): one.state_dict() for index, one in enumerate(self._extra)},
        }

    def load_state_dict(self, state_dict: dict) -> None:
        zero = _zero(self._optimizer)
        with torch.no_grad():
            for name, value in self._rest().items():
                value.copy_(state_dict["model"][name])
        (_load_sharded if zero is not None else _load_whole)(zero or self._optimizer, self._module, state_dict)
        groups = json.loads(state_dict["groups"])
        for group, saved in zip(self._optimizer.param_groups, groups):
            group.update({k: tuple(v) if isinstance(v, list) else v for k, v in saved.items() if k in group})
        for index, one in enumerate(self._extra):
            one.load_state_dict(state_dict["extra"][str(index)])


def _sharded(zero):
    zero.wait()
    model, states = {}, {}
    for name, index, names in zero._each():
        first, _ = zero._core.shard(index)
        like = zero._layout(index)
        master = zero._core.state_shard(index, "master")
        model[name] = Shard(like, first, master.to(like.dtype))
        kept = {"master": master} if like.dtype != torch.float32 else {}
        kept |= {state: zero._core.state_shard(index, state) for state in names if state != "master"}
        states[name] = {state: Shard(like, first, values) for state, values in kept.items()}
    return model, states, dict.fromkeys(states, zero._core.step_count())


def _steps_of(state_dict, names) -> dict:
    """By parameter; those saved by earlier versions have one number for all."""
    saved = state_dict["steps"]
    return dict.fromkeys(names, saved) if isinstance(saved, int) else json.loads(saved)


def _load_sharded(zero, module, state_dict):
    steps = {taken for taken in _steps_of(state_dict, state_dict["optimizer"]).values() if taken}
    if len(steps) > 1:
        raise ValueError("weft.TrainingState: parameters have had different numbers of steps, and in a ZeroOptimizer all have the same")
    for name, index, names in zero._each():
        states = state_dict["optimizer"][name]
        zero._core.set_state_shard(index, "master", states.get("master", state_dict["model"][name]).values)
        for state in names:
            if state != "master":
                zero._core.set_state_shard(index, state, states[state].values)
    zero._core.share()
    zero._sharding.shared()
    zero._core.set_step_count(steps.pop() if steps else 0)


def _named(module):
    return {parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad}


def _trained(group) -> list:
    """Those that are frozen are among the model's values, and have no states."""
    return [parameter for parameter in group["params"] if parameter.requires_grad]


def _whole(module, optimizer):
    """All states, made now where there are none yet, so that there is something to load into; such have had no step."""
    names = _named(module)
    model = {name: parameter.detach() for parameter, name in names.items()}
    states, steps = {}, {}
    for group in optimizer.param_groups:
        wanted = optimizer._states(group)
        for parameter in _trained(group):
            kept = optimizer.state.get(parameter, {})
            steps[names[parameter]] = int(kept.get("step", bool(kept)))
            mine = {n: kept[n] if n in kept else torch.zeros_like(parameter, dtype=torch.float32) for n in wanted}
            if parameter.dtype != torch.float32:
                mine["master"] = kept["master"] if "master" in kept else parameter.detach().float()
            states[names[parameter]] = mine
    return model, states, steps


def _load_whole(optimizer, module, state_dict):
    names = _named(module)
    with torch.no_grad():
        for parameter, name in names.items():
            parameter.copy_(state_dict["model"][name])
    steps = _steps_of(state_dict, names.values())
    for group in optimizer.param_groups:
        for parameter in _trained(group):
            taken = steps[names[parameter]]
            kept = dict(state_dict["optimizer"][names[parameter]])
            if optimizer._shows_step:
                kept["step"] = torch.tensor(float(taken))
            optimizer.state[parameter] = kept if taken else {}


class CheckpointSaver:
    """Checkpoints in the library's format (docs/sharding.md, "Checkpoints"): safetensors files of float32 values, one a rank,
    that programs of the C++ library load too. Saving copies and returns; a thread writes. A save that fails leaves the one
    before. Of ZeroOptimizers; of parameters and states, not of buffers.

    Every member is collective, over the optimizer's ranks.
    """

    def __init__(self, folder, process_group=None):
        _, group = replicas.group_of(process_group)
        self._core = backend.extension().Checkpoints(group, str(folder))

    def save(self, optimizer, metadata: dict | None = None) -> None:
        """`metadata` is the program's own, of what JSON has; rank 0's counts."""
        zero, names = _contiguous(optimizer)
        zero.wait()
        self._core.save_sharded(zero._core, names, {key: json.dumps(value) for key, value in (metadata or {}).items()})

    def wait(self) -> None:
        """Returns once the last save has replaced the one before, or raises what it failed with."""
        self._core.wait()


def load_checkpoint(folder, optimizer) -> dict:
    """Collective: parameters, states and the number of steps, of any strategy and any number of ranks; returns the
    metadata. Learning rates are the program's."""
    zero, names = _contiguous(optimizer)
    zero.wait()
    metadata = backend.extension().load_sharded(zero._core, names, str(folder))
    zero._sharding.shared()
    return {key: json.loads(value) for key, value in metadata.items()}


def _contiguous(optimizer):
    zero = _zero(optimizer)
    if zero is None:
        raise TypeError(
            f"weft.CheckpointSaver: {type(optimizer).__name__} is not sharded; take a ZeroOptimizer, or weft.TrainingState"
        )
    each = sorted(zero._each(), key=lambda one: one[1])
    for name, index, _ in each:
        if not zero._layout(index).is_contiguous():
            raise ValueError(
                f"weft.CheckpointSaver: parameter {name} lies in another order of memory than of its dimensions, as with "
                "channels_last; take weft.TrainingState"
            )
    return zero, [name for name, _, _ in each]
