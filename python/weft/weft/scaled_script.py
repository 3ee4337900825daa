"""The loss scale of a script that has none: what ``weft-run --precision fp16`` does beside autocast."""

from __future__ import annotations

import contextlib
import types

import torch

from weft import amp


class ScriptScaling:
    """Scales every backward of the script, and unscales where its optimizer steps, which it leaves out after an overflow;
    or where its gradients are clipped. `refuse` makes the exception for scripts that this does not fit."""

    def __init__(self, refuse):
        self._refuse = refuse
        self.scaler = amp.GradScaler()
        self._stepping = False
        self._unscaled = False  # by clipping, since the last step

    def step_of(self, optimizer) -> None:
        """The optimizer's step() is the scaler's from here on."""
        plain = type(optimizer).step

        def step(self_, closure=None):
            if self._stepping:
                return plain(self_, closure) if closure is not None else plain(self_)
            if closure is not None:
                raise self._refuse("--precision fp16: optimizer.step(closure) cannot be scaled; call step() after backward()")
            self._stepping = True
            try:
                result = self.scaler.step(self_)
            finally:
                self._stepping = False
            self.scaler.update()
            self._unscaled = False
            return result

        optimizer.step = types.MethodType(step, optimizer)  # bound, as schedulers want it

    def unscale(self, optimizer) -> None:
        """Its gradients are to be read."""
        if not self._unscaled:
            self.scaler.unscale_(optimizer)
            self._unscaled = True

    @contextlib.contextmanager
    def applied(self):
        backward, init = torch.autograd.backward, torch.amp.GradScaler.__init__

        def scaled(tensors, *arguments, **keywords):
            if torch._C._current_graph_task_id() != -1:  # within a backward, as a checkpoint's: of what is scaled already
                return backward(tensors, *arguments, **keywords)
            return backward(self.scaler.scale(tensors), *arguments, **keywords)

        def refuse_scaler(*_, **__):
            raise self._refuse("--precision fp16: the script scales its loss itself; leave --precision out, or its GradScaler")

        torch.autograd.backward, torch.amp.GradScaler.__init__ = scaled, refuse_scaler
        try:
            yield
        finally:
            torch.autograd.backward, torch.amp.GradScaler.__init__ = backward, init
