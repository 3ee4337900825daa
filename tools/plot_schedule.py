#!/usr/bin/env python3
"""Draws a plan that weft-schedule made: when each resource works, the memory that is live, and every policy's step time over its peak.

    weft-schedule GRAPH ... --plot out.png
    plot_schedule.py PLAN REPORT out.png     # of what --plan and --json wrote; with "-" for both, one object with both on standard input
"""
import argparse
import json
import sys

COLORS = {"compute": "#4c78a8", "between_hosts": "#54a24b", "within_host": "#72b7b2", "copy": "#b279a2"}
NAMES = {"compute": "compute", "between_hosts": "between hosts", "within_host": "within hosts", "copy": "copies"}
EXPOSED, CAP = "#e45756", "#9d755d"


class PlotError(Exception):
    """Something the user can put right; shown as one line."""


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise PlotError(f"cannot read {path}: {error}") from error


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


def draw_timeline(axes, launches, makespan):
    by_resource = {}
    for launch in launches:
        by_resource.setdefault(launch["resource"], []).append((launch["start_s"] * 1e3, launch["end_s"] * 1e3))
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
    axes.set_xlabel("ms since the step began (red: sent while nothing is computed)")


def draw_memory(axes, plan):
    times = [launch["start_s"] * 1e3 for launch in plan["launches"]] + [plan["makespan_s"] * 1e3]
    live = [launch["live_bytes"] / 1e9 for launch in plan["launches"]]
    live.append(live[-1] if live else 0)
    axes.fill_between(times, live, step="post", color=COLORS["compute"], alpha=0.35, linewidth=0)
    axes.step(times, live, where="post", color=COLORS["compute"], linewidth=0.8)
    axes.axhline(plan["resident_bytes"] / 1e9, color="gray", linestyle=":", label="there all the time")
    if plan["capacity"] <= 3 * max(plan["peak_bytes"], 1):
        axes.axhline(plan["capacity"] / 1e9, color=CAP, linestyle="--", label="capacity")
    axes.set_ylim(0)
    axes.set_ylabel("GB live")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)


def draw_policies(axes, report):
    """Policies of one step time and peak share a label."""
    points = {}
    for policy in report["policies"]:
        at = (round(policy["peak_bytes"] / 1e9, 2), round(policy["makespan_ms"], 1))
        points.setdefault(at, []).append(policy["name"])
    bound = max(policy["lower_bound_ms"] for policy in report["policies"])
    axes.axhline(bound, color="gray", linestyle=":", label="no schedule is faster")
    for (peak, makespan), names in points.items():
        weft = "weft" in names
        axes.plot(peak, makespan, "o", color=EXPOSED if weft else COLORS["compute"], markersize=8 if weft else 5, zorder=3)
    label_points(axes, points)
    least, most = axes.get_xlim()
    axes.set_xlim(least, most + 0.95 * (most - least))  # room for labels
    axes.margins(y=0.12)
    axes.set_xlabel("peak GB")
    axes.set_ylabel("step ms")
    axes.legend(loc="upper left", fontsize=8)


def label_points(axes, points):
    """From below, each label right of all points, at its point's height or as far above the one before that both can be read; a line leads to the point."""
    makespans = [makespan for _, makespan in points]
    room = 0.035 * (max(makespans) - min(makespans) or max(makespans))
    peaks = [peak for peak, _ in points]
    right = max(peaks) + 0.08 * (max(peaks) - min(peaks) or max(peaks))
    height = None
    for (peak, makespan), names in sorted(points.items(), key=lambda item: (item[0][1], -item[0][0])):
        height = makespan if height is None else max(makespan, height + room)
        axes.annotate(", ".join(names) + f" {makespan:.1f}", (peak, makespan), (right, height), fontsize=8, va="center",
                      arrowprops={"arrowstyle": "-", "color": "gray", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2, "relpos": (0, 0.5)})


def plot(plan, report, out):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(14, 7), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[2.4, 1])
    timeline = figure.add_subplot(grid[0, 0])
    memory = figure.add_subplot(grid[1, 0], sharex=timeline)
    makespan = plan["makespan_s"] * 1e3
    draw_timeline(timeline, plan["launches"], makespan)
    draw_memory(memory, plan)
    timeline.set_xlim(0, makespan * 1.005 or 1)
    draw_policies(figure.add_subplot(grid[:, 1]), report)
    best = plan["lower_bound"]["best_s"]
    ratio = plan["makespan_s"] / best if best > 0 else 1
    contention = f", contention {plan['contention']:g}" if plan["contention"] > 0 else ""
    figure.suptitle(f"{plan['graph']} on {plan['cluster']['name']}{contention}: {plan['policy']}, {makespan:.1f} ms, {ratio:.4f} of the bound")
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:
        raise PlotError(f"cannot write {out}: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("report")
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
