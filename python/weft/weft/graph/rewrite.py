"""Puts an FX graph into a planned order, in place."""

from __future__ import annotations

import operator

import torch.fx as fx

from weft.graph import collectives, costs, step_graph


def reorder(graph: fx.Graph, launches: list[list[fx.Node]]) -> None:
    """Nodes of `launches` in their order, those of one list merged; what is free right before its first use."""
    placed: set[fx.Node] = {node for node in graph.nodes if node.op == "placeholder"}
    cursor = _last_placeholder(graph)

    def place(node):
        nonlocal cursor
        stack = [node]
        while stack:
            one = stack[-1]
            missing = [source for source in one.all_input_nodes if source not in placed]
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            if one not in placed and one.op != "output":
                placed.add(one)
                _move_after(graph, cursor, one)
                cursor = one

    for nodes in launches:
        if len(nodes) == 1:
            place(nodes[0])
            continue
        for node in nodes:
            for source in node.all_input_nodes:
                place(source)
        for new in _merge(graph, cursor, nodes):
            placed.add(new)
            cursor = new
    for node in list(graph.nodes):
        place(node)


def _last_placeholder(graph):
    last = None
    for node in graph.nodes:
        if node.op == "placeholder":
            last = node
    return last if last is not None else graph._root


def _move_after(graph, cursor, node):
    if cursor.next is not node:
        cursor.append(node)


def _merge(graph: fx.Graph, cursor: fx.Node, nodes: list[fx.Node]) -> list[fx.Node]:
    """One call instead of several, and what takes its results apart."""
    first = nodes[0]
    schema = first.target._schema
    rest = [collectives.arguments(first)[one.name] for one in schema.arguments[1:]]
    with graph.inserting_after(cursor):
        sent = graph.call_function(collectives.COALESCED[first.target], ([node.args[0] for node in nodes], *rest))
    sent.meta = {**first.meta, "val": [node.meta["val"] for node in nodes]}
    made = [sent]
    for place, node in enumerate(nodes):
        with graph.inserting_after(made[-1]):
            part = graph.call_function(operator.getitem, (sent, place))
        part.meta = dict(node.meta)
        made.append(part)
        node.replace_all_uses_with(part)
        graph.erase_node(node)
    return made


def ordering(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """What must not be moved past what, for a compiler that orders by itself: collectives and waits stay between the
    same matrix products (or convolutions, attention, …), and collectives in their order."""
    needs: dict[fx.Node, dict[fx.Node, None]] = {}
    anchor = sent = None
    issued: list[fx.Node] = []
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if collectives.of(node) is not None:
            _need(needs, node, [anchor, sent])
            sent = _tensor_of(node)
            issued.append(sent)
        elif step_graph.is_wait(node):
            _need(needs, node, [anchor, sent])
        elif costs.flops_of(node) > 0:
            _need(needs, node, issued)
            anchor, issued = node, []
    return {node: list(before) for node, before in needs.items()}


def _need(needs, node, before):
    before = [one for one in before if one is not None and one not in node.all_input_nodes]
    if before:
        needs[node] = dict.fromkeys(before)


def _tensor_of(node):
    """A node that is a tensor: a call's of several returns a list."""
    if isinstance(node.meta.get("val"), (tuple, list)):
        return next(iter(user for user in node.users if user.target is operator.getitem), None)
    return node
