#!/usr/bin/env python3
"""Draws one training step of a Weft trace: per rank, when it computed and which communication was hidden or exposed. Of
several traces it draws rank 0 each, on one scale."""

import argparse
import json
import os
import re
import sys

COMPUTE, HIDDEN, EXPOSED = "#4c78a8", "#54a24b", "#e45756"
STEP = re.compile(r"^step (\d+): (.+)$")


class PlotError(Exception):
    """Something the user can put right; shown as one line."""


def load_events(path):
    """The trace's intervals as {step: {rank: {lane: [(name, start_ms, end_ms)]}}}."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise PlotError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise PlotError(f"{path} is not JSON: {error}") from error
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise PlotError(f"{path} is no Chrome trace: it has no traceEvents")
    lanes = {(e.get("pid"), e.get("tid")): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    steps = {}
    for event in events:
        match = STEP.match(event.get("name", "")) if event.get("ph") == "X" else None
        if not match:
            continue
        lane = lanes.get((event["pid"], event["tid"]), event.get("cat", ""))
        kind = "compute" if "compute" in lane else "communication"
        start = event["ts"] / 1e3
        ranks = steps.setdefault(int(match[1]), {})
        intervals = ranks.setdefault(event["pid"], {"compute": [], "communication": []})[kind]
        intervals.append((match[2], start, start + event["dur"] / 1e3))
    if not steps:
        raise PlotError(f'{path} has no intervals named "step N: ..."; was it written by train_gpt --trace?')
    return steps


def merge(intervals):
    """The union of (start, end) pairs, sorted and disjoint."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        elif end > start:
            merged.append([start, end])
    return merged


def split(interval, busy):
    """Cuts an interval into (hidden, exposed) pieces: inside and outside of `busy`, which is sorted and disjoint."""
    hidden, exposed, at = [], [], interval[0]
    for start, end in busy:
        start, end = max(start, at), min(end, interval[1])
        if start >= end:
            continue
        if start > at:
            exposed.append((at, start))
        hidden.append((start, end))
        at = end
    if at < interval[1]:
        exposed.append((at, interval[1]))
    return hidden, exposed


def length(pieces):
    return sum(end - start for start, end in pieces)


def analyse(lanes):
    """A rank's step: hidden and exposed pieces of the union of its communication."""
    busy = merge((start, end) for _, start, end in lanes["compute"])
    hidden, exposed = [], []
    for interval in merge((start, end) for _, start, end in lanes["communication"]):
        inside, outside = split(interval, busy)
        hidden += inside
        exposed += outside
    return hidden, exposed


def draw_bars(axes, pieces, y, origin, color):
    axes.broken_barh([(start - origin, end - start) for start, end in pieces], (y, 0.36), facecolors=color)


def label_runs(axes, intervals, y, origin):
    """Writes each name once, in the middle of the intervals in a row that have it. A name that all have says no more than
    the legend."""
    runs = []
    for name, start, end in sorted(intervals, key=lambda interval: interval[1]):
        if runs and runs[-1][0] == name:
            runs[-1][2] = end
        else:
            runs.append([name, start, end])
    for name, start, end in runs if len(runs) > 1 else []:
        if end - start > 0.04 * axes.get_xlim()[1]:
            axes.text((start + end) / 2 - origin, y, name, ha="center", va="center", color="white", fontsize=9,
                      bbox={"facecolor": COMPUTE, "edgecolor": "none", "pad": 1.5})


def draw_row(axes, row, label, lanes, origin):
    """Returns the row's label with its figures."""
    hidden, exposed = analyse(lanes)
    top, bottom = row + 0.04, row + 0.42  # the axis points down
    draw_bars(axes, merge((start, end) for _, start, end in lanes["compute"]), top, origin, COMPUTE)
    for _, start, end in lanes["compute"]:
        if end - start > 0.004 * axes.get_xlim()[1]:  # lines between shorter ones, an optimizer's tensors, would cover them
            axes.vlines([start - origin, end - origin], top, top + 0.36, color="white", linewidth=0.5)
    label_runs(axes, lanes["compute"], top + 0.18, origin)
    draw_bars(axes, hidden, bottom, origin, HIDDEN)
    draw_bars(axes, exposed, bottom, origin, EXPOSED)
    for _, start, end in lanes["communication"]:  # thin lines where one bucket ends and the next begins
        axes.vlines([end - origin], bottom, bottom + 0.36, color="white", linewidth=0.5)
    total = length(hidden) + length(exposed)
    share = 100 * length(hidden) / total if total > 0 else 100.0
    return f"{label}\n{total:.1f} ms communicated\n{share:.1f} % hidden"


def span_of(rows):
    """When the first of some rows' intervals begins and the last ends."""
    times = [t for lanes in rows for kind in lanes.values() for _, start, end in kind for t in (start, end)]
    return min(times), max(times)


def plot(rows, out, title):
    """`rows`: (label, lanes, where its time begins)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    figure, axes = plt.subplots(figsize=(12, 1.6 + 1.15 * len(rows)), layout="constrained")
    axes.set_xlim(0, max(span_of([lanes])[1] - origin for _, lanes, origin in rows) * 1.01)
    labels = [draw_row(axes, index, *row) for index, row in enumerate(rows)]
    axes.set_ylim(len(rows), -0.05)
    axes.set_yticks([index + 0.41 for index in range(len(rows))], labels)
    axes.set_xlabel("ms since the step began")
    figure.suptitle(title)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    handles = [Patch(color=COMPUTE, label="compute"), Patch(color=HIDDEN, label="communication, hidden by compute"),
               Patch(color=EXPOSED, label="communication, exposed")]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncol=3, frameon=False)
    try:
        figure.savefig(out, dpi=130)
    except (OSError, ValueError) as error:
        raise PlotError(f"cannot write {out}: {error}") from error


def step_of(path, wanted):
    """The step's number and its ranks."""
    steps = load_events(path)
    step = max(steps) if wanted is None else wanted
    if step not in steps:
        raise PlotError(f"{path} has steps {min(steps)} to {max(steps)}, not {step}")
    return step, steps[step]


def rows_of(traces, wanted):
    rows = []
    for path in traces:
        step, ranks = step_of(path, wanted)
        if len(traces) == 1:
            origin = span_of(ranks.values())[0]
            return step, [(f"rank {rank}", ranks[rank], origin) for rank in sorted(ranks)]
        first = ranks[min(ranks)]
        rows.append((os.path.basename(path).split(".")[0], first, span_of([first])[0]))
    return step, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", metavar="trace", help="written by train_gpt --trace")
    parser.add_argument("out", help="PNG to write")
    parser.add_argument("--step", type=int, help="which step (default: the last one)")
    parser.add_argument("--title", default="Weft: communication under computation", help="of the picture (default: %(default)s)")
    options = parser.parse_args()
    try:
        step, rows = rows_of(options.traces, options.step)
        plot(rows, options.out, f"{options.title}, step {step}")
    except PlotError as error:
        sys.exit(f"plot_overlap.py: {error}")
    except ImportError as error:
        sys.exit(f"plot_overlap.py: needs matplotlib ({error}); Debian: apt install python3-matplotlib")


if __name__ == "__main__":
    main()
