"""Clipping gradients by their norm."""

from __future__ import annotations

import math

import torch

from weft import backend, bare, local, travelling


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None) -> torch.Tensor:
    """torch.nn.utils.clip_grad_norm_ by the library's kernels: gradients of tensors and DTensors are scaled to a norm of
    at most ``max_norm``, and the norm before is returned, an ordinary tensor.

    DTensors' norm is over all ranks' parts; all ranks call this. Gradients that are not finite are left as they are,
    where torch's turns them to zeros and NaNs, and the norm returned is inf. ``foreach`` has no effect. What the kernels
    do not take (other norms than 2 and inf, float64, sparse gradients, several devices) torch's function does. On a GPU nothing
    waits, unless ``error_if_nonfinite`` asks to. A ZeroOptimizer's gradients are refused: its ``max_norm`` clips.
    """
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    bare.check_not_sharded(
        parameters,
        "weft.clip_grad_norm_",
        f"leave the call out, give ZeroOptimizer max_norm={max_norm} or compose() clip_grad={max_norm}, and step() clips; "
        "optimizer.grad_norm is the norm",
    )
    travelling.await_all(parameters)
    gradients = [p.grad for p in parameters if p.grad is not None]
    here = [local.tensor(gradient) for gradient in gradients]
    kind = {2.0: "l2", math.inf: "inf"}.get(float(norm_type))
    devices = {one.device for one in here}
    if kind is None or len(devices) > 1 or not all(local.computable(one) for one in here):
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
    if devices and devices.pop().type == "cuda":
        if max_norm <= 0:  # to kernels that is no limit
            return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        return _clip_on_gpu(gradients, here, float(max_norm), kind, norm_type, error_if_nonfinite)
    value, finite = local.measure(gradients, kind, 1.0, "clip_grad_norm_")
    norm = (math.sqrt(value) if kind == "l2" else value) if finite else math.inf
    if not finite and error_if_nonfinite:
        raise _not_finite(norm_type)
    factor = float(max_norm) / (norm + 1e-6)
    if finite and factor < 1:
        backend.extension().scale_gradients(here, factor, "clip_grad_norm_")
    return torch.tensor(norm, dtype=torch.float32)


def _clip_on_gpu(gradients, here, max_norm, kind, norm_type, error_if_nonfinite):
    found_inf = torch.zeros((), device=here[0].device)
    norm, factor = local.measure_on_gpu(gradients, kind, None, max_norm, found_inf, "clip_grad_norm_")
    if error_if_nonfinite and found_inf.item() != 0:
        raise _not_finite(norm_type)
    backend.extension().scale_on_gpu(here, factor, None, "clip_grad_norm_")
    return norm


def _not_finite(norm_type):
    return RuntimeError(
        f"weft.clip_grad_norm_: the norm of order {norm_type} of the gradients is not finite, so they cannot be "
        "clipped; error_if_nonfinite=False leaves them as they are"
    )
