#!/usr/bin/env python3
"""Draws what weft-simulate predicted: every algorithm's time over size, beside the bound, and how many times the bound it takes.

    weft-simulate ... --plot out.png
    plot_simulation.py REPORT out.png     # of what --json wrote; - reads it from standard input
"""
import argparse
import json
import sys


class PlotError(Exception):
    """Something the user can put right; shown as one line."""


def load(path):
    try:
        if path == "-":
            return json.load(sys.stdin)
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise PlotError(f"cannot read {path}: {error}") from error


def size_text(size, _=None):
    for unit in ("", "K", "M"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}G"


def series(report):
    """Algorithm → [(bytes, seconds, times the bound)]."""
    table = {}
    for row in report["rows"]:
        for point in row["algorithms"]:
            table.setdefault(point["name"], []).append((row["bytes"], point["time_s"], point["over_bound"]))
    return table


def draw(report, path):
    try:
        import matplotlib
    except ImportError as error:
        raise PlotError("this needs matplotlib (Debian and Ubuntu: apt-get install python3-matplotlib)") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (times, ratios) = plt.subplots(1, 2, figsize=(11, 4.2))
    for name, points in series(report).items():
        sizes, seconds, over = zip(*points)
        times.plot(sizes, [each * 1e6 for each in seconds], marker="o", markersize=3, label=name)
        ratios.plot(sizes, over, marker="o", markersize=3, label=name)
    times.plot([row["bytes"] for row in report["rows"]], [row["bound_s"] * 1e6 for row in report["rows"]], "k--", label="bound")
    topology = report["topology"]
    times.set_title(f"{report['operation']}, {topology['ranks']} ranks, {topology['name']} (simulated)")
    times.set_ylabel("time of a call (µs)")
    ratios.set_title("times the bound")
    for panel in (times, ratios):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xlabel("bytes")
        panel.xaxis.set_major_formatter(size_text)
        panel.grid(True, which="major", alpha=0.3)
    times.legend(fontsize=8)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise PlotError(f"cannot write {path}: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="written by weft-simulate --json")
    parser.add_argument("picture", help="PNG to write")
    arguments = parser.parse_args()
    try:
        draw(load(arguments.report), arguments.picture)
    except PlotError as error:
        sys.exit(f"plot_simulation.py: {error}")


if __name__ == "__main__":
    main()
