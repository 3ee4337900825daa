"""The pass of torch.compile: Inductor's graphs in the order of the library's scheduler."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import pathlib

import torch
import torch.distributed as dist
import torch.fx as fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.fx_passes.control_dependencies import preserve_node_ordering

from weft import backend
from weft.graph import cluster as clusters
from weft.graph import collectives, measured, rewrite, schedule, step_graph

log = logging.getLogger("weft.graph")


class SchedulePass(CustomGraphPass):
    """Reorders a post-grad FX graph in place. ``reports`` has a GraphReport of each graph that was planned."""

    def __init__(self, cluster, memory, contention, bucket, trace, time_limit_s, keep_order):
        self.cluster = clusters.text_of(cluster)
        if memory is not None and not (isinstance(memory, str) and memory.endswith("x")):
            clusters.size(memory)
        self.memory, self.contention, self.bucket = memory, float(contention), bool(bucket)
        self.measured = measured.MeasuredTimes(trace) if trace is not None else None
        self.time_limit_ms, self.keep_order = max(1, int(1000 * time_limit_s)), keep_order
        self.reports: list[schedule.GraphReport] = []

    def uuid(self):
        options = [self.cluster, self.memory, self.contention, self.bucket, self.time_limit_ms, self.keep_order]
        text = json.dumps(options) + (self.measured.text if self.measured else "")
        files = sorted(str(file) for file in pathlib.Path(__file__).parent.glob("*.py"))
        return get_hash_for_files(tuple(files)), hashlib.sha256(text.encode()).hexdigest()

    def __call__(self, graph: fx.Graph) -> None:
        sent = sum(collectives.of(node) is not None for node in graph.nodes)
        if not sent:
            return
        kept = step_graph.kept_by_caller(graph)
        seconds = self.measured.all_of(graph) if self.measured else {}
        name = "backward" if any(node.name.startswith("tangents") for node in graph.nodes) else "forward"
        step = step_graph.build(graph, name=name, kept_inputs=kept, seconds=seconds, merge=self.bucket)
        before = schedule.in_program_order(graph, self.cluster, kept, seconds)
        memory = schedule.capacity_of(self.memory, step, self.cluster)
        plan = self._agreed(step, memory)
        launches = schedule.launches_of(plan, step)
        sends = [nodes for nodes in launches if collectives.of(nodes[0]) is not None]
        rewrite.reorder(graph, launches)
        if self.keep_order:
            preserve_node_ordering(graph, rewrite.ordering(graph))
        graph.lint()
        self.reports.append(
            schedule.GraphReport(
                name,
                sent,
                len(sends),
                plan["makespan_s"],
                plan["exposed_s"],
                plan["bound_s"],
                plan["peak_bytes"],
                memory,
                before["makespan_s"],
                before["exposed_s"],
            )
        )
        log.info("%s", self.reports[-1])

    def _agreed(self, step: step_graph.StepGraph, memory: int) -> dict:
        """The plan that the first rank made that has the same graph, if ranks can tell one another: times that were
        measured, or a search that was out of time, would give each another one."""

        def planned():
            return backend.extension().plan_schedule(
                step.text,
                self.cluster,
                capacity=memory,
                contention=self.contention,
                time_limit_ms=self.time_limit_ms,
            )

        if not (dist.is_available() and dist.is_initialized()) or dist.get_backend() == "fake":
            return planned()
        digest = hashlib.sha256(json.dumps([step.text, memory, str(self.uuid())]).encode()).hexdigest()
        store, key = dist.distributed_c10d._get_default_store(), f"weft.graph/{digest}"
        return json.loads(store.compare_set(key, "", json.dumps(planned())))


def options(
    cluster=None,
    memory=None,
    *,
    contention: float = 0.0,
    bucket: bool = True,
    measured: str | None = None,
    time_limit_s: float = 60.0,
) -> dict:
    """What torch.compile's ``options=`` needs so that collectives run hidden, in an order that the library plans:

        model = torch.compile(model, options=weft.graph.options(cluster="h100-400g", memory="70G"))

    cluster     that is planned for: a name (docs/scheduler.md), a JSON file, a dict of its keys, or None: measured now,
                which all ranks do together
    memory      bytes that a graph's tensors may take ("70G", 70e9), parameters and what forward saved included; "1.2x": so
                many times what the program's order takes beyond these; None: the cluster's, else "1.2x"
    contention  computing takes 1 + this as long while something is sent
    bucket      collectives of one kind and group may be sent in one call
    measured    a torch.profiler trace (``MeasuredTimes``) whose operators' times count instead of the cluster's speeds
    Results are those of the same graph without the pass, to the bit. Ranks that compile the same graph get the same plan: the
    first tells the others through torch.distributed's store. OutOfMemoryError at compile time where nothing fits ``memory``.
    """
    made = SchedulePass(cluster, memory, contention, bucket, measured, time_limit_s, keep_order=True)
    return {
        "post_grad_custom_post_pass": made,
        "reorder_for_peak_memory": False,
        "reorder_for_compute_comm_overlap": False,
    }


class _Enabled(contextlib.ContextDecorator):
    """As a context: until its end. ``reports`` has one of each graph planned so far."""

    def __init__(self, settings: dict):
        self._pass, self._patch = settings["post_grad_custom_post_pass"], torch._inductor.config.patch(settings)
        self._patch.__enter__()
        self._on = True

    @property
    def reports(self) -> list[schedule.GraphReport]:
        return self._pass.reports

    def disable(self) -> None:
        if self._on:
            self._patch.__exit__(None, None, None)
            self._on = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.disable()


@functools.wraps(options)
def enable(*arguments, **keywords) -> _Enabled:
    return _Enabled(options(*arguments, **keywords))


enable.__doc__ = """options() for all that is compiled from here on, until .disable(), or within ``with weft.graph.enable(…):``."""
