"""The functional collectives of torch's graphs (`_c10d_functional`), and which can be sent as one call."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.fx as fx

from weft.graph import costs

_OPS = torch.ops._c10d_functional
_KINDS = {
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
}
# What sends many tensors in one call: its inputs are a list, and so are its results.
COALESCED = {
    _OPS.all_reduce.default: _OPS.all_reduce_coalesced.default,
    _OPS.all_gather_into_tensor.default: _OPS.all_gather_into_tensor_coalesced.default,
    _OPS.reduce_scatter_tensor.default: _OPS.reduce_scatter_tensor_coalesced.default,
}


@dataclass(frozen=True)
class Collective:
    kind: str  # as docs/op-graph.md has it
    bytes: int  # of the larger side of one rank
    ranks: tuple[int, ...]
    key: str  # equal where two may be sent together


def of(node: fx.Node) -> Collective | None:
    """None where the node is no collective."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return None
    if target.namespace != "_c10d_functional":
        return None
    name = target._schema.name.split("::")[1]
    kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), None)
    if kind is None:
        return None
    values = arguments(node)
    sources = [source for source in node.all_input_nodes if source is not values.get("out")]
    inside = sum(costs.bytes_of(one) for source in sources for one in costs.tensors_of(source))
    outside = sum(costs.bytes_of(one) for one in costs.tensors_of(node))
    others = [str(value) for key, value in values.items() if not _has_nodes(value)]
    alone = "" if target in COALESCED else f" {node.name}"
    ranks = ranks_of(values["group_name"], values.get("group_size"), node)
    return Collective(kind, max(inside, outside), ranks, f"{name}({', '.join(others)}){alone}")


def arguments(node: fx.Node) -> dict:
    schema = node.target._schema
    return dict(zip((one.name for one in schema.arguments), node.args)) | dict(node.kwargs)


def _has_nodes(value) -> bool:
    return any(isinstance(one, fx.Node) for one in (value if isinstance(value, (tuple, list)) else [value]))


def ranks_of(group_name: str, size: int | None, node: fx.Node) -> tuple[int, ...]:
    if dist.is_available() and dist.is_initialized():
        try:
            group = dist.distributed_c10d._resolve_process_group(group_name)
            return tuple(dist.get_process_group_ranks(group))
        except (RuntimeError, KeyError, ValueError):
            pass
    if size is None:
        raise ValueError(
            f"weft.graph: {node.name}: process group {group_name!r} is not one of this process's; plan where it has been made"
        )
    return tuple(range(size))
