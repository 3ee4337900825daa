"""Fused layers in the place of a model's own."""

from __future__ import annotations

import functools
import inspect
from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn

from weft import layers


def patch(model: nn.Module) -> "Patched":
    """Has modules of `model` compute with weft's fused layers, on the CPU and on GPUs, until ``unpatch(model)``:

        torch.nn.LayerNorm                    over one dimension
        torch.nn.GELU                         and transformers' GELUActivation, NewGELUActivation, GELUTanh, FastGELUActivation
        transformers' QuickGELUActivation
        torch.nn.TransformerEncoderLayer      bias, dropout and residual in one pass, in training
        transformers' blocks of dense, dropout and LayerNorm(… + input), as in BERT, likewise

    A module stays the object it is, with its parameters, hooks and state_dict; its class becomes a subclass of its own one.
    Tensors that the fused layers do not take (float64; on a GPU, where weft was built without nvcc) go to the module's own
    forward. Dropout drops other elements than torch's would, at the same rate. Returns what was swapped, by name; print() it.
    """
    done = Patched()
    for name, module in model.named_modules():
        if isinstance(module, _Fused):
            done.swapped[name] = type(module).__mro__[2].__name__
            continue
        found = _fused_forward(module)
        if isinstance(found, str):
            done.skipped[name] = found
        elif found is not None:
            done.swapped[name] = type(module).__name__
            module.__class__ = _fused_class(type(module), found.__name__)
    return done


def unpatch(model: nn.Module) -> None:
    """Takes back what patch() did."""
    for module in model.modules():
        if isinstance(module, _Fused):
            module.__class__ = type(module).__mro__[2]


class Patched:
    """``swapped``: the class of each module that was swapped, by its name; ``skipped``: why others were not that look alike."""

    def __init__(self):
        self.swapped, self.skipped = {}, {}

    def __str__(self) -> str:
        swapped = Counter(self.swapped.values())
        lines = [f"weft.patch: {len(self.swapped)} modules fused" + "".join(f", {n} {kind}" for kind, n in sorted(swapped.items()))]
        lines += [f"  left: {name or 'the model'}: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


class _Fused:
    """Marks classes made here: (this, the module's own class)."""

    def __reduce_ex__(self, protocol):
        # Copies and pickles: the class is made again, the state is the module's.
        return _rebuild, (type(self).__mro__[2], type(self)._forward_name), self.__dict__


def _rebuild(own: type, forward: str):
    fused = _fused_class(own, forward)
    return fused.__new__(fused)


@functools.cache
def _fused_class(own: type, forward: str) -> type:
    return type(own.__name__, (_Fused, own), {"forward": _FORWARDS[forward], "_forward_name": forward, "__module__": own.__module__})


def _own(module) -> type:
    return type(module).__mro__[2]


# --- forwards; `self` is a module of a fused class ---


def _layer_norm(self, input):
    if not layers.takes(input):
        return _own(self).forward(self, input)
    if input.is_cuda and torch.is_autocast_enabled("cuda"):
        input = input.float()  # as torch's autocast has it on GPUs, and not on the CPU
    return layers.layer_norm(input, self.weight, self.bias, self.eps)


def _gelu(self, input):
    return layers.bias_gelu(input) if layers.takes(input) else _own(self).forward(self, input)


def _erf_gelu(self, input):
    return layers.bias_gelu(input, approximate="none") if layers.takes(input) else _own(self).forward(self, input)


def _quick_gelu(self, input):
    return layers.bias_quick_gelu(input) if layers.takes(input) else _own(self).forward(self, input)


def _dense_dropout_add_norm(self, hidden_states, input_tensor):
    if not (_fusable(self, self.dense, self.dropout) and layers.takes(hidden_states, input_tensor)):
        return _own(self).forward(self, hidden_states, input_tensor)
    return self.LayerNorm(_dense_dropout_add(self.dense, hidden_states, self.dropout, input_tensor))


def _encoder_layer(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
    drops = _fusable(self, self.linear2, self.dropout1) and _fusable(self, self.linear2, self.dropout2)
    if not (drops and layers.takes(src)):
        return _own(self).forward(self, src, src_mask, src_key_padding_mask, is_causal)

    def attend(x, residual):
        out = self.self_attn(x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, need_weights=False, is_causal=is_causal)
        return layers.bias_dropout_add(out[0], None, residual, self.dropout1.p)

    def feed(x, residual):
        inner = self.dropout(self.activation(self.linear1(x)))
        return _dense_dropout_add(self.linear2, inner, self.dropout2, residual)

    if self.norm_first:
        x = attend(self.norm1(src), src)
        return feed(self.norm2(x), x)
    x = self.norm1(attend(src, src))
    return self.norm2(feed(x, x))


def _dense_dropout_add(dense, x, dropout, residual):
    return layers.bias_dropout_add(F.linear(x, dense.weight), dense.bias, residual, dropout.p)


def _is_plain(module, kind: type) -> bool:
    """A call of it does what `kind` does and nothing else: it was not replaced (by an adapter, a quantised one), nor hooked."""
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return type(module) is kind and not hooked and "forward" not in vars(module)


def _fusable(block, dense, dropout) -> bool:
    """In evaluation torch's Linear adds the bias in its product, and nothing drops."""
    if not (_is_plain(dense, nn.Linear) and _is_plain(dropout, nn.Dropout)):
        return False
    return block.training and dropout.training and 0 < dropout.p < 1


_FORWARDS = {
    forward.__name__: forward for forward in (_layer_norm, _gelu, _erf_gelu, _quick_gelu, _dense_dropout_add_norm, _encoder_layer)
}
# Classes of transformers.activations; without this module being asked for.
_ACTIVATIONS = {
    "QuickGELUActivation": _quick_gelu,
    "GELUActivation": _erf_gelu,
    "NewGELUActivation": _gelu,
    "GELUTanh": _gelu,
    "PytorchGELUTanh": _gelu,
    "FastGELUActivation": _gelu,
}


def _fused_forward(module):
    """Which of the above; a text: why none; None: there is nothing to fuse in it."""
    kind = type(module)
    if kind is nn.LayerNorm:
        return _layer_norm if len(module.normalized_shape) == 1 else f"LayerNorm over {len(module.normalized_shape)} dimensions"
    if kind is nn.GELU:
        return _gelu if module.approximate == "tanh" else _erf_gelu
    if kind is nn.TransformerEncoderLayer:
        return _encoder_layer
    if kind.__module__ == "transformers.activations":
        return _ACTIVATIONS.get(kind.__name__)
    if kind.__module__.startswith("transformers.") and _ends_in_norm(module):
        return _dense_dropout_add_norm
    return None


def _ends_in_norm(module) -> bool:
    """LayerNorm(dropout(dense(hidden_states)) + input_tensor), as blocks of BERT and its descendants are."""
    children = {name: type(child) for name, child in module.named_children()}
    norms = children.pop("LayerNorm", None)
    if children != {"dense": nn.Linear, "dropout": nn.Dropout} or norms is None or not issubclass(norms, nn.LayerNorm):
        return False
    return list(inspect.signature(type(module).forward).parameters) == ["self", "hidden_states", "input_tensor"]
