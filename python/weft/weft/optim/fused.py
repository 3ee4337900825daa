"""What weft's optimizers have in common: torch's parameters, groups and states, updated by the library's kernels."""

from __future__ import annotations

import contextlib
import math

import torch

from weft import backend, local
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
            if (here.dtype != local.WIDE and here.dtype not in local.NARROW) or here.device.type != "cpu":
                raise TypeError(
                    f"{self._name}: {self._where(parameter)} is {here.dtype} on {here.device}; weft's optimizers take "
                    "float32, bfloat16 and float16 on the CPU"
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
        if "_amp" in self.__dict__:
            found, inv_scale = self._amp
            if inv_scale is None:
                self._fused_step(1.0, float(found) == 0)
            else:
                self._fused_step(inv_scale, True, found)
            return loss
        found_inf = getattr(self, "found_inf", None)  # both set by torch.amp.GradScaler for the time of this call
        scale = getattr(self, "grad_scale", None)
        inv_scale = 1.0 if scale is None else 1.0 / float(scale)
        self._fused_step(inv_scale, found_inf is None or float(found_inf) == 0)
        return loss

    def _scaled_step(self, found_inf, inv_scale):
        """weft.amp.GradScaler's: with `inv_scale` gradients are still scaled, and `found_inf` is to be found out."""
        self._amp = (found_inf, inv_scale)
        try:
            return self.step()
        finally:
            del self._amp

    @torch.no_grad()
    def _fused_step(self, inv_scale: float, apply: bool, found_inf: torch.Tensor | None = None):
        """A step of gradients that are still multiplied by 1/inv_scale, unless not `apply`. With `found_inf` they are
        looked at first, and where one is not finite that becomes 1 and the step is skipped. One pass over gradients for
        this and for max_norm, one over everything."""
        parameters = [parameter for parameter in self._all_parameters() if parameter.grad is not None]
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
        if apply and parameters:
            self._bring_up_to_date(parameters)
            numbers = [self._slots[parameter].index for parameter in parameters]
            self._core.step(numbers, gradients, self._steps, inv_scale, clip)
            self._finish(parameters)
        elif self._zero_gradients:
            for gradient in gradients:
                gradient.zero_()
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
        wanted = set(parameters)
        for group in self.param_groups:
            names = self._names(group)
            if self._core is None or any(
                p in wanted and (p not in self._slots or not self._slots[p].fits(p, self.state.get(p, {}), names))
                for p in group["params"]
            ):
                self._make_core(wanted)
                break
        for index, group in enumerate(self.param_groups):
            options = self._options(group)
            if options != self._core_options[index]:
                self._core.set_options(index, self._kind(group), options)
                self._core_options[index] = options
        for parameter in parameters:
            self._slots[parameter].read()

    def _finish(self, parameters):
        for parameter in parameters:
            self._slots[parameter].write()
        if self._zero_gradients:
            torch.autograd.graph.increment_version([local.tensor(parameter.grad) for parameter in parameters])

    def _options(self, group):
        return {name: float(value) if name == "lr" else value for name, value in group.items() if name != "params"}

    def _names(self, group):
        return self._states(group) + (["step"] if self._shows_step else [])

    def _make_core(self, wanted):
        """With all parameters that have had a gradient, or are about to."""
        active = [[p for p in group["params"] if p in self._slots or p in wanted] for group in self.param_groups]
        self._steps = torch.zeros(sum(map(len, active)))
        slots, cores, index = {}, [], 0
        for group, parameters in zip(self.param_groups, active):
            entries = []
            for parameter in parameters:
                slot = Slot(index, parameter, self._copies.get(parameter), self._master_weights)
                old = self._slots.get(parameter)
                first = old.step if old is not None and not self._shows_step else None
                state = self.state.get(parameter, {})
                slot.adopt(parameter, state, self._states(group), self._initial(group))
                slot.count(state, self._steps[index], first, self._shows_step)
                if state:
                    self.state[parameter] = state
                slots[parameter] = slot
                entries.append(slot.for_core())
                index += 1
            cores.append((self._kind(group), self._options(group), entries))
        self._slots = slots
        self._core = backend.extension().TensorOptimizer(cores, self._master_weights, self._zero_gradients)
        self._core_options = [options for _, options, _ in cores]
