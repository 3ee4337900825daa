#!/usr/bin/env python3
"""Weft from PyTorch: beside gloo, beside what torch costs by itself, and beside the C++ programs, with the bars.

    build/python/bin/python perf/torch_perf.py [--short] [--parts collectives small ddp] [--json FILE]

Two ranks on two cores, everything in one run and in interleaved rounds: a round measures every side of every size, the
figure is the median of the rounds. In each, the median over calls of the slower rank's time.
  collectives  all_reduce, all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single of f32, blocking, each call by
               itself: inputs are written before it, the ranks meet at a barrier of no library's, outputs are read after
               it. Up to 4 KB weft, single and fake take turns call by call. Bytes are those of the larger tensor. weft: tensors in ordinary memory; heap: in weft.shared_heap();
               gloo; fake: torch's back end that does nothing, so what torch costs; c++: OP_perf, started by rank 0 in the
               same round, in private memory up to 4 KB, in symmetric memory from 1 MB. single: weft in a group of one
               rank (no bar is on it): what over is without a pair's waiting for the later of the two. heap/c++ can hardly
               fall below floor, fake and c++ over c++ (not for all_gather, where fake copies). Weft's ranks are bound to a
               core each; gloo's are not, since it is slower when bound.
  small        150 all_reduces of 256 floats, written before and checked after: one blocking call after the other; all
               asynchronous, then waited for; in torch's coalescing manager, where gloo makes one call as well, and torch by itself
               (fake) takes more than a twentieth of gloo's time: there both are judged less that.
  ddp          forward and backward of 24 x Linear(1024, 1024), batch 16, under DistributedDataParallel with the shared
               heap, nothing bound, step by step in turns: with gradient_as_bucket_view=True (views) and without (buckets); on weft; idle: weft
               with a comm hook that returns the bucket as it is; gloo; no_sync. No optimizer, which would dilute it.
               divided: idle, its gradients divided by the ranks as soon as they are there; stock DDP does so to views in
               a pass of their own, and under no hook. alone: all_reduces of tensors as large as DDP's buckets, with
               nothing else on the machine: where no core is to spare for them, weft can hardly fall below floor: divided
               (idle, for buckets) and alone, over idle.
Exit code: 0; 1 when a bar is missed; 2 when nothing could be measured.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "perf")
PARTS = ("collectives", "small", "ddp")
SIZES = [8] + [16 << shift for shift in range(0, 23, 2)]  # 8 B, then 16 B to 64 MB by factors of 4
SMALL_UP_TO, LARGE_FROM = 4 << 10, 1 << 20
TOLERANCE = 0.95  # never-below bars allow 5 %


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5, help="launches of each side, taking turns (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="two rounds, fewer calls and sizes: a look, no figures")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="folder with the C++ programs")
    parser.add_argument("--json", help="append every round's figures as JSON lines to this file")
    parser.add_argument("--timeout", type=int, default=600, help="seconds all of it may take")
    return parser.parse_args()


def plan(options):
    """What the ranks are to do."""
    sizes = SIZES[::3] if options.short else SIZES
    return {
        "parts": options.parts, "sizes": sizes, "bin": os.path.abspath(options.bin), "timeout": options.timeout,
        "rounds": 2 if options.short else options.rounds, "iterations": 30 if options.short else 100,
        "steps": 3 if options.short else 5, "heap": "3G",
        "programs": [[8, 8, "private"], [16, SMALL_UP_TO, "private"], [LARGE_FROM, SIZES[-1], "symmetric"]],
    }


def measure(options):
    """All lines that rank 0 printed. @raises RuntimeError when a rank fails or the time is over."""
    with tempfile.TemporaryDirectory(prefix="weft-torch-perf-") as folder:
        meeting = os.path.join(folder, "meeting")
        with open(meeting, "wb") as file:
            file.truncate(4096)
        task = {**plan(options), "meeting": meeting, "store": os.path.join(folder, "store")}
        env = {**os.environ, "PYTHONPATH": HERE, "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([sys.executable, "-m", "torch_sides.rank", json.dumps({**task, "rank": rank})], env=env,
                                  stdout=subprocess.PIPE, text=True) for rank in range(2)]
        try:
            lines = [json.loads(line) for line in ranks[0].stdout]
            codes = [rank.wait(timeout=30) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        if any(codes):
            raise RuntimeError(f"the ranks left with {codes}")
        return lines


class Bars:
    """Prints each bar beside its figure, and remembers whether all held."""

    def __init__(self):
        self.held = True

    def at_least(self, what, value, bar):
        self._judge(what, value, f"at least {bar:g}", value >= bar)

    def at_most(self, what, value, bar):
        self._judge(what, value, f"at most {bar:g}", value <= bar)

    def _judge(self, what, value, bar, holds):
        self.held = self.held and holds  # NaN, where there is no figure, holds nothing
        print(f"{'PASS' if holds else 'FAIL'}: {what} {value:.2f}, bar: {bar}")


def medians(lines, part, *keys):
    """(line[key] for keys) → median over the rounds."""
    rounds = defaultdict(list)
    for line in lines:
        if line["part"] == part:
            rounds[tuple(line[key] for key in keys)].append(line["time_us"])
    return {key: statistics.median(times) for key, times in rounds.items()}


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def judge_collectives(lines, bars):
    table = medians(lines, "collectives", "op", "bytes", "side")
    sizes = sorted({line["bytes"] for line in lines if line.get("side") == "gloo" and line["part"] == "collectives"})
    for op in dict.fromkeys(op for op, _, _ in table):
        def of(size, side, op=op):
            return table.get((op, size, side), math.nan)

        print(f"\n# {op}, f32, 2 ranks; times in us; over: weft less fake less c++; single: weft in a group of one, less fake")
        print(f"# {'bytes':>10} {'weft':>10} {'heap':>10} {'gloo':>10} {'fake':>7} {'c++':>10} {'gloo/weft':>9} "
              f"{'gloo/heap':>9} {'over':>6} {'single':>6} {'heap/c++':>8} {'floor':>6}")
        ratios, heap_ratios, over, against, floor = {}, {}, {}, {}, {}
        for size in sizes:
            weft, heap = of(size, "weft"), of(size, "weft_heap")
            native = of(size, "c++ private" if size <= SMALL_UP_TO else "c++ symmetric")
            ratios[size] = of(size, "gloo") / weft
            heap_ratios[size] = of(size, "gloo") / (weft if math.isnan(heap) else heap)
            if size <= SMALL_UP_TO:
                over[size] = weft - of(size, "fake") - native
            if size >= LARGE_FROM:
                against[size] = heap / native
                floor[size] = math.nan if op == "all_gather" else 1 + of(size, "fake") / native
            print(f"{size:>12} {weft:10.2f} {heap:10.2f} {of(size, 'gloo'):10.2f} {of(size, 'fake'):7.2f} {native:10.2f} "
                  f"{ratios[size]:9.2f} {heap_ratios[size]:9.2f} {over.get(size, math.nan):6.2f} "
                  f"{of(size, 'weft_single') - of(size, 'fake'):6.2f} "
                  f"{against.get(size, math.nan):8.2f} {floor.get(size, math.nan):6.2f}".replace("nan", "  -"))
        for name, found in (("ordinary memory", ratios), ("shared heap", heap_ratios)):
            bars.at_least(f"{op}, {name}: gloo over weft, geometric mean", geometric_mean(found.values()), 5)
            bars.at_least(f"{op}, {name}: gloo over weft, lowest", min(found.values()), 1 * TOLERANCE)
        bars.at_most(f"{op}: us over fake and c++ up to {SMALL_UP_TO} bytes, most", max(over.values()), 1.5)
        bars.at_most(f"{op}: shared heap over c++ from {LARGE_FROM >> 20} MB, most", max(against.values()), 1.2)


def judge_small(lines, bars):
    table = medians(lines, "small", "side")
    print("\n# 150 all_reduces of 256 floats, 2 ranks; times in us")
    print(f"# {'form':>10} {'weft':>10} {'gloo':>10} {'fake':>10} {'gloo/weft':>9} {'less fake':>9}")
    ratios = {}
    for form in ("blocking", "async", "coalesced"):
        weft, gloo, fake = (table[f"{side} {form}",] for side in ("weft", "gloo", "fake"))
        net = (gloo - fake) / (weft - fake) if weft > fake else math.nan
        ratios[form] = net if form == "coalesced" else gloo / weft
        print(f"{form:>12} {weft:10.1f} {gloo:10.1f} {fake:10.1f} {gloo / weft:9.2f} {net:9.2f}")
    for form, ratio in ratios.items():
        less = ", both less what torch costs" if form == "coalesced" else ""
        bars.at_least(f"150 small all_reduces, {form}: gloo over weft{less}", ratio, 20)


def judge_ddp(lines, bars):
    table = medians(lines, "ddp", "side")
    print("\n# DDP, 24 x Linear(1024, 1024), batch 16, 2 ranks; ms a step, forward and backward")
    print(f"# {'':>10} {'weft':>8} {'idle':>8} {'gloo':>8} {'no_sync':>8} {'weft/idle':>9} {'weft/no_sync':>12} {'gloo/weft':>9} "
          f"{'divided':>8} {'alone':>8} {'floor':>6}")
    ratios = {}
    for form in ("views", "buckets"):
        weft, idle, gloo, lonely, alone = (
            table[side,] / 1e3 for side in (f"weft {form}", f"idle {form}", f"gloo {form}", "no_sync", "alone"))
        divided = table["divided views",] / 1e3 if form == "views" else math.nan
        floor = ((idle if math.isnan(divided) else divided) + alone) / idle
        ratios[form] = weft / idle
        print(f"{form:>12} {weft:8.2f} {idle:8.2f} {gloo:8.2f} {lonely:8.2f} {weft / idle:9.2f} {weft / lonely:12.2f} "
              f"{gloo / weft:9.2f} {divided:8.2f} {alone:8.2f} {floor:6.2f}".replace("nan", "  -"))
    for form, ratio in ratios.items():
        bars.at_most(f"DDP with {form}: weft over an idle hook", ratio, 1.15)


def main():
    options = arguments()
    try:
        lines = measure(options)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"torch_perf: {error}", file=sys.stderr)
        return 2
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    bars = Bars()
    for part in options.parts:
        globals()[f"judge_{part}"](lines, bars)
    return 0 if bars.held else 1


if __name__ == "__main__":
    sys.exit(main())
