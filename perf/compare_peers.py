#!/usr/bin/env python3
"""Weft's collectives beside Open MPI's, and whether they keep the promised distance.

Each launch of OP_perf --compare mpi measures both libraries in one process, in interleaved rounds; launches with
Open MPI's two shared-memory paths (pml ob1, pml ucx) alternate. Per size the better of the two is the peer, and Weft's
figure is the one from the launches it shared with that peer, so both come from equally many rounds. A figure is the
shortest loop with calls less the shortest without, of all launches that had an undisturbed round; where a peer has
none, the better one is not known, and the bars of that size do not hold.
Exit code: 0 when every bar holds, 1 when one does not, 2 when nothing could be measured.
"""
import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from compare import figure_of
from peers.catalogue import ROOT, environment

TOLERANCE = 0.95  # never-below bars allow 5 %
PEERS = {
    "ob1": ["--mca", "pml", "ob1"],
    "ucx": ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"],
}


@dataclass(frozen=True)
class Setting:
    """Operation, ranks, memory and the bars that hold there."""

    name: str
    ranks: int
    memory: str
    never_below: float
    mean: float
    op: str = "all_reduce"

    @property
    def placement(self):
        if self.ranks > os.cpu_count():
            return ["--oversubscribe", "--bind-to", "none"]
        return ["--bind-to", "core"]


# What the foundation promised, for all_reduce alone.
FOUNDATION = [
    Setting("symmetric", 2, "symmetric", 2.0, 3.0),
    Setting("private", 2, "private", 1.3, 2.0),
    Setting("crowded", 4, "symmetric", 1.0, 1.5),
]


def settings_of(op):
    """What every operation promises: OP-symmetric, OP-private, OP-crowded4, OP-crowded8."""
    strong = op in ("all_reduce", "reduce_scatter", "all_gather")
    return [
        Setting(f"{op}-symmetric", 2, "symmetric", *((1.1, 2.0) if strong else (1.0, 1.5)), op),
        Setting(f"{op}-private", 2, "private", 1.0, 1.5, op),
        Setting(f"{op}-crowded4", 4, "symmetric", 1.0, 1.5, op),
        Setting(f"{op}-crowded8", 8, "symmetric", 1.0, 1.5, op),
    ]


OPS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "alltoall", "gather", "scatter", "reduce")
SETTINGS = {s.name: s for s in FOUNDATION + [setting for op in OPS for setting in settings_of(op)]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="folder with the programs")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[s.name for s in FOUNDATION], metavar="NAME",
                        help="of " + ", ".join(SETTINGS))
    parser.add_argument("-b", "--minbytes", default="8", help="smallest message, bytes (K M G) (default: %(default)s)")
    parser.add_argument("-e", "--maxbytes", default="128M", help="largest message, bytes (K M G) (default: %(default)s)")
    parser.add_argument("-f", "--stepfactor", default="4", help="factor between messages (default: %(default)s)")
    parser.add_argument("-n", "--iters", default="20", help="iterations, as of the programs (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="undisturbed rounds per launch")
    parser.add_argument("--launches", type=int, default=2, help="launches per peer, alternating")
    parser.add_argument("--short", action="store_true", help="one launch per peer")
    parser.add_argument("--json", help="append every figure as JSON lines to this file")
    parser.add_argument("--timeout", type=int, default=600, help="seconds one launch may take")
    return parser.parse_args()


def program_of(options, setting):
    return os.path.join(options.bin, f"{setting.op}_perf")


def launch(options, setting, peer, lines_path):
    command = ["mpirun", "-np", str(setting.ranks), *setting.placement, *PEERS[peer], program_of(options, setting),
               "-b", options.minbytes, "-e", options.maxbytes, "-f", options.stepfactor, "-n", options.iters,
               "-c", "0", "--in-place", "0", "--memory", setting.memory, "--compare", "mpi", "--limit",
               "--rounds", str(options.rounds), "--json", lines_path, "--label", peer]
    print("# " + " ".join(command), flush=True)
    done = subprocess.run(command, env=environment(), timeout=options.timeout, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise RuntimeError(f"mpirun left with {done.returncode}:\n{done.stdout}")


def measure(options, setting):
    """All JSON lines of the launches, in order."""
    count = 1 if options.short else options.launches
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines")
        for _ in range(count):
            for peer in PEERS:
                launch(options, setting, peer, path)
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def least_limit(lines):
    return min((line["limit_us"] for line in lines if line.get("limit_us", 0) > 0), default=math.nan)


def better_peer(by_peer):
    """Of peer → (its time, Weft's beside it): the one with the shorter time, or one whose time is not known."""
    return min(by_peer, key=lambda peer: -math.inf if math.isnan(by_peer[peer][0]) else by_peer[peer][0])


def table_of(lines):
    """bytes → figures, with the better peer chosen for call and for cost separately."""
    table = {}
    for size in sorted({line["bytes"] for line in lines if line["bytes"] > 0}):  # parts of less than an element
        here = [line for line in lines if line["bytes"] == size]
        kept = [line for line in here if line["rounds_kept"] > 0]
        peers = [peer for peer in PEERS if peer in {line["label"] for line in here}]
        row = {"bytes": size, "limit_us": least_limit(here),
               "rounds_kept": min(sum(l["rounds_kept"] for l in here if l["label"] == peer) for peer in peers)}
        for figure in ("call", "cost"):
            by_peer = {}
            for peer in peers:
                chosen = [line for line in kept if line["label"] == peer]
                by_peer[peer] = (figure_of(chosen, f"peer_{figure}", None), figure_of(chosen, figure, None))
            peer = better_peer(by_peer)
            theirs, ours = by_peer[peer]
            row.update({f"{figure}_us": ours, f"peer_{figure}_us": theirs, f"{figure}_peer": peer,
                        f"{figure}_ratio": theirs / ours})
        table[size] = row
    return table


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def print_table(setting, table):
    print(f"\n# {setting.op}, f32, {setting.ranks} ranks, {setting.memory} memory; times in us; peer: the better of "
          "Open MPI's ob1 and ucx")
    print(f"# {'bytes':>10} {'weft call':>11} {'peer call':>11} {'':>4} {'ratio':>6} {'weft cost':>11} {'peer cost':>11} "
          f"{'':>4} {'ratio':>6} {'limit':>10} {'rounds':>6}")
    for row in table.values():
        print(f"{row['bytes']:>12} {row['call_us']:11.3f} {row['peer_call_us']:11.3f} {row['call_peer']:>4} "
              f"{row['call_ratio']:6.2f} {row['cost_us']:11.3f} {row['peer_cost_us']:11.3f} {row['cost_peer']:>4} "
              f"{row['cost_ratio']:6.2f} {row['limit_us']:10.3f} {row['rounds_kept']:6}")


def judge(setting, table):
    """Prints each bar and whether it holds; True when all do."""
    good = True
    disturbed = [str(size) for size, row in table.items() if row["rounds_kept"] == 0]
    if disturbed:
        print(f"NOTE: no undisturbed round at {', '.join(disturbed)} bytes: something else is running here; measure again")
    for figure in ("call", "cost"):
        ratios = {size: row[f"{figure}_ratio"] for size, row in table.items()}
        # A figure that drowned in noise is no proof: it fails.
        lowest = min(ratios, key=lambda size: -math.inf if math.isnan(ratios[size]) else ratios[size])
        mean = geometric_mean(list(ratios.values()))
        for text, value, bar in ((f"lowest ratio ({lowest} bytes)", ratios[lowest], setting.never_below * TOLERANCE),
                                 ("geometric mean", mean, setting.mean)):
            holds = value >= bar
            good = good and holds
            print(f"{'PASS' if holds else 'FAIL'}: {setting.name} {figure}: {text} {value:.2f}, bar {bar:.2f}")
    return good


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine():
    name = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores"


def write_json(path, setting, table):
    with open(path, "a", encoding="utf-8") as file:
        for row in table.values():
            line = {"library": "weft", "op": setting.op, "setting": setting.name, "ranks": setting.ranks, "memory": setting.memory,
                    "commit": commit(), "machine": machine(), "peer": "mpi", "time_us": row["call_us"], **row}
            file.write(json.dumps({key: None if value != value else value for key, value in line.items()}) + "\n")


def main():
    options = arguments()
    if shutil.which("mpirun") is None:
        print("compare_peers: mpirun is not installed; nothing to compare with", file=sys.stderr)
        return 2
    missing = [p for p in {program_of(options, SETTINGS[name]) for name in options.settings} if not os.access(p, os.X_OK)]
    if missing:
        print(f"compare_peers: {missing[0]} is not there; build it, or name its folder with --bin", file=sys.stderr)
        return 2
    good = True
    for name in options.settings:
        setting = SETTINGS[name]
        try:
            table = table_of(measure(options, setting))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"compare_peers: {setting.name}: {error}", file=sys.stderr)
            return 2
        print_table(setting, table)
        good = judge(setting, table) and good
        if options.json:
            write_json(options.json, setting, table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
