"""Loss scaling without waiting."""

from __future__ import annotations

from collections import defaultdict

import torch

from weft import backend, local, travelling

_READY, _UNSCALED, _STEPPED = "ready", "unscaled", "stepped"


def _one_device(device, enabled: bool) -> torch.device:
    device = torch.device(device)
    if device.type == "cpu" or not enabled:  # a scaler that does nothing may be asked for anywhere
        return torch.device("cpu")
    if device.type != "cuda" or not local.computes_on(device):
        raise ValueError(f"weft.amp.GradScaler: device is {device}; it scales on {local.devices_in_words()}")
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())


class GradScaler:
    """torch.amp.GradScaler's interface, on the library's: with weft's optimizers step() unscales, clips, updates, copies
    and zeroes in one pass over memory beside the one that looks for overflow. Scale and verdict lie in the memory of ``device``: on
    a GPU nothing of a step waits for it, whether it is skipped included (with optimizers that are neither weft's nor torch's fused ones
    step() has to ask). An optimizer that holds the scaler sees every change of it.

    ``device``: where the gradients are; "cuda" is the current GPU. ``hysteresis``: the scale falls at so many overflows since it last grew, and each one after.
    """

    def __init__(
        self,
        device="cpu",
        init_scale=65536.0,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
        hysteresis=1,
    ):
        self._device = _one_device(device, bool(enabled))
        self._options = dict(
            init_scale=float(init_scale),
            growth_factor=float(growth_factor),
            backoff_factor=float(backoff_factor),
            growth_interval=int(growth_interval),
            hysteresis=int(hysteresis),
            enabled=bool(enabled),
        )
        self._begin()

    def _begin(self):
        self._scale = backend.extension().LossScale(**self._options, device=self._device)
        self._factor, self._inv_factor, self._found_inf = (
            self._scale.scale(),
            self._scale.inv_scale(),
            self._scale.found_inf(),
        )
        self._optimizers = defaultdict(lambda: {"stage": _READY, "found_inf": torch.zeros((), device=self._device)})

    def scale(self, outputs):
        """`outputs`, tensors or iterables of them, times the scale."""
        if not self.is_enabled():
            return outputs
        if isinstance(outputs, torch.Tensor):
            return outputs * self._factor.to(outputs.device, copy=True)  # backward needs this step's
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(one) for one in outputs)
        return (self.scale(one) for one in outputs)

    def unscale_(self, optimizer):
        """Gradients ← gradients / scale, in place: for code that reads or changes them before step()."""
        if not self.is_enabled():
            return
        state = self._optimizers[id(optimizer)]
        if state["stage"] != _READY:
            raise RuntimeError(
                "weft.amp.GradScaler.unscale_(): it or step() has already been called on this optimizer since the last update()"
            )
        gradients = self._gradients_of(optimizer, "unscale_")
        here = [local.tensor(gradient) for gradient in gradients]
        with torch.no_grad():
            if not self._on_gpu:
                _, finite = local.measure(gradients, "inf", float(self._inv_factor), "unscale_")
                backend.extension().scale_gradients(here, float(self._inv_factor), "unscale_")
                state["found_inf"].fill_(0 if finite else 1)
            elif any(one is not gradient for one, gradient in zip(here, gradients)):  # of other ranks' parts, too
                local.measure_on_gpu(gradients, "inf", self._inv_factor, 0.0, state["found_inf"], "unscale_")
                backend.extension().scale_on_gpu(here, self._inv_factor, None, "unscale_")
            else:
                backend.extension().scale_on_gpu(here, self._inv_factor, state["found_inf"], "unscale_")
        state["stage"] = _UNSCALED

    @property
    def _on_gpu(self):
        return self._device.type == "cuda"

    def _gradients_of(self, optimizer, call):
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        travelling.await_all(parameters)
        gradients = [p.grad for p in parameters]
        for gradient in gradients:
            if gradient.device != self._device:
                raise RuntimeError(
                    f"weft.amp.GradScaler.{call}(): the optimizer's gradients are on {gradient.device}, the scaler is on "
                    f"{self._device}; make it with GradScaler({str(gradient.device)!r})"
                )
        return gradients

    def step(self, optimizer, *args, **kwargs):
        """optimizer.step(), unless a gradient is infinite or NaN; None then."""
        if not self.is_enabled():
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args and callable(args[0]):
            raise RuntimeError("weft.amp.GradScaler.step(): closures cannot be used while the scale is applied")
        state = self._optimizers[id(optimizer)]
        if state["stage"] == _STEPPED:
            raise RuntimeError("weft.amp.GradScaler.step() has already been called on this optimizer since the last update()")
        if hasattr(optimizer, "_scaled_step"):
            self._gradients_of(optimizer, "step")
            inv_factor = self._inv_factor if self._on_gpu else float(self._inv_factor)
            result = optimizer._scaled_step(state["found_inf"], None if state["stage"] == _UNSCALED else inv_factor)
        elif self._on_gpu and getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_of_torchs(optimizer, state, args, kwargs)
        else:
            if state["stage"] == _READY:
                self.unscale_(optimizer)
            result = optimizer.step(*args, **kwargs) if state["found_inf"] == 0 else None
        state["stage"] = _STEPPED
        return result

    def _step_of_torchs(self, optimizer, state, args, kwargs):
        """As torch's scaler has its fused optimizers unscale and skip by themselves."""
        if state["stage"] == _READY:
            gradients = self._gradients_of(optimizer, "step")
            if gradients:
                local.measure_on_gpu(gradients, "inf", self._inv_factor, 0.0, state["found_inf"], "step")
            optimizer.grad_scale = self._factor
        else:
            optimizer.grad_scale = None
        optimizer.found_inf = state["found_inf"]
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def update(self, new_scale=None):
        """Ends a step: the scale falls after an overflow of any optimizer, and grows after steps without."""
        if not self.is_enabled():
            return
        if not self._optimizers:
            raise RuntimeError("weft.amp.GradScaler.update(): no step() or unscale_() since the last update()")
        if new_scale is not None:
            self._scale.update_to(float(new_scale))
        else:
            for state in self._optimizers.values():
                torch.maximum(self._found_inf, state["found_inf"], out=self._found_inf)
            self._scale.update()
        self._optimizers.clear()

    def is_enabled(self):
        return self._options["enabled"]

    def get_scale(self):
        return float(self._factor)

    def _change(self, **options):
        # In place, for optimizers and tensors hold on to what there is.
        changed = {**self._options, **options}
        self._scale.set_options(**changed)
        self._options = changed

    def get_growth_factor(self):
        return self._options["growth_factor"]

    def set_growth_factor(self, new_factor):
        self._change(growth_factor=float(new_factor))

    def get_backoff_factor(self):
        return self._options["backoff_factor"]

    def set_backoff_factor(self, new_factor):
        self._change(backoff_factor=float(new_factor))

    def get_growth_interval(self):
        return self._options["growth_interval"]

    def set_growth_interval(self, new_interval):
        self._change(growth_interval=int(new_interval))

    def state_dict(self):
        """As torch's; empty where disabled."""
        if not self.is_enabled():
            return {}
        scale, tracker, left = self._scale.state()
        names = ("growth_factor", "backoff_factor", "growth_interval")
        return {
            "scale": scale,
            **{name: self._options[name] for name in names},
            "_growth_tracker": tracker,
            "hysteresis_left": left,
        }

    def load_state_dict(self, state_dict):
        """One of torch's or of this class's."""
        if not self.is_enabled():
            return
        if not state_dict:
            raise RuntimeError("weft.amp.GradScaler.load_state_dict(): empty, as one that was saved by a disabled scaler is")
        self._change(**{name: state_dict[name] for name in ("growth_factor", "backoff_factor", "growth_interval")})
        left = state_dict.get("hysteresis_left", self._options["hysteresis"])
        self._scale.set_state(state_dict["scale"], state_dict["_growth_tracker"], left)
        self._optimizers.clear()

    def __getstate__(self):
        return {"options": self._options, "state": self._scale.state(), "device": self._device}

    def __setstate__(self, kept):
        if "_scale" not in self.__dict__:  # unpickled
            self._options = kept["options"]
            self._device = kept.get("device", torch.device("cpu"))
            self._begin()
        self._change(**kept["options"])
        self._scale.set_state(*kept["state"])
