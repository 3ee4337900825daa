#!/usr/bin/env python3
"""What weft.Prefetcher hides of loading, in one run. Exit 1: the bar is missed.

    source scripts/lib.sh && make_python
    build/python/bin/python perf/torch_feeding_perf.py [--steps 100] [--rounds 3]

A step computes on one thread (matrix products); loading a batch either waits (as for a disk or a network) or decompresses
it, on the other core, for about --load times as long as computing. Of each way of loading: loading alone, computing alone,
one after the other, and with a Prefetcher, whose step must take at most 1.05 times the longer of the first two. Ways take
turns; the median of the rounds counts. Nothing hides the first batch of all: 1/--steps of the load.
"""
import argparse
import statistics
import sys
import time
import zlib

import torch
import weft

from interleaved import interleaved

BAR = 1.05


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="batches of a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts (default: %(default)s)")
    parser.add_argument("--load", type=float, nargs="+", default=[0.8, 1.2], help="loading over computing")
    return parser.parse_args()


class Compute:
    def __init__(self):
        self.weights = torch.randn(768, 768)

    def __call__(self, batch):
        for _ in range(2):
            batch = torch.tanh(batch @ self.weights)
        return batch


def seconds_of(call, times=10):
    call()
    started = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - started) / times


class Waiting:
    """Batches that take `seconds` to come."""

    def __init__(self, steps, seconds):
        self.steps, self.seconds = steps, seconds
        self.batch = torch.randn(256, 768)

    def __iter__(self):
        for _ in range(self.steps):
            time.sleep(self.seconds)
            yield self.batch


class Decompressing:
    """Batches that take about `seconds` to decompress."""

    def __init__(self, steps, seconds):
        self.steps = steps
        self.batch = torch.randn(256, 768)
        sample = zlib.compress(torch.randint(0, 16, (1 << 18,), dtype=torch.uint8).numpy().tobytes(), 1)
        self.packed = [sample] * max(1, round(seconds / seconds_of(lambda: zlib.decompress(sample))))

    def __iter__(self):
        for _ in range(self.steps):
            for sample in self.packed:
                zlib.decompress(sample)
            yield self.batch


class Side:
    def __init__(self, run):
        self.run = run

    def prepare(self):
        pass

    def __call__(self):
        self.run()


def steps(batches, compute):
    for batch in batches:
        compute(batch)


def main():
    options = arguments()
    torch.set_num_threads(1)
    compute = Compute()
    ready = torch.randn(256, 768)
    computing = seconds_of(lambda: compute(ready))
    print(f"# {options.steps} steps, {options.rounds} rounds, torch {torch.__version__}; ms a step")
    print(f"{'loading':14} {'load':>8} {'compute':>8} {'in turn':>8} {'weft':>8}   weft / longer")
    good = True
    for kind in (Waiting, Decompressing):
        for factor in options.load:
            loader = kind(options.steps, factor * computing)
            sides = {
                "load": Side(lambda: steps(loader, lambda batch: None)),
                "compute": Side(lambda: steps([ready] * options.steps, compute)),
                "in turn": Side(lambda: steps(loader, compute)),
                "weft": Side(lambda: steps(weft.Prefetcher(loader), compute)),
            }
            times = interleaved(sides, options.rounds)
            medians = {name: statistics.median(each) / options.steps for name, each in times.items()}
            ratio = medians["weft"] / max(medians["load"], medians["compute"])
            good = good and ratio <= BAR
            figures = " ".join(f"{each:8.3f}" for each in medians.values())
            print(f"{kind.__name__:14} {figures}   {ratio:5.3f}  bar {BAR}: {'PASS' if ratio <= BAR else 'FAIL'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
