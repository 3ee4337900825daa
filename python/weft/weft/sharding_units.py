"""Stage 3 of ZeRO on the library's units."""

from __future__ import annotations

import contextlib
import functools
import weakref

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from weft import backend, memory, replicas
from weft.units import room_for, units_of

_HOOKED = "ZeroOptimizer"


def _with_gradients(tree) -> list:
    return [one for one in tree_leaves(tree) if isinstance(one, torch.Tensor) and one.requires_grad]


def _parts_of(unit, named, cores):
    """What the unit has of each group of `cores`: as the core takes it, and as (group, positions in `named`)."""
    mine = {id(parameter) for _, parameter in unit.parameters}
    groups, ordered, first = [], [], 0
    for index, (kind, options, tensors) in enumerate(cores):
        inside = [at for at in range(first, first + len(tensors)) if id(named[at][1]) in mine]
        if inside:
            groups.append((kind, options, [tensors[at - first] for at in inside]))
            ordered.append((index, inside))
        first += len(tensors)
    return groups, ordered


def _absent(name, tensor):
    """What the parameter is while its unit is not in use."""
    return backend.extension().absent_tensor(
        tensor,
        f"weft.{_HOOKED}: parameter {name} is sharded, and only there while its unit's module is called, or within "
        "optimizer.whole_parameters()",
    )


class _Turns:
    """Of one unit: what it is in use for, which parameters wait for this backward's gradient, and how many forwards
    have had no backward yet."""

    def __init__(self, index, unit, first):
        self.index, self.unit = index, unit
        self.numbers = range(first, first + len(unit.parameters))
        self.turn = None
        self.waiting = set()
        self.forwards, self.counts = 0, False


class UnitSharding:
    """Units of a module are gathered before they are used and given up after, by hooks: on modules for forward, on what
    they return for the beginning of backward, on parameters' gradients for its end (or, where some get none, on the
    unit's inputs, or the end of all). See BucketSharding."""

    def __init__(self, module, named, cores, group, settings, *, ranks, prefetch, gather_cap_mb, poison, **fixed):
        self._module = module
        kept = units_of(module, named)
        self.groups, self._numbers, self._named, units = [], {}, [], []
        for unit in kept:
            groups, ordered = _parts_of(unit, named, cores)
            for index, positions in ordered:
                self.groups.append(index)
                for position in positions:
                    self._numbers[position] = len(self._named)
                    self._named.append(named[position])
            unit.parameters = [named[position] for _, positions in ordered for position in positions]
            units.append((unit.name, groups))
        gather_cap = int(gather_cap_mb * 2**20) if gather_cap_mb else room_for(kept, ranks, max(1, prefetch))
        caps = dict(gather_cap=gather_cap, gradient_cap=room_for(kept, ranks, 1))
        settings = dict(**settings, **caps, **fixed, prefetch=prefetch, poison=poison)
        self.core = backend.extension().ShardedUnits(group, units, settings, account=memory.account())
        self._tensors = [self.core.parameter(number) for number in range(len(self._named))]
        self._absent = [_absent(name, tensor) for (name, _), tensor in zip(self._named, self._tensors)]
        self._number_of = {parameter: number for number, (_, parameter) in enumerate(self._named)}
        self._lent = set()
        self._sync, self._reduced = True, False
        self._hook_root()
        self._turns, first = [], 0
        for index, unit in enumerate(kept):
            turns = _Turns(index, unit, first)
            first += len(unit.parameters)
            self._turns.append(turns)
            self._hook(turns)
        self._hook_state_dicts()

    @property
    def reduced(self):
        return self._reduced and self._sync  # under no_sync() the core does not step

    def index(self, position):
        return self._numbers[position]

    def wait(self):
        pass

    def shared(self):
        torch.autograd.graph.increment_version([parameter for _, parameter in self._named])

    def values(self, position):
        return None  # loading the module has set it

    def follow(self):
        pass

    def check_gradients(self):
        for name, parameter in self._named:
            if parameter.grad is not None:  # ours are taken away as they come
                raise replicas.GradientsChanged(name)

    def set_sync(self, sync):
        self.core.set_sync(sync)
        self._sync = sync

    def after_step(self):
        self._reduced = False
        for turns in self._turns:
            turns.forwards = 0
        torch.autograd.graph.increment_version([parameter for _, parameter in self._named])

    def _show(self, numbers, tensors):
        # The parameter's own tensor: autograd may have saved views of what it was, which share that one's memory.
        for number in numbers:
            self._named[number][1].data = tensors[number]

    # --- forward ---

    def _hook_root(self):
        self._module.register_forward_pre_hook(lambda *_: self._check(), prepend=True)

    # torch.compile leaves its graphs for these three: in one, parameters would be taken before they are there.
    @torch.compiler.disable
    def _check(self):
        if torch._C._current_graph_task_id() != -1:
            return
        for turns in self._turns:
            if turns.turn == "backward":
                raise RuntimeError(
                    f"weft.{_HOOKED}: backward was left by an exception while unit {turns.unit.name} was in use; ranks may "
                    "have sent different gradients, so begin again from a checkpoint"
                )
        kept = [self._tensors[i] if i in self._lent else self._absent[i] for i in range(len(self._named))]
        replicas.check_unchanged(self._module, self._named, kept, _HOOKED)

    def _hook(self, turns):
        module, index = turns.unit.module, turns.index
        sharding = weakref.ref(self)  # Python does not find cycles through parameters' hooks
        for number, (_, parameter) in zip(turns.numbers, turns.unit.parameters):
            parameter.data = self._absent[number]
            parameter.grad = None
            parameter.register_post_accumulate_grad_hook(
                lambda one, number=number: sharding()._has_gradient(sharding()._turns[index], number, one)
            )
        # After the root's own check, which comes first.
        module.register_forward_pre_hook(functools.partial(self._before_forward, turns), with_kwargs=True)
        module.register_forward_hook(functools.partial(self._after_forward, turns), always_call=True)

    @torch.compiler.disable
    def _before_forward(self, turns, module, args, kwargs):
        if turns.turn is not None or self._lent:
            return  # recomputation within backward; a module that calls itself; or parameters are whole
        self.core.before_forward(turns.index)
        self._show(turns.numbers, self._tensors)
        turns.turn = "forward"
        inputs = _with_gradients((args, kwargs)) if torch.is_grad_enabled() else []
        turns.counts = bool(inputs)
        left = [len(inputs)]  # torch's register_multi_grad_hook() would keep the graph alive
        for one in inputs:
            one.register_hook(lambda _: self._has_input_gradient(turns, left))

    @torch.compiler.disable
    def _after_forward(self, turns, module, args, output):
        if turns.turn != "forward" or self._lent:
            return
        turns.turn = None
        self._show(turns.numbers, self._absent)
        self.core.after_forward(turns.index)
        outputs = _with_gradients(output)
        turns.forwards += bool(outputs) and turns.counts
        for one in outputs:
            one.register_hook(lambda _: self._begin_backward(turns))

    # --- backward ---

    def _begin_backward(self, turns):
        if turns.turn == "backward":
            return
        if self._lent:
            raise RuntimeError(f"weft.{_HOOKED}: backward within whole_parameters(); leave it first")
        self.core.before_backward(turns.index)
        self._show(turns.numbers, self._tensors)
        turns.turn = "backward"
        turns.waiting = set(turns.numbers)
        torch.autograd.Variable._execution_engine.queue_callback(lambda: self._end_backward(turns))

    def _has_gradient(self, turns, number, parameter):
        self._begin_backward(turns)  # what came by no output of the module's
        if parameter.grad.layout != torch.strided:
            name = self._named[number][0]
            raise RuntimeError(f"weft: the gradient of parameter {name} is sparse; make its module with sparse=False")
        self.core.take_gradient(number, parameter.grad)
        parameter.grad = None
        turns.waiting.discard(number)
        if not turns.waiting:
            self._end_backward(turns)

    def _has_input_gradient(self, turns, left):
        left[0] -= 1
        if left[0] > 0:
            return
        turns.forwards -= 1
        if turns.forwards <= 0:
            self._end_backward(turns)

    def _end_backward(self, turns):
        if turns.turn != "backward":
            return
        turns.turn = None
        self._show(turns.numbers, self._absent)
        self.core.after_backward(turns.index, sorted(turns.waiting))
        self._reduced = self._reduced or self._sync

    # --- whole parameters ---

    def _whole(self, number):
        """Collective: a copy of the parameter in the CPU's memory, on every rank."""
        return self.core.state(number, "master").to(self._tensors[number].dtype)

    def _lend(self, numbers, fetch=True):
        versions = {}
        for number in numbers:
            like = self._tensors[number]
            whole = self._whole(number) if fetch else torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
            self.core.lend(number, whole.to(like.device))
            versions[number] = self._named[number][1]._version
        self._show(numbers, self._tensors)
        self._lent.update(numbers)
        return versions

    def _take_back(self, versions):
        for number, version in versions.items():
            parameter = self._named[number][1]
            if parameter._version != version:
                self.core.set_state(number, "master", parameter.detach())
            else:
                self._keep_unnoticed(number, parameter.detach())
            parameter.data = self._absent[number]
            self.core.take_back(number)
            self._lent.discard(number)
        if versions:
            self.core.share()

    def _keep_unnoticed(self, number, whole):
        """What was written by way of .data, of which there is no version: this rank's part of it. share() must follow, on every
        rank, whoever has found something."""
        first, count = self.core.shard(number)
        like = self.core.layout(number)
        here = torch.empty_strided(like.shape, like.stride(), dtype=whole.dtype).copy_(whole)
        here = here.as_strided((here.numel(),), (1,))[first : first + count]
        master = self.core.state_shard(number, "master")
        same = master.to(here.dtype) == here
        if not same.all():
            self.core.set_state_shard(number, "master", torch.where(same, master, here.float()))

    @contextlib.contextmanager
    def whole_parameters(self):
        versions = self._lend([number for number in range(len(self._named)) if number not in self._lent])
        try:
            yield
        finally:
            self._take_back(versions)

    def _hook_state_dicts(self):
        """A module's state_dict() and load_state_dict() have whole parameters, a module at a time."""
        for module in self._module.modules():
            own = {
                name: self._number_of[parameter]
                for name, parameter in module._parameters.items()
                if parameter is not None and parameter in self._number_of
            }
            if own:
                module.register_state_dict_post_hook(functools.partial(self._fill, own))
                lent = []
                module.register_load_state_dict_pre_hook(functools.partial(self._before_load, own, lent))
                module.register_load_state_dict_post_hook(functools.partial(self._after_load, lent))

    def _fill(self, own, module, state_dict, prefix, local_metadata):
        for name, number in own.items():
            is_lent = number in self._lent
            state_dict[prefix + name] = self._tensors[number].clone() if is_lent else self._whole(number)

    def _before_load(self, own, lent, module, state_dict, prefix, local_metadata, *_):
        if local_metadata.get("assign_to_params_buffers", False):
            raise ValueError(f"weft.{_HOOKED}: load_state_dict(assign=True) would replace sharded parameters; leave it out")
        numbers = [number for number in own.values() if number not in self._lent]
        lent.append(self._lend(numbers))

    def _after_load(self, lent, module, incompatible):
        self._take_back(lent.pop())
