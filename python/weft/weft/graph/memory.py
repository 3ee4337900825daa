"""weft.memory_plan(): the least memory that an FX graph runs in."""

from __future__ import annotations

from dataclasses import dataclass

import torch.fx as fx

from weft import backend
from weft.graph import step_graph


@dataclass(frozen=True)
class PlannedTensor:
    """A piece of memory, needed from operator ``begin`` of the order until before operator ``end``."""

    node: str
    bytes: int
    offset: int
    begin: int
    end: int


@dataclass(frozen=True)
class MemoryReport:
    """``peak_bytes`` are live at one time when operators run in ``order``, inputs and results included; ``arena_bytes`` hold
    all tensors at their ``offset``s; ``program_peak_bytes`` is what the graph's own order takes, and no order takes less than
    ``bound_bytes``. ``resident_bytes`` are there all the time."""

    peak_bytes: int
    program_peak_bytes: int
    bound_bytes: int
    resident_bytes: int
    arena_bytes: int
    order: list[fx.Node]
    live_bytes: list[int]  # while each of the order runs
    tensors: list[PlannedTensor]

    @property
    def peak_node(self) -> fx.Node | None:
        """The operator at which the most is live."""
        return self.order[self.live_bytes.index(max(self.live_bytes))] if self.order else None

    def __str__(self):
        def mib(size):
            return f"{size / 2**20:.2f} MiB"

        saved = 100 * (1 - self.peak_bytes / self.program_peak_bytes) if self.program_peak_bytes else 0
        lines = [
            f"peak {mib(self.peak_bytes)} at {self.peak_node}, {mib(self.resident_bytes)} of it resident",
            f"the graph's own order: {mib(self.program_peak_bytes)} ({saved:.1f} % less now); no order: below {mib(self.bound_bytes)}",
            f"at fixed offsets: {mib(self.arena_bytes)}",
            "largest:",
        ]
        for one in sorted(self.tensors, key=lambda one: -one.bytes)[:10]:
            lines.append(f"  {mib(one.bytes):>12} at {one.offset:<12} operators {one.begin} to {one.end - 1}: {one.node}")
        return "\n".join(lines)


def memory_plan(gm: fx.GraphModule | fx.Graph, *, keep_inputs: bool | None = None, time_limit_s: float = 2.0) -> MemoryReport:
    """Plans order and offsets of a GraphModule's tensors for little memory.

    Its nodes have shapes (``meta["val"]``), as those of torch.compile, torch.export and make_fx have. Nothing is run or
    changed. ``keep_inputs`` says whether the caller keeps all inputs; None: all, but what only a backward graph of
    torch.compile's needs.
    """
    graph = gm if isinstance(gm, fx.Graph) else gm.graph
    _check_shapes(graph)
    kept = step_graph.kept_by_caller(graph) if keep_inputs is None else lambda node: keep_inputs
    step = step_graph.build(graph, kept_inputs=kept)
    plan = backend.extension().plan_tensors(step.text, time_limit_ms=max(1, int(1000 * time_limit_s)))
    program = backend.extension().plan_tensors(step.text, order="program", time_limit_ms=1)
    return MemoryReport(
        plan["live_bytes"],
        program["live_bytes"],
        plan["bound_bytes"],
        plan["resident_bytes"],
        plan["bytes"],
        [step.ops[op] for op in plan["order"]],
        plan["live"],
        [PlannedTensor(name.rpartition("#")[0], *rest) for name, *rest in plan["buffers"]],
    )


def _check_shapes(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.op in ("call_module", "call_method"):
            raise ValueError(
                f"weft.memory_plan: {node.name} is a {node.op}: it plans graphs of operators, as torch.export.export() and "
                "torch.fx.experimental.proxy_tensor.make_fx() make them"
            )
        if node.op == "call_function" and "val" not in node.meta:
            raise ValueError(f'weft.memory_plan: {node.name} has no meta["val"]; trace with make_fx(tracing_mode="fake")')
