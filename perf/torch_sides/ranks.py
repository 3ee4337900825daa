"""What a measuring rank needs beside torch: a barrier that belongs to no library, its core, and agreement on a time."""
import ctypes
import mmap
import os
import statistics
from time import perf_counter_ns

import torch
import torch.distributed as dist


class Meeting:
    """A barrier of two counters in a file that both ranks map. Spins: the ranks leave it within a fraction of a
    microsecond of each other."""

    LINE = 128  # bytes: the counters share no cache line, nor a pair of lines

    def __init__(self, path, rank):
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 2 * self.LINE)
        self.mine = ctypes.c_int64.from_buffer(self.memory, rank * self.LINE)
        self.theirs = ctypes.c_int64.from_buffer(self.memory, (1 - rank) * self.LINE)
        self.turn = 0

    def __call__(self):
        turn = self.turn = self.turn + 1
        self.mine.value = turn
        theirs = self.theirs
        while theirs.value < turn:
            pass


class Core:
    """Binds the calling thread to its rank's core, or lets it run anywhere. gloo runs anywhere: it waits in threads of
    its own, and slows down when they share one core with the caller."""

    def __init__(self, rank):
        self.all = os.sched_getaffinity(0)
        self.own = {sorted(self.all)[rank % len(self.all)]}

    def bind(self):
        os.sched_setaffinity(0, self.own)

    def free(self):
        os.sched_setaffinity(0, self.all)


def slowest(nanoseconds):
    """Of each call: the slower rank's time in microseconds; their median. Collective."""
    times = torch.tensor(nanoseconds, dtype=torch.int64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return statistics.median(times.tolist()) / 1e3


def time_calls(meet, calls, iterations):
    """Of each of `calls`, a list of (call, before, after): nanoseconds of each of its calls alone. Both ranks have met
    before it, having written what it reads, and read after it what it wrote. They take turns call by call, and in who
    begins: whatever state the machine is in, each meets it."""
    times = [[] for _ in calls]
    for turn in range(iterations):
        for place in range(len(calls)):
            which = (turn + place) % len(calls)
            call, before, after = calls[which]
            before(turn)
            meet()
            begin = perf_counter_ns()
            call()
            times[which].append(perf_counter_ns() - begin)
            after()
    return times
