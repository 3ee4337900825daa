#!/usr/bin/env python3
"""How long planning takes as graphs grow: Transformer steps of more and more layers, planned with weft-schedule.

    planning_growth.py [--bin build/release/bin] [--layers 60,126,...] [--seconds 600]

Sharded parameters (ZeRO-3, 512 ranks), nothing merged beforehand, 405B's layer, recomputed, on h100-400g, 1.3 x the least transients, contention 10 %. "asap" plans once:
reading, the order of least memory, bounds and one run. "weft" is the whole search, whose number of plans falls as graphs grow, down to a least one. The last column is how often
asap's time doubles where operators do: 1 is linear. Exit code: 1 where that is above 1.3 from the first graph to the last, 2 when a run fails.
"""
import argparse
import json
import math
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MOST_GROWTH = 1.3


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="folder with the programs (default: %(default)s)")
    parser.add_argument("--layers", default="126,504,1512,3528,7056", help="graphs to plan, comma-separated (default: %(default)s)")
    parser.add_argument("--seconds", default="600", help="for each policy's search")
    return parser.parse_args()


def plan(options, layers):
    command = [os.path.join(options.bin, "weft-schedule"), "--model", "llama3-405b", "--layers", layers, "--strategy", "zero3", "--data-ranks", "512",
               "--unmerged", "--recompute", "layer", "--cluster", "h100-400g", "--memory", "1.3x", "--contention", "0.1", "--policy", "asap,weft", "--time-limit", options.seconds, "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(run.stderr, file=sys.stderr, end="")
        sys.exit(2)
    return json.loads(run.stdout)


def main():
    options = parse()
    print("| layers | operators | asap s | µs an operator | weft s | weft / bound within memory | growth of asap |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    first = before = None
    for layers in options.layers.split(","):
        figures = plan(options, layers)
        policies = {policy["name"]: policy for policy in figures["policies"]}
        now = (figures["operators"], policies["asap"]["planning_s"])
        growth = "" if before is None else f"{math.log(now[1] / before[1]) / math.log(now[0] / before[0]):.2f}"
        ratio = policies["weft"]["makespan_ms"] / figures["bound_within_memory_ms"]
        print(f"| {layers} | {now[0]} | {now[1]:.3f} | {now[1] / now[0] * 1e6:.1f} | {policies['weft']['planning_s']:.1f} | {ratio:.4f} | {growth} |", flush=True)
        first, before = first or now, now
    if first == before:
        return 0
    return 0 if math.log(before[1] / first[1]) / math.log(before[0] / first[0]) <= MOST_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
