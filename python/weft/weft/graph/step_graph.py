"""An FX graph as the planners see it: operators with costs, the memory that they read and write, and what has to come
before what. Views, waits and getitems cost nothing and are no operators; they stand for the memory behind them."""

from __future__ import annotations

import functools
import json
import operator
from dataclasses import dataclass

import torch
import torch.fx as fx
from torch._inductor.fx_utils import get_node_storage

from weft.graph import collectives, costs

_WAIT = torch.ops._c10d_functional.wait_tensor.default


@dataclass
class StepGraph:
    """``ops[i]`` is the node of the planners' operator i; ``text`` is the graph in the form of docs/op-graph.md."""

    ops: list[fx.Node]
    text: str

    @functools.cached_property
    def places(self) -> dict[fx.Node, int]:
        return {node: place for place, node in enumerate(self.ops)}


def is_wait(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is _WAIT


def is_free(node: fx.Node) -> bool:
    """Whether it runs nothing: it moves with the first operator that reads it."""
    if node.op in ("placeholder", "get_attr", "output"):
        return True
    if node.target is operator.getitem or is_wait(node):
        return True
    if not costs.tensors_of(node) and not node.is_impure():
        return True  # sizes and other numbers
    return _base_of_view(node) is not None


def _base_of_view(node: fx.Node) -> fx.Node | None:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return None
    if collectives.of(node) is not None:
        return None
    storage = get_node_storage(node)
    for source in node.all_input_nodes:
        if storage is not None and get_node_storage(source) == storage:
            return source
    aliased = any(one.alias_info is not None for one in target._schema.returns)
    return node.all_input_nodes[0] if aliased and node.all_input_nodes else None


class _Builder:
    """Walks the nodes in program order. A *memory* is a chain of tensors: what an operator made, then what was written
    over it in place."""

    def __init__(self, graph: fx.Graph, name: str, kept_inputs, seconds: dict, in_order: bool, merge: bool):
        self.name, self.kept_inputs, self.measured = name, kept_inputs, seconds
        self.in_order, self.merge = in_order, merge
        self.nodes, self.ops, self.groups = [], [], {}
        self.tensors: list[dict] = []
        self.memories: dict[fx.Node, list] = {}  # of a node: memories, one for each tensor that it returns
        self.current: list[int] = []  # of a memory: the tensor that is in it now
        self.users: list[list[int]] = []  # of a memory: operators so far
        self.last = {"random": None, "effect": None, "compute": None, "collective": None}
        self.waited: list[int] = []
        self.writer: dict[int, int] = {}  # of a tensor
        for node in graph.nodes:
            self._visit(node)

    # --- memory ---

    def _new_memory(self, name: str, size: int, kept: bool) -> int:
        self.tensors.append({"name": f"{name}#{len(self.tensors)}", "bytes": int(size), "kept": kept})
        self.current.append(len(self.tensors) - 1)
        self.users.append([])
        return len(self.current) - 1

    def _overwrite(self, memory: int, name: str) -> int:
        old = self.tensors[self.current[memory]]
        self.tensors.append({**old, "name": f"{name}#{len(self.tensors)}", "alias_of": old["name"]})
        self.current[memory] = len(self.tensors) - 1
        return self.current[memory]

    def _memories_read(self, node: fx.Node) -> list[int]:
        found = {}
        for source in node.all_input_nodes:
            for memory in self.memories.get(source, ()):
                found[memory] = None
        return list(found)

    def _visit(self, node: fx.Node) -> None:
        if node.op == "output":
            for memory in self._memories_read(node):
                self.tensors[self.current[memory]]["kept"] = True
            return
        if node.op in ("placeholder", "get_attr"):
            kept = node.op == "get_attr" or self.kept_inputs(node)
            self.memories[node] = [
                self._new_memory(node.name, costs.bytes_of(one), kept) for one in costs.tensors_of(node)
            ]
            return
        if node.target is operator.getitem:
            source, index = node.args
            inside = self.memories.get(source, [])
            whole = costs.tensors_of(source)
            several = isinstance(source.meta.get("val"), (tuple, list)) and len(inside) == len(whole)
            self.memories[node] = [inside[costs.place_of(source, index)]] if several and inside else list(inside)
        elif is_wait(node):
            self.memories[node] = self._memories_read(node)
            if self.in_order:
                self.waited += [
                    self.writer[tensor]
                    for tensor in (self.current[memory] for memory in self.memories[node])
                    if tensor in self.writer
                ]
        elif (base := _base_of_view(node)) is not None:
            self.memories[node] = list(self.memories.get(base, ()))
        elif is_free(node):
            self.memories[node] = []
        else:
            self._operator(node)

    # --- operators ---

    def _operator(self, node: fx.Node) -> None:
        me = len(self.ops)
        read = self._memories_read(node)
        reads = [self.current[memory] for memory in read]
        after, writes = set(), []
        for memory in self._memories_written(node, read):
            after.update(self.users[memory])
            writes.append(self._overwrite(memory, node.name))
        made = []
        for one in costs.tensors_of(node):
            shared = self._shared_with_input(node, one)
            if shared is not None:
                made.append(shared)
                continue
            made.append(self._new_memory(node.name, costs.bytes_of(one), False))
            writes.append(self.current[made[-1]])
        self.memories[node] = made
        call = collectives.of(node)
        self._keep_effects_in_order(node, me, after)
        if self.in_order:
            self._keep_program_order(me, after, call is not None)
        for memory in {*read, *made}:
            self.users[memory].append(me)
        for tensor in writes:
            self.writer[tensor] = me
        op = {
            "name": f"{node.name}#{me}",
            "kind": "collective" if call else "compute",
            "reads": [self.tensors[tensor]["name"] for tensor in dict.fromkeys(reads)],
            "writes": [self.tensors[tensor]["name"] for tensor in writes],
            "after": [self.ops[before]["name"] for before in sorted(after - {me})],
        }
        if call:
            op["collective"] = {"kind": call.kind, "bytes": call.bytes, "group": self._group(call, me)}
        else:
            op["flops"], op["memory_bytes"] = costs.flops_of(node), costs.traffic_of(node)
        if node in self.measured:
            op["seconds"] = self.measured[node]
        elif not call and op["flops"] == 0 and op["memory_bytes"] == 0:
            op["seconds"] = 0.0  # fused into its neighbours
        self.nodes.append(node)
        self.ops.append(op)

    def _memories_written(self, node, read) -> list[int]:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            return []
        values = dict(zip((one.name for one in schema.arguments), node.args)) | dict(node.kwargs)
        found = {}
        for argument in schema.arguments:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = values.get(argument.name)
            for one in given if isinstance(given, (tuple, list)) else [given]:
                for memory in self.memories.get(one, ()) if isinstance(one, fx.Node) else ():
                    found[memory] = None
        return list(found)

    def _shared_with_input(self, node, one) -> int | None:
        if not torch._C._has_storage(one):
            return None
        for source in node.all_input_nodes:
            known = costs.tensors_of(source)
            memories = self.memories.get(source, ())
            for place, other in enumerate(known):
                if torch._C._has_storage(other) and other.untyped_storage()._cdata == one.untyped_storage()._cdata:
                    return memories[place] if len(memories) == len(known) else (memories[0] if memories else None)
        return None

    def _keep_effects_in_order(self, node, me, after) -> None:
        """Random numbers are drawn, and what is no function of its arguments is called, in the program's order."""
        if self.last["effect"] is not None:
            after.add(self.last["effect"])
        if isinstance(node.target, torch._ops.OpOverload):
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                if self.last["random"] is not None:
                    after.add(self.last["random"])
                self.last["random"] = me
        elif node.is_impure():
            after.update(range(me))
            self.last["effect"] = me

    def _keep_program_order(self, me, after, communicates) -> None:
        """As a program runs: computing one after another, a collective not before what stands in front of it, nothing
        past a wait before what it waits for."""
        kind = "collective" if communicates else "compute"
        after.update(one for one in (self.last["compute"], self.last[kind], *self.waited) if one is not None)
        self.last[kind] = me
        if not communicates:
            self.waited = []

    def _group(self, call, me) -> str:
        name = call.key if self.merge else f"{call.key} {me}"  # planners merge those of one group
        self.groups.setdefault(name, call.ranks)
        return name

    def text(self) -> str:
        groups = [{"name": name, "sets": [list(ranks)]} for name, ranks in self.groups.items()]
        return json.dumps(
            {"weft_graph": 1, "name": self.name, "groups": groups, "tensors": self.tensors, "ops": self.ops}
        )


def build(graph: fx.Graph, *, name="graph", kept_inputs=lambda node: True, seconds=None, in_order=False, merge=True) -> StepGraph:
    """The graph of ``graph``'s nodes, whose ``meta["val"]`` says shapes, as torch.compile's and torch.export's do.

    kept_inputs  whether the caller keeps a placeholder's tensor, else it goes after its last use
    seconds      measured times, by node; the cost model says the others
    in_order     keeps the program's order, for predicting what it takes as it is
    merge        collectives may be sent together
    """
    builder = _Builder(graph, name, kept_inputs, seconds or {}, in_order, merge)
    return StepGraph(builder.nodes, builder.text())


def kept_by_caller(graph: fx.Graph):
    """Of torch.compile's graphs: a backward's saved activations and incoming gradients go after their last use."""
    names = [node.name for node in graph.nodes if node.op == "placeholder"]
    backward = any(name.startswith("tangents") for name in names)
    return lambda node: not backward or node.name.startswith("primals")
