#!/usr/bin/env python3
"""Weft beside every other library of this machine: sets them up, measures them in turn, and writes a table, JSON lines
and a picture.

    perf/compare.py [--ops all_reduce broadcast] [--ranks 2] [--libraries weft-symmetric intelmpi] [--bars]

Every library is timed by the same code on the same cores (perf/peers/loop.cpp): all input written
before a call, all output read after it. A round starts every library once, in an order that changes
from round to round. Each size has canaries around it: a memcpy, a barrier of flags, and additions.
A memcpy that takes 1.3 times what a third of those of its size take at most is a disturbance.
Barriers tell how far apart the cores lie, which changes while a virtual machine runs: the shortest
one at which a third of the figures were measured is the one that counts, within 1.3 times. So it is
with additions, which take longer where a core does others' work as well. From the second round on
launches wait for both (WEFT_PERF_BARRIER_US, WEFT_PERF_WORK_US). After --rounds rounds others
follow, for up to --patience seconds, of the libraries and sizes that were not met twice there,
those up to 32 KiB, which take no time, eight times. With more ranks than cores barriers and work
tell how ranks take turns, and only disturbances are left out. The best of what counts is the
library's figure, the shortest loop with calls less the shortest without; sizes of a library that
never counted are marked with * and judged by the round that comes nearest. Sizes too small for an
element of each rank's part are left out.
--bars judges Weft against the best other library of each size, and says what the ratios would be if every call took as
long as the limit that the programs' --limit measures, in symmetric memory, the best of all rounds. Calls in which ranks
divide the work or run ahead can be faster than that.
Exit code: 0; 1 when a bar is missed; 2 when nothing could be measured.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time

from peers.catalogue import CATALOGUE, ROOT, Setup, Unavailable, crowded

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv", "hypercube")
DISTURBED = 1.3
WANTED = 2  # figures of each library and size that count
WANTED_OF_SMALL = 8
SMALL = 32 << 10  # bytes
LEAST = 1 / 4  # of what the same loads and stores take alone: nothing beyond SMALL is done in less
COMMON = 1 / 3  # of the figures so far: under conditions that are worth waiting for
CONDITIONS = ("barrier", "work")  # canaries that are to be alike
WISHES = {name: f"WEFT_PERF_{name.upper()}_US" for name in CONDITIONS}  # see perf/common/rounds.hpp
TOLERANCE = 0.95  # never-below bars allow 5 %


def parse_size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1].upper() in units else int(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", choices=OPS, default=["all_reduce"], metavar="OP",
                        help=f"as the programs are called, without _perf: {', '.join(OPS)}")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2], help="of this machine; several numbers are measured one after the other (default: %(default)s)")
    parser.add_argument("--libraries", nargs="+", choices=CATALOGUE, default=list(CATALOGUE), metavar="NAME",
                        help=", ".join(CATALOGUE))
    parser.add_argument("-b", "--minbytes", type=parse_size, default=8, help="smallest message, bytes (K M G) (default: %(default)s)")
    parser.add_argument("-e", "--maxbytes", type=parse_size, default=128 << 20, help="largest message, bytes (K M G) (default: %(default)s)")
    parser.add_argument("-f", "--stepfactor", type=int, default=4, help="factor between messages (default: %(default)s)")
    parser.add_argument("-n", "--iters", type=int, default=20, help="iterations, as of the programs (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="launches of each library, taking turns (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=240, metavar="SECONDS",
                        help="for more rounds, of each operation, where figures were disturbed (default: %(default)s)")
    parser.add_argument("--barrier-us", type=float, metavar="US",
                        help="count what is measured while a barrier of flags takes this long: where virtual cores are moved "
                             "about, near or far apart (default: what it took in a third of the figures)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"), help="build folder with the programs")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build/peers"), help="where the other libraries go")
    parser.add_argument("--output", default=os.path.join(ROOT, "build/perf-compare/compare"),
                        help="writes OUTPUT.jsonl and OUTPUT.png")
    parser.add_argument("--no-install", action="store_true", help="skip what is not installed yet")
    parser.add_argument("--setup-only", action="store_true", help="install and compile, measure nothing")
    parser.add_argument("--bars", action="store_true", help="judge Weft against the best other library of each size")
    parser.add_argument("--timeout", type=int, default=600, help="seconds one launch may take")
    options = parser.parse_args()
    if options.minbytes < 1 or options.stepfactor < 2:
        parser.error("-b has to be at least 1, and -f at least 2")
    if options.barrier_us is not None and not 0 < options.barrier_us < math.inf:
        parser.error("--barrier-us has to be more than 0")
    if options.bars and not wefts_of(options):
        parser.error("--bars judges Weft: --libraries has to name one of its own")
    return options


def sizes_of(options):
    sizes = [options.minbytes]
    while sizes[-1] * options.stepfactor <= options.maxbytes:
        sizes.append(sizes[-1] * options.stepfactor)
    return sizes


def asked_size(sizes, measured):
    """Of `sizes`, the one for which the size `measured` was measured: ranks' parts are whole elements, so it may be a little less, but
    no less than the next smaller one."""
    return min((size for size in sizes if size >= measured), default=measured)


def libraries_of(options):
    setup = Setup(os.path.abspath(options.build), os.path.abspath(options.folder), not options.no_install)
    os.makedirs(setup.folder, exist_ok=True)
    libraries = []
    for name in options.libraries:
        try:
            libraries.append(CATALOGUE[name](setup))
            print(f"# {name}: {libraries[-1].name} {libraries[-1].version}", flush=True)
        except (Unavailable, OSError) as reason:
            print(f"# {name}: skipped: {reason}", flush=True)
    return libraries


def start(launch):
    """The output of one launch: a command, or one command per rank."""
    commands = launch if isinstance(launch, list) else [launch]
    return [subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for command, env in commands]


def measure_once(library, op, ranks, options, sizes):
    """JSON lines of one launch; None when the library has no such operation."""
    processes = start(library.launch(op, ranks, options.iters, 1, sizes))
    outputs, failure = [], None
    for process in processes:
        try:
            out, err = process.communicate(timeout=options.timeout)
        except subprocess.TimeoutExpired:
            for each in processes:
                each.kill()
            raise Unavailable(f"no result within {options.timeout} s") from None
        if process.returncode == 3 and len(processes) > 1:
            failure = "no such operation"
        elif process.returncode != 0:
            failure = f"left with {process.returncode}: {err.strip()[-300:]}"
        outputs.append(out)
    if failure:
        raise Unavailable(failure)
    lines = [json.loads(line) for out in outputs for line in out.splitlines() if line.startswith("{")]
    if not lines:
        raise Unavailable("printed no result")
    lines = [line for line in lines if line["bytes"] > 0]  # parts of less than an element each
    for line in lines:
        line["library"] = library.name
        if line.get("wrong", 0):
            raise Unavailable(f"{line['wrong']} wrong elements at {line['bytes']} bytes")
    return lines


def measure(libraries, op, ranks, options):
    """All lines of all rounds. A library that fails is named, and left out from then on."""
    sizes, lines, alive = sizes_of(options), [], list(libraries)
    asked = {} if options.barrier_us is None or crowded(ranks) else {"barrier": options.barrier_us}
    forget_wishes()
    wish(asked)
    for turn in itertools.count():
        if turn == options.rounds:
            end = time.monotonic() + options.patience
        missing = lacking(lines, alive) if turn >= options.rounds else {library.name: sizes for library in alive}
        if not missing or turn >= options.rounds and time.monotonic() >= end:
            break
        if lines and not crowded(ranks):
            wish(common(lines))
        launched = False
        for library in alive[turn % len(alive):] + alive[:turn % len(alive)]:
            if library.name not in missing:
                continue
            try:
                for series in runs(sizes, missing[library.name]):
                    launched = True
                    lines += [{**line, "round": turn, "asked": asked, "asked_bytes": asked_size(sizes, line["bytes"])}
                              for line in measure_once(library, op, ranks, options, series)]
            except Unavailable as reason:
                print(f"# {op}, {ranks} ranks: {library.name} left out: {reason}", flush=True)
                alive = [other for other in alive if other is not library]
                lines = [line for line in lines if line["library"] != library.name]
        if not launched:
            break
    forget_wishes()
    return lines


def wish(conditions):
    os.environ.update({WISHES[name]: f"{us:.4f}" for name, us in conditions.items()})


def forget_wishes():
    for variable in WISHES.values():
        os.environ.pop(variable, None)


def distance(line, conditions):
    """How many times one of a condition and the line's canaries of it is the other, at most; 1 where ranks take turns on
    the cores, which is all that these then tell."""
    if crowded(line["ranks"]):
        return 1
    return max((max(line[f"canary_{name}_us"] / us, us / line[f"canary_{name}_least_us"]) for name, us in conditions.items()),
               default=1)


def common(lines):
    """condition → the shortest at which the share COMMON of the lines that the conditions before leave was measured, or
    as many as at any other; those that were asked for as they are."""
    result = dict(lines[0].get("asked", {}))
    lines = [line for line in lines if distance(line, result) <= DISTURBED] or lines
    for name in CONDITIONS:
        if name in result:
            continue
        met = [[line for line in lines if distance(line, {name: us}) <= DISTURBED]
               for us in sorted(line[f"canary_{name}_us"] for line in lines)]
        enough = min(COMMON * len(lines), max(map(len, met)))
        lines = next(group for group in met if len(group) >= enough)
        result[name] = statistics.median(line[f"canary_{name}_us"] for line in lines)
    return result


def usual_copies(lines):
    """bytes → what the share COMMON of the copies around that size take at most: what a size leaves in the caches is part of
    it."""
    copies = {}
    for line in lines:
        copies.setdefault(line["bytes"], []).append(line["canary_copy_us"])
    return {size: sorted(of)[int(COMMON * (len(of) - 1))] for size, of in copies.items()}


def counting(lines):
    """The lines that were disturbed by nothing, and measured where the other canaries take as long as in many others."""
    copies, conditions = usual_copies(lines), common(lines)
    return [line for line in lines
            if line["canary_copy_us"] <= DISTURBED * copies[line["bytes"]] and distance(line, conditions) <= DISTURBED]


def lacking(lines, libraries):
    """library → the sizes, as they were asked for and of those that it has, at which it was met less often than wanted; without
    those that lack none."""
    counts = {(line["library"], line["bytes"]): 0 for line in lines}
    asked = {line["bytes"]: line.get("asked_bytes", line["bytes"]) for line in lines}
    alone = limits(lines)
    for (name, size), group in grouped(counting(lines) if lines else []).items():
        counts[name, size] = 0 if math.isnan(figure_of(group, "cost", alone.get(size))) else len(group)
    result = {}
    for (name, size), times in sorted(counts.items()):
        if times < (WANTED_OF_SMALL if size <= SMALL else WANTED) and name in {library.name for library in libraries}:
            result.setdefault(name, []).append(asked[size])
    return result


def runs(series, some):
    """Those of a series that follow one another in it, list by list: what programs are started with is such a series."""
    result = []
    for before, size in zip([None, *series], series):
        if size not in some:
            continue
        if before not in some:
            result.append([])
        result[-1].append(size)
    return result


def grouped(lines):
    """(library, bytes) → its lines."""
    groups = {}
    for line in lines:
        groups.setdefault((line["library"], line["bytes"]), []).append(line)
    return groups


def undisturbed(lines):
    """Per library and size (the lines that count, True), or (the nearest one, False) where none does."""
    copies, conditions = usual_copies(lines), common(lines)
    counted = {id(line) for line in counting(lines)}
    for group in grouped(lines).values():
        near = [line for line in group if id(line) in counted]
        nearest = min(group, key=lambda line: max(line["canary_copy_us"] / copies[line["bytes"]], distance(line, conditions)))
        yield (near, True) if near else ([nearest], False)


def limits(lines):
    """bytes → what the same loads and stores take without synchronisation, in µs, where that was measured."""
    result = {}
    for line in lines:
        if line.get("limit_us", 0) > 0:
            result[line["bytes"]] = min(line["limit_us"], result.get(line["bytes"], math.inf))
    return result


def figure_of(lines, figure, limit):
    """The shortest loop with calls less the shortest without, in µs a call, as the programs do it within a launch: a disturbed
    loop without calls can make no figure look better than it is. NaN where that is nothing, or so much less than the limit
    that no loop without calls can have been undisturbed."""
    lines = [line for line in lines if f"{figure}_us" in line]
    if not lines:
        return math.nan
    bases = [line[f"{figure}_base_us"] for line in lines]
    difference = min(line[f"{figure}_us"] + base for line, base in zip(lines, bases)) - min(bases)
    least = LEAST * limit if limit is not None and lines[0]["bytes"] > SMALL else 0
    return difference if difference > least else math.nan


def summary(lines):
    """One line per library and size: its best figures, of how many rounds, and whether any of them counted."""
    result, conditions, alone = [], common(lines), limits(lines)
    for group, counts in undisturbed(lines):
        first = group[0]
        result.append({key: first[key] for key in ("library", "version", "op", "memory", "ranks", "bytes")}
                      | {"time_us": figure_of(group, "call", alone.get(first["bytes"])),
                         "cost_us": figure_of(group, "cost", alone.get(first["bytes"])), "rounds": len(group), "counted": counts}
                      | {f"{name}_us": us for name, us in conditions.items()}
                      | ({"limit_us": alone[first["bytes"]]} if "limit_us" in first else {}))
    return result


def text_of(value):
    return "n/a" if math.isnan(value) else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def print_table(rows, figure):
    names = list(dict.fromkeys(row["library"] for row in rows))
    table = {(row["library"], row["bytes"]): text_of(row[figure]) + ("" if row["counted"] else "*") for row in rows}
    first = rows[0]
    where = "" if crowded(first["ranks"]) else f"; a barrier of flags {first['barrier_us']:.3f}, additions {first['work_us']:.1f}"
    print(f"\n# {first['op']}, {first['ranks']} ranks, f32; {'call' if figure == 'time_us' else 'cost'} in µs{where}")
    print(f"# {'bytes':>10}" + "".join(f"  {name:>15}" for name in names))
    for size in sorted({row["bytes"] for row in rows}):
        print(f"{size:>12}" + "".join(f"  {table.get((name, size), 'n/a'):>15}" for name in names))


def bar_of(op, ranks, memory):
    """(never below, geometric mean) of the best other library over Weft."""
    if crowded(ranks) or op not in ("all_reduce", "reduce_scatter", "all_gather"):
        return 1.0, 1.5
    return (1.1, 2.0) if memory == "symmetric" else (1.0, 1.5)


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else math.nan


def ratios_of(rows, weft, figure):
    """bytes → the best other library's time over Weft's; NaN where there is none of either."""
    ours = {row["bytes"]: row[figure] for row in rows if row["library"] == weft}
    theirs = {}
    for row in rows:
        if not row["library"].startswith("weft") and not math.isnan(row[figure]):
            theirs[row["bytes"]] = min(theirs.get(row["bytes"], math.inf), row[figure])
    return {size: theirs.get(size, math.nan) / time for size, time in ours.items()}


def print_limit(rows):
    """What ratios calls would have that take no longer than this machine's limit."""
    limits = [{**row, "library": "weft limit", "time_us": row["limit_us"]} for row in rows if row.get("limit_us", 0) > 0]
    ratios = ratios_of(limits + [row for row in rows if not row["library"].startswith("weft")], "weft limit", "time_us")
    ratios = {size: ratio for size, ratio in ratios.items() if not math.isnan(ratio)}
    if ratios:
        lowest = min(ratios, key=ratios.get)
        print(f"AT THE LIMIT: {rows[0]['op']}, {rows[0]['ranks']} ranks, symmetric, call: lowest ratio ({lowest} bytes) "
              f"{ratios[lowest]:.2f}, geometric mean {geometric_mean(list(ratios.values())):.2f}")


def judge(rows, op, ranks, wefts):
    """Prints each bar of the `wefts`, names of libraries, and whether it holds; True when all do. One that gave no figures, as its
    programs are missing or failed, holds none; nor does one hold at a size that no other library was measured at."""
    good = True
    measured = {row["library"] for row in rows}
    for weft in wefts:
        memory = weft.split()[1]
        if weft not in measured:
            print(f"FAIL: {op}, {ranks} ranks, {memory}: not measured")
            good = False
            continue
        for figure in ("time_us", "cost_us"):
            ratios = ratios_of(rows, weft, figure)
            if all(math.isnan(ratio) for ratio in ratios.values()):
                print(f"FAIL: {op}, {ranks} ranks, {memory}: nothing to compare with")
                good = False
                continue
            floor, mean = bar_of(op, ranks, memory)
            # A figure that drowned in noise is no proof: it fails.
            lowest = min(ratios, key=lambda size: -math.inf if math.isnan(ratios[size]) else ratios[size])
            for text, value, bar in ((f"lowest ratio ({lowest} bytes)", ratios[lowest], floor * TOLERANCE),
                                     ("geometric mean", geometric_mean(list(ratios.values())), mean)):
                good = value >= bar and good
                print(f"{'PASS' if value >= bar else 'FAIL'}: {op}, {ranks} ranks, {memory}, "
                      f"{'call' if figure == 'time_us' else 'cost'}: {text} {value:.2f}, bar {bar:.2f}")
    return good


def wefts_of(options):
    """Weft's libraries that were asked for, whether they could be set up or not, as they are called in lines."""
    return [name.replace("-", " ") for name in options.libraries if name.startswith("weft")]


def write(options, rows):
    os.makedirs(os.path.dirname(os.path.abspath(options.output)), exist_ok=True)
    with open(options.output + ".jsonl", "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({key: None if value != value else value for key, value in row.items()}) + "\n")
    print(f"\n# wrote {options.output}.jsonl")
    drawable = [row for row in rows if row["time_us"] > 0]
    try:
        import plot
        plot.draw(drawable, options.output + ".png")
        print(f"# wrote {options.output}.png")
    except ImportError as error:
        print(f"# no picture: {error} (python3-matplotlib)")


def main():
    options = arguments()
    libraries = libraries_of(options)
    if options.setup_only:
        return 0 if libraries else 2
    everything, good = [], True
    for op in options.ops:
        for ranks in options.ranks:
            lines = measure(libraries, op, ranks, options)
            if not lines:
                if options.bars:
                    good = judge([], op, ranks, wefts_of(options)) and good
                continue
            rows = summary(lines)
            everything += rows
            print_table(rows, "time_us")
            print_table(rows, "cost_us")
            if options.bars:
                good = judge(rows, op, ranks, wefts_of(options)) and good
                print_limit(rows)
    if not everything:
        print("compare: nothing could be measured", file=sys.stderr)
        return 2
    write(options, everything)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
