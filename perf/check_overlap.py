#!/usr/bin/env python3
"""Checks train_gpt --compare's report (--report-json) against what the demo promises.

    check_overlap.py LINK.report.json PLAIN.report.json

Emulated link: step at most 1.10 × bound, at least 85 % of what could be hidden is hidden, faster than without overlap and
than without buckets. Plain shared memory: at most 3 % slower than without overlap, faster than one blocking MPI call per tensor.
Exit code: 0 when every bar holds, 1 when one does not, 2 when a report cannot be read.
"""
import json
import sys


def runs_of(path):
    with open(path, encoding="utf-8") as file:
        return {run["name"]: run for run in json.load(file)["runs"]}


def find(runs, word):
    """The run whose name contains `word`; None when there is none."""
    return next((run for name, run in runs.items() if word in name.lower()), None)


def variants(runs):
    return runs["weft"], runs["no overlap"], runs["no bucketing"], find(runs, "mpi")


class Bars:
    def __init__(self):
        self.good = True

    def at_most(self, text, value, bar):
        self.show(text, value, bar, value <= bar, "at most")

    def at_least(self, text, value, bar):
        self.show(text, value, bar, value >= bar, "at least")

    def show(self, text, value, bar, holds, relation):
        self.good = self.good and holds
        print(f"{'PASS' if holds else 'FAIL'}: {text} {value:.3f}, {relation} {bar:.3f}")


def check_link(bars, runs):
    weft, no_overlap, no_buckets, _ = variants(runs)
    print(f"# {weft['name']}, {weft['link']}, {weft['ranks']} ranks: step {weft['step_ms']:.2f} ms, compute {weft['compute_ms']:.2f}, "
          f"communication {weft['communication_ms']:.2f}, hidden {weft['hidden_ms']:.2f} of {weft['hideable_ms']:.2f}, "
          f"bound {weft['bound_ms']:.2f}")
    bars.at_most("link: step over bound", weft["step_ms"] / weft["bound_ms"], 1.10)
    bars.at_least("link: hidden over hideable", weft["hidden_ms"] / weft["hideable_ms"], 0.85)
    bars.at_most("link: step over no overlap", weft["step_ms"] / no_overlap["step_ms"], 1.0)
    bars.at_most("link: step over no buckets", weft["step_ms"] / no_buckets["step_ms"], 1.0)


def check_plain(bars, runs):
    weft, no_overlap, _, mpi = variants(runs)
    print(f"# {weft['name']}, plain shared memory, {weft['ranks']} ranks: step {weft['step_ms']:.2f} ms")
    bars.at_most("plain: step over no overlap", weft["step_ms"] / no_overlap["step_ms"], 1.03)
    if mpi is None:
        print("SKIP: plain: no MPI run in the report (train_gpt was not started by mpirun)")
    else:
        bars.at_most("plain: step over one MPI call per tensor", weft["step_ms"] / mpi["step_ms"], 1.0)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        link, plain = runs_of(sys.argv[1]), runs_of(sys.argv[2])
        bars = Bars()
        check_link(bars, link)
        check_plain(bars, plain)
    except (OSError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        print(f"check_overlap: cannot judge the reports: {error!r}", file=sys.stderr)
        return 2
    return 0 if bars.good else 1


if __name__ == "__main__":
    sys.exit(main())
