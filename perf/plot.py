#!/usr/bin/env python3
"""Draws JSON lines (of compare.py, compare_peers.py, compare_preload.py or the programs' --json): size against latency and size against bus bandwidth.

    plot.py RESULTS.jsonl… -o PICTURE.png [--op all_reduce] [--ranks 2]

One line a library; one row of two panels for every operation and number of ranks in the files.
"""
import argparse
import collections
import json
import sys

try:
    import matplotlib
except ImportError:
    if __name__ != "__main__":
        raise
    sys.exit("plot: matplotlib is missing: install python3-matplotlib, or run this with a Python that has it")

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

# Bus bandwidth over algorithm bandwidth, as nccl-tests counts it; other operations have 1.
FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **{op: lambda n: (n - 1) / n for op in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube")},
}


KEYS = ("library", "op", "memory", "ranks", "bytes", "time_us")


def read(paths):
    lines = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for text in file:
                if not text.strip():
                    continue
                line = json.loads(text)
                missing = [key for key in KEYS if not isinstance(line, dict) or key not in line]
                if missing:
                    raise ValueError(f"{path}: not a line of results: {', '.join(missing)} missing in {text.strip()[:80]}")
                lines += series_of(line)
    return lines


def series_of(line):
    """The line as one of a library's series, and the peer's that was measured in the same rounds as another. GPUs' memory makes
    other series."""
    on_gpu = line.get("device") == "cuda"
    result = [{**line, "library": f"weft {line['memory']}{' cuda' if on_gpu else ''}"} if line["library"] == "weft" else line]
    if "peer_call_us" in line:
        peer = line.get("peer", "nccl" if on_gpu else "mpi")
        result.append({**line, "library": peer, "version": "linked", "time_us": line["peer_call_us"]})
    return result


def name_of(line):
    return f"{line['library']} ({line['version']})" if "version" in line else line["library"]


def best(lines):
    """(op, ranks) → library, with its version where that is known → bytes → least time."""
    table = collections.defaultdict(lambda: collections.defaultdict(dict))
    for line in lines:
        if (line["time_us"] or 0) > 0 and line["bytes"] > 0:  # null: it drowned in noise
            series = table[line["op"], line["ranks"]][name_of(line)]
            series[line["bytes"]] = min(series.get(line["bytes"], line["time_us"]), line["time_us"])
    return table


def size_text(size, _=None):
    for unit in ("", "K", "M"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}G"


def draw_row(panels, op, ranks, series, styles):
    latency, bandwidth = panels
    factor = FACTORS.get(op, lambda n: 1)(ranks)
    for name, points in series.items():
        sizes = sorted(points)
        style = styles[name]
        latency.plot(sizes, [points[s] for s in sizes], label=name, **style)
        bandwidth.plot(sizes, [s * factor / points[s] / 1e3 for s in sizes], label=name, **style)
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_title(f"{op}, {ranks} ranks")
        panel.set_xlabel("bytes")
        panel.xaxis.set_major_formatter(size_text)
        panel.grid(True, which="major", alpha=0.3)
    latency.set_ylabel("time of a call (µs)")
    bandwidth.set_ylabel("bus bandwidth (GB/s)")


def styles_of(table):
    """The same colour for a library in every panel; Weft's lines are thick."""
    names = sorted({name for series in table.values() for name in series}, key=lambda name: (not name.startswith("weft"), name))
    colours = plt.get_cmap("tab10").colors
    return {name: {"color": colours[i % len(colours)], "linewidth": 2.5 if name.startswith("weft") else 1.2,
                   "marker": "o", "markersize": 4 if name.startswith("weft") else 3} for i, name in enumerate(names)}


def draw(lines, path):
    table = best(lines)
    if not table:
        raise ValueError("nothing to draw: no line with a time above 0")
    styles = styles_of(table)
    figure, rows = plt.subplots(len(table), 2, figsize=(13, 4.6 * len(table)), squeeze=False, constrained_layout=True)
    for panels, ((op, ranks), series) in zip(rows, sorted(table.items())):
        draw_row(panels, op, ranks, {name: series[name] for name in styles if name in series}, styles)
        panels[1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", help="files of JSON lines")
    parser.add_argument("-o", "--output", required=True, help="picture to write (png, svg, pdf)")
    parser.add_argument("--op", help="only this operation")
    parser.add_argument("--ranks", type=int, help="only this number of ranks")
    options = parser.parse_args()
    try:
        lines = [line for line in read(options.results)
                 if options.op in (None, line["op"]) and options.ranks in (None, line["ranks"])]
        draw(lines, options.output)
    except (OSError, ValueError) as error:
        print(f"plot: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
