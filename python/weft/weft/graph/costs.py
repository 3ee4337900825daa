"""What nodes of an FX graph compute and move, from the shapes that are written beside them."""

from __future__ import annotations

import math

import torch
import torch.fx as fx
from torch._inductor.fx_utils import count_flops_fx
from torch.fx.experimental.symbolic_shapes import hint_int
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

_UNKNOWN_SIZE = 4096  # of a dimension that nothing is known of


def _number(size) -> int:
    return size if isinstance(size, int) else hint_int(size, fallback=_UNKNOWN_SIZE)


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """That it returns, without what is none."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return [one for one in values if isinstance(one, torch.Tensor)]


def place_of(node: fx.Node, index: int) -> int:
    """Where element `index` of what it returns is in tensors_of()."""
    return sum(isinstance(one, torch.Tensor) for one in node.meta["val"][:index])


def bytes_of(tensor: torch.Tensor) -> int:
    return math.prod(_number(size) for size in tensor.shape) * tensor.element_size()


# torch's registry does not have these two.
_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def flops_of(node: fx.Node) -> float:
    packet = getattr(node.target, "overloadpacket", None)
    if packet is _FLASH:
        return float(sdpa_flop_count(*_shapes(node.args[:3])))
    if packet is _FLASH_BACKWARD:
        return float(sdpa_backward_flop_count(*_shapes(node.args[:4])))
    return float(count_flops_fx(node) or 0)


def _shapes(nodes):
    return [tuple(_number(size) for size in node.meta["val"].shape) for node in nodes]


def is_pointwise(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags


def traffic_of(node: fx.Node) -> float:
    """Bytes read and written, where pointwise operators that follow one another run as one, as a compiler has them."""
    pointwise = is_pointwise(node)
    read = sum(
        bytes_of(one)
        for source in node.all_input_nodes
        if not (pointwise and is_pointwise(source))
        for one in tensors_of(source)
    )
    inside = pointwise and node.users and all(is_pointwise(user) for user in node.users)
    return float(read + (0 if inside else sum(bytes_of(one) for one in tensors_of(node))))
