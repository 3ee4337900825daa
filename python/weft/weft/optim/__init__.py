"""Weft's optimizers as torch.optim.Optimizers: one pass over memory for unscaling, clipping, the update, the 16-bit copy
and the zeroing of gradients. For float32, bfloat16 and float16 on the CPU, and on a GPU, where no step waits.

    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3, max_norm=1.0)

Those that torch has take torch's arguments, are its subclasses and load its state_dicts, and torch's load theirs. All take

    max_norm        clips gradients to this 2-norm, of all groups together; ``optimizer.grad_norm`` is what it was
    zero_gradients  step() leaves zeros in the gradients, and zero_grad() has nothing left to do
    master_weights  16-bit parameters have float32 originals, in ``state[p]["master"]`` (the default). What is written to a
                    parameter counts, but for writes by way of ``p.data``, which nobody can tell: the next step undoes them
    copies          a bfloat16 or float16 tensor for each parameter, which step() leaves its rounded values in
"""

from __future__ import annotations

import torch

from weft.optim.fused import FusedOptimizer

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Lamb", "Lion"]


class Adam(FusedOptimizer, torch.optim.Adam):
    """torch.optim.Adam."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        maximize=False,
        decoupled_weight_decay=False,
        **fused,
    ):
        # Not where torch is too old to have it, unless it is asked for.
        decoupled = {"decoupled_weight_decay": decoupled_weight_decay} if decoupled_weight_decay else {}
        with self._taking(fused):
            super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, **decoupled)

    def _kind(self, group):
        return "AdamW" if group.get("decoupled_weight_decay", False) else "Adam"

    def _states(self, group):
        return ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if group["amsgrad"] else [])


class AdamW(Adam, torch.optim.AdamW):
    """torch.optim.AdamW."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False, **fused
    ):
        with self._taking(fused):
            torch.optim.AdamW.__init__(self, params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)

    def _kind(self, group):
        return "AdamW"


class SGD(FusedOptimizer, torch.optim.SGD):
    """torch.optim.SGD."""

    _shows_step = False  # as torch's, whose first step is the one without a momentum_buffer

    def __init__(
        self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, **fused
    ):
        with self._taking(fused):
            super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize)

    def _kind(self, group):
        return "SGD"

    def _states(self, group):
        return ["momentum_buffer"] if group["momentum"] != 0 else []


class Adagrad(FusedOptimizer, torch.optim.Adagrad):
    """torch.optim.Adagrad."""

    def __init__(
        self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, *, maximize=False, **fused
    ):
        with self._taking(fused):
            super().__init__(params, lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize=maximize)

    def _kind(self, group):
        return "Adagrad"

    def _states(self, group):
        return ["sum"]

    def _initial(self, group):
        return group["initial_accumulator_value"]


class Lamb(FusedOptimizer, torch.optim.Optimizer):
    """Lamb with bias correction (You et al.: Large Batch Optimization for Deep Learning, 2020)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0, *, maximize=False, **fused):
        with self._taking(fused):
            super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _kind(self, group):
        return "Lamb"

    def _states(self, group):
        return ["exp_avg", "exp_avg_sq"]


class Lion(FusedOptimizer, torch.optim.Optimizer):
    """Lion (Chen et al.: Symbolic Discovery of Optimization Algorithms, 2023)."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0, *, maximize=False, **fused):
        with self._taking(fused):
            super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    def _kind(self, group):
        return "Lion"

    def _states(self, group):
        return ["exp_avg"]
