"""Planning of torch's graphs: the order in which a compiled step sends and computes, and its memory."""

from weft.graph.cluster import measure as measure_cluster
from weft.graph.inductor import enable, options
from weft.graph.measured import MeasuredTimes
from weft.graph.memory import MemoryReport, memory_plan
from weft.graph.schedule import GraphReport

__all__ = ["enable", "options", "measure_cluster", "memory_plan", "GraphReport", "MeasuredTimes", "MemoryReport"]
