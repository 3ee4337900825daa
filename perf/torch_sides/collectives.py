"""Collectives from Python: weft (tensors in ordinary memory, and in the shared heap), gloo, and torch's "fake" back end,
which does nothing; beside them the C++ program of the same operation."""
import mmap
import os
import subprocess

import torch
import torch.distributed as dist

from torch_sides.ranks import slowest, time_calls

OPERATIONS = {"all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
              "all_to_all": "alltoall_perf"}
HEAP_FROM = 64 << 10  # bytes: smaller tensors never lie in the shared heap
SINGLE_UP_TO = 4 << 10  # bytes: beyond, copies are what a call costs


def ordinary(count):
    """Memory of its own that no allocator of torch's knows, so that the shared heap cannot serve it."""
    return torch.frombuffer(mmap.mmap(-1, 4 * count), dtype=torch.float32)


def in_heap(count):
    return torch.zeros(count)


def make_call(op, send, recv, group):
    if op == "all_reduce":
        return lambda: dist.all_reduce(send, group=group)
    if op == "all_gather":
        return lambda: dist.all_gather_into_tensor(recv, send, group=group)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(recv, send, group=group)
    return lambda: dist.all_to_all_single(recv, send, group=group)


def make_tensors(op, size, ranks, memory):
    """`size`: of the larger of the two tensors, as the C++ programs count."""
    count = size // 4
    if op == "all_reduce":
        tensor = memory(count)
        return tensor, tensor
    send = memory(count // ranks if op == "all_gather" else count)
    recv = memory(count // ranks if op == "reduce_scatter" else count)
    return send, recv


def iterations_of(size, most):
    return max(3, min(most, (24 << 20) // size))


class Collectives:
    def __init__(self, rank, ranks, groups, meet, core, most):
        self.rank, self.ranks, self.groups, self.meet, self.core, self.most = rank, ranks, groups, meet, core, most

    def measure(self, op, size):
        """side → microseconds, of one round."""
        found = {}
        for sides in self._in_turns(size):
            bound = all(group != "gloo" for _, group, _ in sides)
            (self.core.bind if bound else self.core.free)()
            calls = [self._call(op, size, group, memory) for _, group, memory in sides]
            iterations = iterations_of(size, self.most)
            time_calls(self.meet, calls, 2 + iterations // 10)
            for (side, _, _), times in zip(sides, time_calls(self.meet, calls, iterations)):
                found[side] = slowest(times)
        self.core.free()
        return found

    def _call(self, op, size, group, memory):
        send, recv = make_tensors(op, size, 1 if group == "single" else self.ranks, memory)
        return make_call(op, send, recv, self.groups[group]), send.fill_, recv.sum

    @staticmethod
    def _in_turns(size):
        """Lists of (side, group, memory), each of sides that are measured call by call in turns: those of small messages,
        which differ by less than the machine from one tenth of a second to the next. Of larger ones each has the caches
        to itself. gloo is by itself, as it is not bound."""
        weft, fake, gloo = ("weft", "weft", ordinary), ("fake", "fake", ordinary), ("gloo", "gloo", ordinary)
        if size <= SINGLE_UP_TO:
            return [[weft, ("weft_single", "single", ordinary), fake], [gloo]]
        heap = [[("weft_heap", "weft", in_heap)]] if size >= HEAP_FROM else []
        return [[weft], *heap, [fake], [gloo]]


def run_program(folder, op, first, last, memory):
    """size → microseconds of the C++ program on two bound ranks; in place where torch's call is."""
    command = [os.path.join(folder, OPERATIONS[op]), "-t", "2", "-b", str(first), "-e", str(last), "-f", "4", "-n", "10",
               "--rounds", "1", "-c", "0", "--memory", memory]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} left with {done.returncode}: {done.stderr.strip()[-300:]}")
    column = 9 if op == "all_reduce" else 5
    rows = [line.split() for line in done.stdout.splitlines() if line and line.lstrip()[0].isdigit()]
    return {int(row[0]): float(row[column]) for row in rows}
