"""What weft's optimizers have in common: torch's parameters, groups and states, updated by the library's kernels."""

from __future__ import annotations

import contextlib
import copy
import math

import torch

from weft import backend, local, travelling
from weft.optim.cores import GpuCore, HostCore, Inputs
from weft.optim.slots import Slot

# torch's arguments that choose one of its implementations: taken, so that programs need no change, and of no effect.
TORCHS_CHOICES = ("foreach", "fused")


class FusedOptimizer:
    """Mixed into a torch.optim.Optimizer. What it keeps lies in ``state`` under torch's names; the library's optimizer
    (``_core``) knows where, and is made anew whenever that has changed."""

    _step_supports_amp_scaling = True  # torch.amp.GradScaler hands over its scale and verdict instead of unscaling
    _shows_step = True  # there is a state[p]["step"]

    # What a subclass says of its groups: the library's name for the rule, the names of its states, their first values.

    def _kind(self, group) -> str:
        raise NotImplementedError

    def _states(self, group) -> list[str]:
        raise NotImplementedError

    def _initial(self, group) -> float:
        return 0.0

    @contextlib.contextmanager
    def _taking(self, options):
        """Within it torch's constructor runs; `options` are the keywords that are not its own."""
        for name in TORCHS_CHOICES:
            options.pop(name, None)
        copies = options.pop("copies", None)
        self._max_norm = options.pop("max_norm", None)
        self._zero_gradients = options.pop("zero_gradients", False)
        self._master_weights = options.pop("master_weights", True)
        if options:
            raise TypeError(f"{self._name}: unexpected argument {next(iter(options))!r}")
        if self._max_norm is not None and not self._max_norm > 0:
            raise ValueError(f"{self._name}: max_norm is {self._max_norm}; it must be above 0")
        self._forget()
        yield
        self._set_copies(copies)

    def _forget(self):
        self._core = None
        self._slots = {}  # by parameter
        self._copies = {}
        self._zeros = {}  # (gradient, its version) that a step has left zeros in, by parameter
        self._recorded = False  # a CUDA graph has steps of it
        self.grad_norm = None  # of the last step's unscaled gradients, where max_norm is set

    @property
    def _name(self):
        return f"weft.optim.{type(self).__name__}"

    def _all_parameters(self):
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _set_copies(self, copies):
        if copies is None:
            return
        parameters, copies = self._all_parameters(), list(copies)
        if len(copies) != len(parameters):
            raise ValueError(f"{self._name}: {len(copies)} copies for {len(parameters)} parameters")
        for parameter, copy in zip(parameters, copies):
            fits = copy.dtype in local.NARROW and copy.shape == parameter.shape and copy.stride() == parameter.stride()
            if not fits or parameter.dtype != local.WIDE:
                raise ValueError(
                    f"{self._name}: {self._where(parameter)} is {parameter.dtype}, its copy {copy.dtype} of shape "
                    f"{tuple(copy.shape)}; copies are bfloat16 or float16, laid out as their float32 parameters"
                )
            self._copies[parameter] = copy

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        self._core = None
        group = self.param_groups[-1]
        if self._copies:
            raise ValueError(f"{self._name}: no parameters can be added where there are copies")
        for parameter in group["params"]:
            here = local.tensor(parameter)
            if (here.dtype != local.WIDE and here.dtype not in local.NARROW) or not local.computes_on(here.device):
                raise TypeError(
                    f"{self._name}: {self._where(parameter)} is {here.dtype} on {here.device}; weft's optimizers take "
                    f"float32, bfloat16 and float16 on {local.devices_in_words()}"
                )
            if self._kind(group) == "Lamb" and local.is_sharded(parameter):
                raise ValueError(f"{self._name}: {self._where(parameter)} is sharded, and Lamb needs norms of whole tensors")

    def _where(self, parameter):
        for index, group in enumerate(self.param_groups):
            for position, one in enumerate(group["params"]):
                if one is parameter:
                    return f"parameter {position} of group {index}, of shape {tuple(parameter.shape)},"
        raise AssertionError("not a parameter of this optimizer's")

    # --- state_dicts and pickles ---

    def load_state_dict(self, state_dict):
        """torch's; but states and float32 originals of narrow parameters keep their precision."""
        seen = []
        hook = self.register_load_state_dict_pre_hook(lambda _, loaded: seen.append(loaded))  # after the user's
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        names = [name for group in seen[0]["param_groups"] for name in group["params"]]
        for name, parameter in zip(names, self._all_parameters()):
            if local.tensor(parameter).dtype in local.NARROW and name in seen[0]["state"]:
                self.state[parameter].update(seen[0]["state"][name])

    def __getstate__(self):
        kept = ("_max_norm", "_zero_gradients", "_master_weights")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in kept}}

    def __setstate__(self, state):
        if "_slots" not in self.__dict__:  # unpickled
            self._forget()
        super().__setstate__(state)
        self._core = None

    # --- stepping ---

    def zero_grad(self, set_to_none=True):
        if not self._zero_gradients:
            return super().zero_grad(set_to_none)
        for parameter in self._all_parameters():
            gradient = parameter.grad
            if gradient is None:
                continue
            left, version = self._zeros.get(parameter, (None, 0))
            if left is not gradient or version != gradient._version:
                gradient.detach_().zero_()

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        parameters = [parameter for parameter in self._all_parameters() if parameter.grad is not None]
        found_inf, inv_scale, look = self._scaling()
        if not parameters:
            if look or self._max_norm is not None:
                self.grad_norm = torch.zeros(())
            return loss
        device = self._device_of(parameters)
        if device.type == "cuda":
            # torch's scaler has both on one GPU, for optimizers on several.
            inv_scale, found_inf = (None if one is None else one.to(device, non_blocking=True) for one in (inv_scale, found_inf))
            self._step_on_gpu(parameters, inv_scale, found_inf, look)
        elif look:
            self._step_on_host(parameters, float(inv_scale), True, found_inf)
        else:
            self._step_on_host(parameters, 1.0 if inv_scale is None else float(inv_scale), found_inf is None or float(found_inf) == 0)
        return loss

    def _scaling(self):
        """What is not 0 where the step is to be skipped, what gradients are still to be multiplied by (None: nothing), and whether
        the first is to be found out."""
        if "_amp" in self.__dict__:
            found_inf, inv_scale = self._amp
            return found_inf, inv_scale, inv_scale is not None
        scale = getattr(self, "grad_scale", None)  # set by torch.amp.GradScaler for the time of this call, as found_inf
        return getattr(self, "found_inf", None), None if scale is None else scale.reciprocal(), False

    def _device_of(self, parameters):
        device = local.tensor(parameters[0]).device
        for parameter in parameters:
            here = local.tensor(parameter).device
            if here != device:
                raise RuntimeError(
                    f"{self._name}: {self._where(parameters[0])} is on {device}, {self._where(parameter)} on {here}; make an "
                    "optimizer for each device"
                )
        if not local.computes_on(device):  # it was moved there
            raise TypeError(f"{self._name}: {self._where(parameters[0])} is on {device}; weft's optimizers work on {local.devices_in_words()}")
        return device

    def _scaled_step(self, found_inf, inv_scale):
        """weft.amp.GradScaler's: with `inv_scale` gradients are still scaled, and `found_inf` is to be found out."""
        self._amp = (found_inf, inv_scale)
        try:
            return self.step()
        finally:
            del self._amp

    @torch.no_grad()
    def _step_on_host(self, parameters, inv_scale: float, apply: bool, found_inf: torch.Tensor | None = None):
        """A step of gradients that are still multiplied by 1/inv_scale, unless not `apply`. With `found_inf` they are
        looked at first, and where one is not finite that becomes 1 and the step is skipped. One pass over gradients for
        this and for max_norm, one over everything."""
        if apply and found_inf is None and self._max_norm is None:
            return self._step_on_arrival(parameters, inv_scale)
        travelling.await_all(parameters)
        gradients = [self._gradient(parameter) for parameter in parameters]
        clip = 1.0
        if found_inf is not None or self._max_norm is not None:
            squares, finite = local.measure([p.grad for p in parameters], "l2", inv_scale, self._name)
            norm = math.sqrt(squares) if finite else math.inf
            self.grad_norm = torch.tensor(norm, dtype=torch.float32)
            if self._max_norm is not None:
                clip = min(1.0, self._max_norm / (norm + 1e-6))
                apply = apply and finite  # as there is nothing to clip by
            if found_inf is not None and not finite:
                found_inf.fill_(1)
                apply = False
        if apply:
            self._bring_up_to_date(parameters)
            self._update(parameters, gradients, Inputs(inv_scale, clip))
        elif self._zero_gradients:
            for gradient in gradients:
                gradient.zero_()
        self._remember_zeros(parameters)

    def _step_on_arrival(self, parameters, inv_scale: float):
        """The same where nothing has to be known of all gradients first: those that are still being averaged are taken as
        they come."""
        for parameter in parameters:
            self._gradient(parameter)  # refused before anything changes
        self._bring_up_to_date(parameters)
        for some in travelling.in_order_of_arrival(parameters):
            self._update(some, [self._gradient(parameter) for parameter in some], Inputs(inv_scale))
        self._remember_zeros(parameters)

    @torch.no_grad()
    def _step_on_gpu(self, parameters, inv_scale, found_inf, look: bool):
        """The same without waiting: whether the step is one, the GPU finds out when it gets there. To it a skipped step was one:
        versions of tensors go on."""
        gradients = [self._gradient(parameter) for parameter in parameters]
        self._bring_up_to_date(parameters)
        clip = None
        if look or self._max_norm is not None:
            if found_inf is None:
                found_inf = torch.zeros((), device=gradients[0].device)
            self.grad_norm, clip = local.measure_on_gpu(
                [p.grad for p in parameters], "l2", inv_scale, self._max_norm or 0.0, found_inf, self._name
            )
        self._update(parameters, gradients, Inputs(inv_scale, clip, found_inf))
        self._remember_zeros(parameters)
        self._recorded = self._recorded or torch.cuda.is_current_stream_capturing()

    def _update(self, parameters, gradients, inputs):
        self._core.step([self._slots[parameter].index for parameter in parameters], gradients, self._steps, inputs)
        for parameter in parameters:
            self._slots[parameter].write()
        if self._zero_gradients:
            torch.autograd.graph.increment_version([local.tensor(parameter.grad) for parameter in parameters])

    def _remember_zeros(self, parameters):
        if self._zero_gradients:
            self._zeros = {parameter: (parameter.grad, parameter.grad._version) for parameter in parameters}

    def _gradient(self, parameter):
        gradient = local.tensor(parameter.grad)
        if gradient.layout != torch.strided:
            raise RuntimeError(
                f"{self._name}: the gradient of {self._where(parameter)} is sparse ({gradient.layout}); make it with "
                "sparse=False, or give this parameter to torch.optim.SparseAdam or torch.optim.SGD"
            )
        return gradient

    def _bring_up_to_date(self, parameters):
        """Before a step of `parameters`: first gradients, memory and states that were replaced, options that were
        changed, values that were written from elsewhere."""
        if not self._fits(parameters):
            self._make_core(set(parameters))
        for index, group in enumerate(self.param_groups):
            options = self._core.options(self._options(group))
            if _differ(options, self._core_options[index]):
                self._core.set_options(index, self._kind(group), options)
                self._core_options[index] = options
        for parameter in parameters:
            self._slots[parameter].read()

    def _fits(self, parameters):
        """Whether the core can make a step of just these, where they and their states now lie."""
        if self._core is None:
            return False
        wanted = set(parameters)
        for group in self.param_groups:
            names = self._names(group)
            for p in group["params"]:
                if p in wanted and (p not in self._slots or not self._slots[p].fits(p, self.state.get(p, {}), names)):
                    return False
        return self._core.takes([self._slots[parameter].index for parameter in parameters])

    def _options(self, group):
        return {name: value for name, value in group.items() if name != "params"}

    def _names(self, group):
        return self._states(group) + (["step"] if self._shows_step else [])

    def _make_core(self, wanted):
        """With all parameters that have had a gradient, or are about to; `wanted` are those that step now. Where something of it
        fails, all is as it was."""
        active = [[p for p in group["params"] if p in self._slots or p in wanted] for group in self.param_groups]
        device = self._device_of([p for parameters in active for p in parameters])
        if device.type == "cuda":
            self._refuse_where_recorded()
        taken = self._steps_taken(active)
        entries = []  # (number of the group, parameter, the slot that it keeps or None, what steps together)
        for number, (group, parameters) in enumerate(zip(self.param_groups, active)):
            names = self._names(group)
            mine = []
            for p in parameters:
                old = self._slots.get(p)
                kept = old if old is not None and old.fits(p, self.state.get(p, {}), names) else None
                # What has not stepped together once does not again (cores.py).
                mine.append((number, p, kept, (1, taken[p], p in wanted) if kept is None else (0, kept.cohort, p in wanted)))
            entries += sorted(mine, key=lambda entry: entry[3]) if device.type == "cuda" else mine
        steps = torch.tensor([taken[p] for _, p, _, _ in entries], device=device)
        slots, states, cohorts = {}, {}, {}
        by_group = [[] for _ in self.param_groups]
        for index, (number, p, kept, together) in enumerate(entries):
            state = states[p] = dict(self.state.get(p, {}))
            if kept is not None:
                slot = copy.copy(kept)
            else:
                slot = Slot(p, self._copies.get(p), self._master_weights)
                slot.adopt(p, state, self._states(self.param_groups[number]), self._initial(self.param_groups[number]))
            slot.place(index, cohorts.setdefault((number, together), len(cohorts)), steps[index], state, self._shows_step)
            slots[p] = slot
            by_group[number].append(slot)
        make = GpuCore if device.type == "cuda" else HostCore
        groups = [(self._kind(group), make.options(self._options(group))) for group in self.param_groups]
        core = make(groups, by_group, self._master_weights, self._zero_gradients, [taken[p] for p in slots])
        self._core, self._core_options = core, [options for _, options in groups]
        self._slots, self._steps = slots, steps
        for p, state in states.items():
            if state:
                self.state[p].update(state)

    def _refuse_where_recorded(self):
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"{self._name}: a first step, which makes states, cannot be part of a CUDA graph; make one of the same parameters "
                "before the capture"
            )
        if self._recorded:
            raise RuntimeError(
                f"{self._name}: a CUDA graph has steps of this optimizer and goes on with the parameters and states of then, but since "
                "some have come, were replaced, or had no gradient; hand state_dict() to a new optimizer, and capture its steps"
            )

    def _steps_taken(self, active):
        """By parameter how many steps it has had, as a number."""
        taken = {}
        for group, parameters in zip(self.param_groups, active):
            names = self._states(group)
            for parameter in parameters:
                state, old = self.state.get(parameter, {}), self._slots.get(parameter)
                if self._shows_step:
                    taken[parameter] = state.get("step", 0.0)
                elif old is not None:
                    taken[parameter] = old.step
                else:
                    taken[parameter] = float(bool(names) and all(state.get(name) is not None for name in names))
        return _as_numbers(taken)


def _as_numbers(values: dict) -> dict:
    """Numbers and tensors of one element; a GPU is asked once."""
    there = {key: value for key, value in values.items() if isinstance(value, torch.Tensor) and value.is_cuda}
    read = dict(zip(there, torch.stack([one.detach().float().reshape(()) for one in there.values()]).tolist())) if there else {}
    return {key: read[key] if key in read else float(value) for key, value in values.items()}


def _differ(options: dict, others: dict) -> bool:
    """Tensors are compared by what they are, not by what they hold."""
    def differ(one, other):
        if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            return one is not other
        return one != other

    return options.keys() != others.keys() or any(differ(value, others[name]) for name, value in options.items())
