#!/usr/bin/env python3
"""Draws a plan that weft-schedule made: when each resource works, the memory that is live, and every policy's step time over its peak.

    weft-schedule GRAPH ... --plot out.png
    plot_schedule.py PLAN REPORT out.png     # of what --plan and --json wrote; with "-" for both, one object with both on standard input
"""
import argparse
import json
import math
import sys
import textwrap

COLORS = {"compute": "#4c78a8", "between_hosts": "#54a24b", "within_host": "#72b7b2", "copy": "#b279a2"}
NAMES = {"compute": "compute", "between_hosts": "between hosts", "within_host": "within hosts", "copy": "copies"}
EXPOSED, CAP = "#e45756", "#9d755d"
TIME = (("s", 1), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
MEMORY = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1))
# Of the axes that show policies: points lie left of labels, whose text is 8 points high.
LABELS_FROM = 0.5
LABEL_CHARACTERS = 26
LINE_HEIGHT, LABEL_GAP = 0.024, 0.008


class PlotError(Exception):
    """Something the user can put right; shown as one line."""


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise PlotError(f"cannot read {path}: {error}") from error


def unit_of(largest, units):
    """The largest in which that is 1 or more, and what it stands for."""
    return next((unit for unit in units if largest >= unit[1]), units[-1])


def readable(value):
    """Four digits that count."""
    return f"{value:.{max(0, 3 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def merged(intervals):
    """The union of (start, end) pairs, sorted and disjoint."""
    union = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1][1] = max(union[-1][1], end)
        elif end > start:
            union.append([start, end])
    return union


def without(intervals, busy):
    """What of `intervals` lies outside `busy`; both disjoint and sorted."""
    left = []
    for start, end in intervals:
        for begin, stop in busy:
            if stop <= start:
                continue
            if begin >= end:
                break
            if begin > start:
                left.append((start, begin))
            start = max(start, stop)
        if start < end:
            left.append((start, end))
    return left


def draw_timeline(axes, launches, makespan, unit):
    """`makespan` is in units."""
    by_resource = {}
    for launch in launches:
        by_resource.setdefault(launch["resource"], []).append((launch["start_s"] / unit[1], launch["end_s"] / unit[1]))
    used = [name for name in COLORS if any(end > start for start, end in by_resource.get(name, []))]
    computing = merged(by_resource.get("compute", []))
    for row, name in enumerate(used):
        busy = merged(by_resource[name])
        axes.broken_barh([(start, end - start) for start, end in busy], (row + 0.1, 0.8), facecolors=COLORS[name])
        if name in ("between_hosts", "within_host"):
            bare = without(busy, computing)
            axes.broken_barh([(start, end - start) for start, end in bare], (row + 0.1, 0.8), facecolors=EXPOSED)
        few = [(start, end) for start, end in by_resource[name] if end - start > 0.003 * makespan]
        axes.vlines([start for start, _ in few], row + 0.1, row + 0.9, color="white", linewidth=0.4)
    shares = [100 * sum(end - start for start, end in by_resource[name]) / makespan if makespan > 0 else 0 for name in used]
    axes.set_yticks([row + 0.5 for row in range(len(used))], [f"{NAMES[name]}\n{share:.1f} % busy" for name, share in zip(used, shares)])
    axes.set_ylim(len(used), 0)
    axes.set_xlabel(f"{unit[0]} since the step began (red: sent while nothing is computed)")


def draw_memory(axes, plan, time):
    times = [launch["start_s"] / time[1] for launch in plan["launches"]] + [plan["makespan_s"] / time[1]]
    unit, scale = unit_of(plan["peak_bytes"], MEMORY)
    live = [launch["live_bytes"] / scale for launch in plan["launches"]]
    live.append(live[-1] if live else 0)
    axes.fill_between(times, live, step="post", color=COLORS["compute"], alpha=0.35, linewidth=0)
    axes.step(times, live, where="post", color=COLORS["compute"], linewidth=0.8)
    axes.axhline(plan["resident_bytes"] / scale, color="gray", linestyle=":", label="there all the time")
    if plan["capacity"] <= 3 * max(plan["peak_bytes"], 1):
        axes.axhline(plan["capacity"] / scale, color=CAP, linestyle="--", label="capacity")
    axes.set_ylim(0)
    axes.set_ylabel(f"{unit} live")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)


def draw_policies(axes, report):
    """Policies whose figures read alike share a label; each is drawn where it is, so that none lies below the bound."""
    policies = sorted(report["policies"], key=lambda policy: policy["name"] != "weft")  # of a label's, the line leads to Weft's
    memory = unit_of(max(policy["peak_bytes"] for policy in policies), MEMORY)
    time = unit_of(max(policy["makespan_ms"] for policy in policies) / 1e3, TIME)
    groups = {}
    for policy in policies:
        at = (policy["peak_bytes"] / memory[1], policy["makespan_ms"] / 1e3 / time[1])
        groups.setdefault(tuple(map(readable, at)), []).append((policy["name"], at))
        weft = policy["name"] == "weft"
        axes.plot(*at, "o", color=EXPOSED if weft else COLORS["compute"], markersize=8 if weft else 5, zorder=4 if weft else 3)
    axes.axhline(max(policy["lower_bound_ms"] for policy in policies) / 1e3 / time[1], color="gray", linestyle=":", label="no schedule is faster")
    axes.margins(0.12)
    least, most = axes.get_xlim()
    axes.set_xlim(least, least + (most - least) / LABELS_FROM)
    label_points(axes, groups)
    axes.set_xlabel(f"peak {memory[0]}")
    axes.set_ylabel(f"step {time[0]}")
    axes.legend(loc="upper left", fontsize=8)


def label_points(axes, groups):
    """Each label right of all points, at its point's height where there is room, in lines that end within the axes; a line leads to the point."""
    bottom, top = axes.get_ylim()
    labels = []
    for (_, makespan), members in groups.items():
        lines = textwrap.wrap(", ".join(name for name, _ in members) + f" {makespan}", LABEL_CHARACTERS, break_on_hyphens=False)
        point = members[0][1]
        labels.append([(point[1] - bottom) / (top - bottom), LINE_HEIGHT * len(lines) + LABEL_GAP, "\n".join(lines), point])
    labels.sort(key=lambda label: label[0])
    spread(labels)
    for height, _, text, point in labels:
        axes.annotate(text, point, (LABELS_FROM, height), textcoords="axes fraction", fontsize=8, va="center",
                      bbox={"facecolor": "white", "linewidth": 0, "alpha": 0.8, "pad": 1},
                      arrowprops={"arrowstyle": "-", "color": "gray", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2, "relpos": (0, 0.5)})


def spread(labels):
    """Moves what overlaps up, from below, and what is then above the top down again. Heights are of middles, 0 to 1."""
    least = 0
    for label in labels:
        label[0] = max(label[0], least + label[1] / 2)
        least = label[0] + label[1] / 2
    most = 1
    for label in reversed(labels):
        label[0] = min(label[0], most - label[1] / 2)
        most = label[0] - label[1] / 2


def plot(plan, report, out):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(14, 7), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[2.4, 1])
    timeline = figure.add_subplot(grid[0, 0])
    memory = figure.add_subplot(grid[1, 0], sharex=timeline)
    unit = unit_of(plan["makespan_s"], TIME)
    makespan = plan["makespan_s"] / unit[1]
    draw_timeline(timeline, plan["launches"], makespan, unit)
    draw_memory(memory, plan, unit)
    timeline.set_xlim(0, makespan * 1.005 or 1)
    draw_policies(figure.add_subplot(grid[:, 1]), report)
    best = plan["lower_bound"]["best_s"]
    ratio = plan["makespan_s"] / best if best > 0 else 1
    contention = f", contention {plan['contention']:g}" if plan["contention"] > 0 else ""
    figure.suptitle(f"{plan['graph']} on {plan['cluster']['name']}{contention}: {plan['policy']}, {readable(makespan)} {unit[0]}, {ratio:.4f} of the bound")
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:
        raise PlotError(f"cannot write {out}: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", help="written by weft-schedule --plan; -: plan and report on standard input")
    parser.add_argument("report", help="written by weft-schedule --json")
    parser.add_argument("out", help="PNG to write")
    options = parser.parse_args()
    try:
        if options.plan == "-":
            both = json.load(sys.stdin)
            plan, report = both["plan"], both["report"]
        else:
            plan, report = load(options.plan), load(options.report)
        plot(plan, report, options.out)
    except PlotError as error:
        sys.exit(f"plot_schedule.py: {error}")
    except (KeyError, ValueError) as error:
        sys.exit(f"plot_schedule.py: not what weft-schedule writes: {error!r}")
    except ImportError as error:
        sys.exit(f"plot_schedule.py: needs matplotlib ({error}); Debian: apt install python3-matplotlib")


if __name__ == "__main__":
    main()
