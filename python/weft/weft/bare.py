"""Refuses models that something else replicates or shards already: gradients would be averaged twice, or by neither."""

from __future__ import annotations

import sys
import weakref

import torch
from torch.nn.parallel import DistributedDataParallel

from weft import local

_wrappers = weakref.WeakKeyDictionary()  # what each has: (name, parameter)


def keep(wrapper, named: list) -> None:
    """The parameters are the wrapper's as long as it lives."""
    _wrappers[wrapper] = named


def _fully_sharded() -> tuple:
    fsdp = sys.modules.get("torch.distributed.fsdp")  # as long as nobody has imported it no module is one
    return (fsdp.FullyShardedDataParallel, fsdp.FSDPModule) if fsdp is not None else ()


def _wrapper_within(module: torch.nn.Module):
    """(name, what it is) of the first module that is a wrapper."""
    for name, one in module.named_modules():
        if isinstance(one, DistributedDataParallel):
            return name, "a torch DistributedDataParallel"
        if isinstance(one, _fully_sharded()):
            return name, "sharded by torch's FSDP"
        if one in _wrappers:
            return name, f"a weft.{type(one).__name__}"
    return None


def _wrapper_of(module: torch.nn.Module):
    """The name of what has some of its parameters. Not itself: an exception's traceback would keep it alive."""
    mine = {id(parameter) for parameter in module.parameters()}
    for wrapper, named in list(_wrappers.items()):
        if any(id(parameter) in mine for _, parameter in named):
            return type(wrapper).__name__
    return None


def check(module: torch.nn.Module, caller: str) -> None:
    found = _wrapper_within(module)
    if found is not None:
        name, what = found
        where = f"the model's module {name}" if name else "the model"
        raise ValueError(f"weft.{caller}: {where} is {what} already; wrap the bare module once")
    for name, parameter in module.named_parameters():
        if isinstance(parameter, local.dtensor()):
            raise ValueError(
                f"weft.{caller}: parameter {name} is a DTensor, as tensor parallelism and FSDP2 make them; pass a module of plain "
                "parameters, or train this one with weft.optim's optimizers alone"
            )
    wrapper = _wrapper_of(module)
    if wrapper is not None:
        raise ValueError(
            f"weft.{caller}: parameters of the {type(module).__name__} are in a weft.{wrapper} already; wrap the bare module once"
        )


def check_forward(parameters: list, wrapper: str) -> None:
    """Refuses a forward within torch's DistributedDataParallel over the same parameters, which no constructor sees."""
    outer = DistributedDataParallel._get_active_ddp_module()
    if outer is None:
        return
    theirs = {id(parameter) for parameter in outer._module_parameters}
    if any(id(parameter) in theirs for parameter in parameters):
        raise RuntimeError(
            f"weft.{wrapper}: torch's DistributedDataParallel is around the same parameters; leave one of them out"
        )


def check_not_sharded(parameters: list, caller: str, advice: str) -> None:
    """Refuses what would look at the gradients of a ZeroOptimizer's parameters."""
    asked = {id(parameter) for parameter in parameters}
    sharded = [named for wrapper, named in list(_wrappers.items()) if not isinstance(wrapper, torch.nn.Module)]
    for name, parameter in (each for named in sharded for each in named):
        if id(parameter) in asked:
            raise RuntimeError(
                f"{caller}: parameter {name} is a weft.ZeroOptimizer's, whose gradients are sharded, so that no rank sees "
                f"those to clip; {advice}"
            )
