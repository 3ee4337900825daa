"""Measured times of operators, from a trace of torch.profiler's, read by the library's importer."""

from __future__ import annotations

import bisect
import collections
import json
import statistics

import torch
import torch.fx as fx

from weft import backend
from weft.graph import costs

_PRECISION_US = 0.05


class MeasuredTimes:
    """Medians by operator and shapes of a profile of the CPU that was recorded with ``record_shapes=True``, e.g. of the model
    compiled with ``backend="aot_eager"``, whose operators are those that are planned; or of Inductor's code, where matrix products
    are calls as well and fused kernels are not known. What the trace does not have costs what the cluster's speeds say."""

    def __init__(self, path: str):
        with open(path) as file:
            self.text = file.read()
        events = [event for event in json.loads(self.text).get("traceEvents", ()) if "Input Dims" in event.get("args", {})]
        operators = [
            (name.partition("#")[0], 1e6 * seconds, 1e6 * start)
            for name, kind, seconds, start, _ in backend.extension().import_kineto(path)[0]
            if kind != "collective"
        ]
        found = collections.defaultdict(list)
        for (name, microseconds, _), event in _beside(operators, events):
            found[name, _key(event["args"]["Input Dims"])].append(1e-6 * microseconds)
        self._medians = {key: statistics.median(seconds) for key, seconds in found.items()}
        if not self._medians:
            raise ValueError(
                f"weft.graph: {path}: no operator with shapes; record it with torch.profiler.profile(record_shapes=True)"
            )

    def of(self, node: fx.Node) -> float | None:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            return None
        arguments = [source.meta.get("val") if isinstance(source, fx.Node) else source for source in node.args]
        shape = _key([list(one.shape) if isinstance(one, torch.Tensor) else [] for one in arguments])
        return self._medians.get((target._schema.name, shape))

    def all_of(self, graph: fx.Graph) -> dict[fx.Node, float]:
        found = {node: self.of(node) for node in graph.nodes if node.op == "call_function" and costs.tensors_of(node)}
        return {node: seconds for node, seconds in found.items() if seconds is not None}


def _beside(operators, events):
    """Each operator with its event; the importer counts time from the first operator's start on."""
    by_name = collections.defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        by_name[event["name"]].append(event)
    begin = next(
        (
            event["ts"] - start
            for name, microseconds, start in operators
            for event in by_name[name]
            if abs(event["dur"] - microseconds) < _PRECISION_US
        ),
        0.0,
    )
    for operator in operators:
        name, _, start = operator
        place = bisect.bisect_left(by_name[name], begin + start - _PRECISION_US, key=lambda event: event["ts"])
        if place < len(by_name[name]) and by_name[name][place]["ts"] < begin + start + _PRECISION_US:
            yield operator, by_name[name][place]


def _key(dimensions) -> str:
    # Arguments that are left out are shown as nothing in a trace; so are numbers.
    dimensions = [[int(size) for size in one] if isinstance(one, list) and _flat(one) else [] for one in dimensions]
    while dimensions and not dimensions[-1]:
        dimensions.pop()
    return json.dumps(dimensions)


def _flat(dimensions) -> bool:
    return all(isinstance(size, int) for size in dimensions)
