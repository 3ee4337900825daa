"""Loss scaling without waiting."""

from __future__ import annotations

from collections import defaultdict

import torch

from weft import backend, local

_READY, _UNSCALED, _STEPPED = "ready", "unscaled", "stepped"


class GradScaler:
    """torch.amp.GradScaler's interface, on the library's: with weft's optimizers step() unscales, clips, updates, copies
    and zeroes in one pass over memory beside the one that looks for overflow. Scale and verdict lie in host memory, where
    they are read and written as numbers; an optimizer that holds the scaler sees every change of it.

    ``hysteresis``: the scale falls at so many overflows since it last grew, and each one after.
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
        if torch.device(device).type != "cpu":
            raise ValueError(f"weft.amp.GradScaler: device is {device}; this build of weft scales on the CPU")
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
        self._scale = backend.extension().LossScale(**self._options)
        self._factor, self._inv_factor, self._found_inf = (
            self._scale.scale(),
            self._scale.inv_scale(),
            self._scale.found_inf(),
        )
        self._optimizers = defaultdict(lambda: {"stage": _READY, "found_inf": torch.zeros(())})

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
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        with torch.no_grad():
            _, finite = local.measure(gradients, "inf", float(self._inv_factor), "unscale_")
            here = [local.tensor(gradient) for gradient in gradients]
            backend.extension().scale_gradients(here, float(self._inv_factor), "unscale_")
        state["found_inf"].fill_(0 if finite else 1)
        state["stage"] = _UNSCALED

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
            result = optimizer._scaled_step(
                state["found_inf"], None if state["stage"] == _UNSCALED else float(self._inv_factor)
            )
        else:
            if state["stage"] == _READY:
                self.unscale_(optimizer)
            result = optimizer.step(*args, **kwargs) if state["found_inf"] == 0 else None
        state["stage"] = _STEPPED
        return result

    def update(self, new_scale=None):
        """Ends a step: the scale falls after an overflow of any optimizer, and grows after steps without."""
        if not self.is_enabled():
            return
        if not self._optimizers:
            raise RuntimeError("weft.amp.GradScaler.update(): no step() or unscale_() since the last update()")
        if new_scale is not None:
            _, tracker, left = self._scale.state()
            self._scale.set_state(float(new_scale), tracker, left)
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
        return {"options": self._options, "state": self._scale.state()}

    def __setstate__(self, kept):
        if "_scale" not in self.__dict__:  # unpickled
            self._options = kept["options"]
            self._begin()
        self._change(**kept["options"])
        self._scale.set_state(*kept["state"])
