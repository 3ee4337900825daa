"""A plan of the library's scheduler, as an order in which one thread can issue what an FX graph does."""

from __future__ import annotations

from dataclasses import dataclass

import torch.fx as fx

from weft import backend
from weft.graph import cluster as clusters
from weft.graph import step_graph

MEMORY = "1.2x"


@dataclass
class GraphReport:
    """What planning one graph came to; seconds are the cost model's."""

    name: str
    collectives: int
    launches: int  # that send them
    step_s: float
    exposed_s: float  # something is sent and nothing computed
    bound_s: float  # no order takes less, within the memory
    peak_bytes: int
    memory: int  # that it was planned for
    step_before_s: float  # of the order that it had
    exposed_before_s: float

    def __str__(self):
        return (
            f"{self.name}: {self.collectives} collectives in {self.launches} launches; step {1e3 * self.step_s:.3f} ms, exposed "
            f"{1e3 * self.exposed_s:.3f} ms (before {1e3 * self.step_before_s:.3f}, {1e3 * self.exposed_before_s:.3f}; bound "
            f"{1e3 * self.bound_s:.3f} ms), {self.peak_bytes / 2**20:.1f} MiB of {self.memory / 2**20:.1f}"
        )


def in_program_order(graph: fx.Graph, cluster: str, kept_inputs, seconds=None) -> dict:
    """What the cost model says of the graph as it stands: makespan_s, exposed_s."""
    step = step_graph.build(graph, kept_inputs=kept_inputs, seconds=seconds, in_order=True)
    return backend.extension().plan_schedule(step.text, cluster, policy="asap", capacity=2**60)


def capacity_of(memory, step: step_graph.StepGraph, cluster: str) -> int:
    """Bytes, from a number, "80G", "1.2x" the peak of the program's order, or None: the cluster's, else 1.2x."""
    if memory is None:
        memory = clusters.fields(cluster).get("memory_bytes") or MEMORY
    if isinstance(memory, str) and memory.endswith("x"):
        ordered = backend.extension().plan_tensors(step.text, order="program", time_limit_ms=1)
        resident = ordered["resident_bytes"]
        return resident + int(float(memory[:-1]) * (ordered["live_bytes"] - resident))
    return clusters.size(memory)


def launches_of(plan: dict, step: step_graph.StepGraph) -> list[list[fx.Node]]:
    """Nodes in the order in which they are issued; those of one list are sent as one.

    A collective is issued before what is computed when its link is free for it, or begins with it, so that it need not wait for
    the end of that;
    and where it waits for another collective, after what is computed meanwhile.
    """
    ended = {}  # of an operator: when
    placed: list[tuple[float, float, bool, list[int]]] = []
    for ops, resource, start, end in plan["launches"]:
        computing = resource == "compute"
        position = len(placed)
        if not computing:
            while position > 0 and placed[position - 1][2] and placed[position - 1][0] >= start < placed[position - 1][1]:
                position -= 1
            needed = max((ended.get(one, 0.0) for op in ops for one in _producers(step, op)), default=0.0)
            if position > 0 and placed[position - 1][2] and needed <= placed[position - 1][0] < start < placed[position - 1][1]:
                position -= 1
        placed.insert(position, (start, end, computing, ops))
        ended.update(dict.fromkeys(ops, end))
    return [[step.ops[op] for op in ops] for _, _, _, ops in placed]


def _producers(step: step_graph.StepGraph, op: int) -> list[int]:
    """Operators that make what it reads."""
    found, stack, seen = [], list(step.ops[op].all_input_nodes), set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in step.places:
            found.append(step.places[node])
        else:
            stack += node.all_input_nodes
    return found
