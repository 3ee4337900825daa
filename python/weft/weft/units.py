"""What of a model is gathered, used and given up together."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

_MARK = "_weft_unit"


def fully_shard(module: nn.Module) -> nn.Module:
    """Makes `module`, such as a Transformer's block, a unit of ``weft.ZeroOptimizer(model, stage=3)``: its parameters are
    gathered before its forward and its backward, and given up after. Returns the module; nothing is sharded before the
    optimizer is made. What is in no unit is one with the model itself: there from the beginning of forward to its end.

    Without any mark each element of the model's outermost ModuleLists and Sequentials is a unit.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"weft.fully_shard: {type(module).__name__} is no torch.nn.Module")
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        raise ValueError(f"weft.fully_shard: a {type(module).__name__} has no forward; mark its elements")
    setattr(module, _MARK, True)
    return module


@dataclasses.dataclass(eq=False)
class Unit:
    """`parameters` are (name, parameter) in the module's order; `around` are the units that it lies in."""

    name: str
    module: nn.Module
    around: list
    parameters: list = dataclasses.field(default_factory=list)

    def bytes(self, ranks: int) -> int:
        """Gathered, with room for padding."""
        lines = sum(-(-p.numel() * p.element_size() // 64) for _, p in self.parameters)
        return 64 * (lines + 4 * ranks)


def _elements(module: nn.Module) -> list:
    """Of the outermost lists and sequences."""
    if isinstance(module, (nn.Sequential, nn.ModuleList)):
        found = []
        for child in module.children():
            callable_ = not isinstance(child, (nn.ModuleList, nn.ModuleDict))
            found += [child] if callable_ else _elements(child)
        return found
    return [one for child in module.children() for one in _elements(child)]


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """The modules that are marked, or else taken, as units; without the model itself."""
    return [one for one in module.modules() if getattr(one, _MARK, False)] or _elements(module)


def units_of(module: nn.Module, named: list) -> list[Unit]:
    """The units of those `named` parameters, in the order of the module; none is empty. A parameter of several modules
    belongs to the innermost unit that all of them lie in."""
    chosen = {id(one) for one in blocks_of(module)} | {id(module)}
    wanted = {id(parameter): name for name, parameter in named}
    chains = {}  # by parameter: for each of its names the unit modules on the way to it, from outside
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if id(parameter) not in wanted:
            continue
        here, chain = module, [module]
        for step in name.split(".")[:-1]:
            here = getattr(here, step)
            if id(here) in chosen:
                chain.append(here)
        chains.setdefault(id(parameter), []).append(chain)
    names = {id(one): path for path, one in module.named_modules()}
    units = {}
    for name, parameter in named:
        first, *others = chains[id(parameter)]
        shared = [one for one in first if all(any(one is each for each in chain) for chain in others)]
        owner = shared[-1]
        if id(owner) not in units:
            units[id(owner)] = Unit(names[id(owner)] or type(module).__name__, owner, shared[:-1])
        units[id(owner)].parameters.append((name, parameter))
    for unit in units.values():
        unit.around = [units[id(one)] for one in unit.around if id(one) in units]
    # A unit that others lie in is used before them.
    order = {id(one): place for place, one in enumerate(module.modules())}
    return sorted(units.values(), key=lambda unit: order[id(unit.module)])


def room_for(units: list[Unit], ranks: int, together: int) -> int:
    """Bytes of a pool in which `together` units find room beside those around them, wherever these lie; 0 where no unit
    lies in another."""
    if not any(unit.around for unit in units):
        return 0
    around = max(sum(one.bytes(ranks) for one in unit.around) for unit in units)
    depth = max(len(unit.around) for unit in units)
    largest = max(unit.bytes(ranks) for unit in units if unit.around)
    return around + (depth + together) * largest
