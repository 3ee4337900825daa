"""Fused layers as torch ops (``torch.ops.weft``), with autograd, for eager programs and torch.compile. Of float32, bfloat16 and
float16, computed in float32; each is one pass over memory forward and one backward (two for layer_norm on a GPU). Results do
not depend on the number of threads, and the same values give the same bits. Not differentiable twice.

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

TYPES = (torch.float32, torch.bfloat16, torch.float16)


def takes(*tensors: torch.Tensor) -> bool:
    """Whether these layers compute on such tensors: on one device, the CPU or a GPU that weft has kernels for."""
    device = tensors[0].device
    if not all(one.device == device and one.dtype in TYPES and one.layout == torch.strided for one in tensors):
        return False
    return device.type == "cpu" or (device.type == "cuda" and _has_gpu_kernels())


def _has_gpu_kernels() -> bool:
    return hasattr(backend.extension(), "device_layer_norm")


# As torch.compiler.assume_constant_result(), which would import the compiler: torch.compile asks once, and does not look inside.
_has_gpu_kernels._dynamo_marked_constant = True


def layer_norm(x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5) -> torch.Tensor:
    """(x − mean)/√(variance + eps)·weight + bias over the last dimension, of x's type."""
    return torch.ops.weft.layer_norm(x, weight, bias, eps)[0]


def bias_gelu(x: torch.Tensor, bias: torch.Tensor | None = None, approximate: str = "tanh") -> torch.Tensor:
    """torch.nn.functional.gelu(x + bias, approximate=approximate), of x's type: "tanh", or "none", which is by erf."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"weft.layers.bias_gelu: approximate is {approximate!r}; it must be 'none' or 'tanh'")
    return torch.ops.weft.bias_gelu(x, bias, approximate)


def bias_quick_gelu(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """z·sigmoid(1.702·z) with z = x + bias, of x's type."""
    return torch.ops.weft.bias_gelu(x, bias, "quick")


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
    wide = torch.promote_types(x.dtype, residual.dtype)
    seed = torch.randint(2**63 - 1, (1,), device=x.device)
    return torch.ops.weft.bias_dropout_add(x.to(wide), bias, residual.to(wide), seed, p)


# --- the ops ---

_SCHEMAS = {
    "layer_norm": "(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    "layer_norm_gradient": "(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor? weight) -> (Tensor, Tensor, Tensor)",
    "bias_gelu": "(Tensor x, Tensor? bias, str form) -> Tensor",
    "bias_gelu_gradient": "(Tensor dy, Tensor x, Tensor? bias, str form) -> (Tensor, Tensor)",
    "bias_dropout_add": "(Tensor x, Tensor? bias, Tensor residual, Tensor seed, float p) -> Tensor",
    "bias_dropout_gradient": "(Tensor dy, Tensor seed, float p) -> (Tensor, Tensor)",
}


def _rows(x: torch.Tensor):
    return x.new_empty(x.shape[:-1].numel(), dtype=torch.float32)


def _columns(x: torch.Tensor):
    return x.new_empty(x.shape[-1], dtype=torch.float32)


def _as(x: torch.Tensor):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


# What each returns, without computing it.
_FAKES = {
    "layer_norm": lambda x, weight, bias, eps: (_as(x), _rows(x), _rows(x)),
    "layer_norm_gradient": lambda dy, x, mean, rstd, weight: (_as(x), _columns(x), _columns(x)),
    "bias_gelu": lambda x, bias, form: _as(x),
    "bias_gelu_gradient": lambda dy, x, bias, form: (_as(x), _columns(x)),
    "bias_dropout_add": lambda x, bias, residual, seed, p: _as(x),
    "bias_dropout_gradient": lambda dy, seed, p: (_as(dy), _columns(dy)),
}


def _compiled(name):
    """The extension's function of that name, for tensors with any strides."""

    def call(*arguments):
        compiled = getattr(backend.extension(), name, None)
        if compiled is None:
            raise NotImplementedError(
                f"weft.layers: {name}: this build of weft has no kernels for GPUs. Build it where nvcc and nccl.h are (pip "
                "install --no-build-isolation -C cmake.define.WEFT_CUDA=ON ./python/weft), or take torch's own layers there"
            )
        return compiled(*(one.contiguous() if isinstance(one, torch.Tensor) else one for one in arguments))

    return call


def _of_type(gradient, parameter_type):
    return None if parameter_type is None else gradient.to(parameter_type)


def _type_of(tensor):
    return None if tensor is None else tensor.dtype


def _keep_layer_norm(ctx, inputs, output):
    x, weight, bias, _ = inputs
    ctx.save_for_backward(x, output[1], output[2], weight)
    ctx.types = _type_of(weight), _type_of(bias)


def _layer_norm_backward(ctx, dy, *_):
    dx, dweight, dbias = torch.ops.weft.layer_norm_gradient(dy, *ctx.saved_tensors)
    return dx, _of_type(dweight, ctx.types[0]), _of_type(dbias, ctx.types[1]), None


def _keep_gelu(ctx, inputs, output):
    x, bias, ctx.form = inputs
    ctx.save_for_backward(x, bias)


def _gelu_backward(ctx, dy):
    x, bias = ctx.saved_tensors
    dx, dbias = torch.ops.weft.bias_gelu_gradient(dy, x, bias, ctx.form)
    return dx, _of_type(dbias, _type_of(bias)), None


def _keep_dropout(ctx, inputs, output):
    _, bias, _, seed, ctx.p = inputs
    ctx.save_for_backward(seed)
    ctx.type = _type_of(bias)


def _dropout_backward(ctx, dy):
    dx, dbias = torch.ops.weft.bias_dropout_gradient(dy, *ctx.saved_tensors, ctx.p)
    return dx, _of_type(dbias, ctx.type), dy, None, None


def _no_second(ctx, *_):
    raise NotImplementedError("weft.layers: fused layers have no second derivatives; take torch's own (weft.unpatch(model))")


_BACKWARDS = {
    "layer_norm": (_layer_norm_backward, _keep_layer_norm),
    "bias_gelu": (_gelu_backward, _keep_gelu),
    "bias_dropout_add": (_dropout_backward, _keep_dropout),
}

for _name, _schema in _SCHEMAS.items():
    _op = f"weft::{_name}"
    torch.library.define(_op, _schema)
    torch.library.impl(_op, "CPU")(_compiled(_name))
    torch.library.impl(_op, "CUDA")(_compiled(f"device_{_name}"))
    torch.library.register_fake(_op)(_FAKES[_name])
    _backward, _keep = _BACKWARDS.get(_name, (_no_second, lambda ctx, inputs, output: None))
    torch.library.register_autograd(_op, _backward, setup_context=_keep)
