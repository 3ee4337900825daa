"""Fused layers as torch ops (``torch.ops.weft``), with autograd, for eager programs and torch.compile. Of float32, bfloat16 and
float16, computed in float32; each is one pass over memory forward and one backward (two for a layer_norm of more than 4096 columns on a
GPU). Results do not depend on the number of threads, and the same values give the same bits. Not differentiable twice.

On the CPU, and on GPUs where weft was built with kernels for them: there they only enqueue on the current stream, and a CUDA
graph can record them. What a call is given lies on one device.

    layer_norm(x, weight, bias, eps)        over the last dimension
    bias_gelu(x, bias, approximate)         gelu(x + bias), by tanh or by erf
    bias_quick_gelu(x, bias)                z·σ(1.702·z), z = x + bias
    bias_dropout_add(x, bias, residual, p)  residual + dropout(x + bias)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from weft import backend

# The extension brings the ops, with their gradients (csrc/layer_ops.cpp): in Python they would cost more than they compute.
_ON_GPUS = hasattr(backend.extension(), "device_layers")
_layer_norm = torch.ops.weft.layer_norm.default
_bias_gelu = torch.ops.weft.bias_gelu.default
_bias_dropout_add = torch.ops.weft.bias_dropout_add.default
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def takes(*tensors: torch.Tensor) -> bool:
    """Whether these layers compute on such tensors: on one device, the CPU or a GPU that weft has kernels for."""
    device = tensors[0].device
    if not all(one.device == device and one.dtype in TYPES and one.layout == torch.strided for one in tensors):
        return False
    return device.type == "cpu" or (device.type == "cuda" and _ON_GPUS)


def layer_norm(x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5) -> torch.Tensor:
    """(x − mean)/√(variance + eps)·weight + bias over the last dimension, of x's type."""
    return _layer_norm(x, weight, bias, eps)[0]


def bias_gelu(x: torch.Tensor, bias: torch.Tensor | None = None, approximate: str = "tanh") -> torch.Tensor:
    """torch.nn.functional.gelu(x + bias, approximate=approximate), of x's type: "tanh", or "none", which is by erf."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"weft.layers.bias_gelu: approximate is {approximate!r}; it must be 'none' or 'tanh'")
    return _bias_gelu(x, bias, approximate)


def bias_quick_gelu(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """z·sigmoid(1.702·z) with z = x + bias, of x's type."""
    return _bias_gelu(x, bias, "quick")


def bias_dropout_add(
    x: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor, p: float = 0.5, training: bool = True
) -> torch.Tensor:
    """residual + dropout(x + bias, p), of the wider type of x's and residual's. What is dropped is drawn from torch's global
    generator of x's device (by one number: other elements than torch's dropout would drop), and is not kept for backward.
    Replays of a CUDA graph draw anew."""
    if not 0 <= p <= 1:
        raise ValueError(f"weft.layers.bias_dropout_add: p is {p}; it must be in [0, 1]")
    if x.shape != residual.shape:
        raise ValueError(
            f"weft.layers.bias_dropout_add: x has shape {tuple(x.shape)}, the residual {tuple(residual.shape)}; they must be equal"
        )
    if not training or p in (0, 1):
        return residual + F.dropout(x if bias is None else x + bias, p, training)
    if x.dtype != residual.dtype:
        wide = torch.promote_types(x.dtype, residual.dtype)
        x, residual = x.to(wide), residual.to(wide)
    seed = torch.randint(2**63 - 1, (1,), device=x.device)
    return _bias_dropout_add(x, bias, residual, seed, p)


# --- for torch.compile: what each op returns, without computing it ---


def _rows(x: torch.Tensor):
    return x.new_empty(x.shape[:-1].numel(), dtype=torch.float32)


def _columns(x: torch.Tensor):
    return x.new_empty(x.shape[-1], dtype=torch.float32)


def _as(x: torch.Tensor):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


_FAKES = {
    "layer_norm": lambda x, weight, bias, eps: (_as(x), _rows(x), _rows(x)),
    "layer_norm_gradient": lambda dy, x, mean, rstd, weight: (_as(x), _columns(x), _columns(x)),
    "bias_gelu": lambda x, bias, form: _as(x),
    "bias_gelu_gradient": lambda dy, x, bias, form: (_as(x), _columns(x)),
    "bias_dropout_add": lambda x, bias, residual, seed, p: _as(x),
    "bias_dropout_gradient": lambda dy, seed, p: (_as(dy), _columns(dy)),
}


for _name, _fake in _FAKES.items():
    torch.library.register_fake(f"weft::{_name}")(_fake)
