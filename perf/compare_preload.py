#!/usr/bin/env python3
"""What preloading libweft_mpi.so does to a plain MPI latency loop.

Runs perf/preload_loop.cpp with and without the library, in turns, on pinned ranks. The figure is the
cost of a call: the best round of the loop with the call less the best round of the loop without. Exit code: 0 when the bars hold (geometric
mean of all gains, no size slower than allowed), 1 when one does not, 2 when nothing could be measured.
"""
import argparse
import json
import math
import os
import subprocess
import sys

from peers.catalogue import ROOT, environment

kNoise = 0.01  # µs


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/bin/preload_loop"), help="the loop (default: %(default)s)")
    parser.add_argument("--library", default=os.path.join(ROOT, "build/release/lib/libweft_mpi.so"), help="what is preloaded (default: %(default)s)")
    parser.add_argument("-n", "--ranks", type=int, default=2, help="of mpirun (default: %(default)s)")
    parser.add_argument("--operations", nargs="+", default=["allreduce", "bcast", "alltoall"], help="of allreduce, bcast, alltoall (default: %(default)s)")
    parser.add_argument("-b", "--minbytes", type=int, default=8, help="smallest message (default: %(default)s)")
    parser.add_argument("-e", "--maxbytes", type=int, default=8 << 20, help="largest message (default: %(default)s)")
    parser.add_argument("-f", "--stepfactor", type=int, default=4, help="factor between messages (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=3, help="launches with and without, alternating")
    parser.add_argument("--rounds", type=int, default=5, help="rounds a launch")
    parser.add_argument("--mean", type=float, default=1.3, help="least geometric mean of the gains")
    parser.add_argument("--never-below", type=float, default=0.95, help="least gain of any size")
    parser.add_argument("--mca", nargs="*", default=[], help="options for mpirun, such as pml=ob1")
    parser.add_argument("--json", help="append every figure as JSON lines to this file")
    options = parser.parse_args()
    if options.minbytes < 1 or options.stepfactor < 2:
        parser.error("-b has to be at least 1, and -f at least 2")
    return options


def iterations(size):
    return int(min(5000, max(8, (16 << 20) / max(size, 1))))


def launch(options, operation, size, preload):
    """Microseconds an iteration with and without the call, a pair a round."""
    crowded = options.ranks > os.cpu_count()
    command = ["mpirun", "-np", str(options.ranks)]
    command += ["--oversubscribe", "--bind-to", "none"] if crowded else ["--bind-to", "core"]
    for setting in options.mca:
        command += ["--mca", *setting.split("=", 1)]
    if preload:
        command += ["-x", f"LD_PRELOAD={options.library}"]
    command += [options.program, operation, str(size), str(iterations(size)), str(options.rounds)]
    done = subprocess.run(command, env=environment(), timeout=120, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} left with {done.returncode}:\n{done.stdout}{done.stderr}")
    return [tuple(float(figure) for figure in line.split()) for line in done.stdout.splitlines()]


def measure(options, operation, size):
    rounds = {False: [], True: []}
    for _ in range(options.turns):
        for preload, figures in rounds.items():
            figures += launch(options, operation, size, preload)
    # The loop without the call is the same in both.
    without = min(pair[1] for figures in rounds.values() for pair in figures)
    return tuple(min(pair[0] for pair in rounds[preload]) - without for preload in (False, True))


def main():
    options = arguments()
    for path in (options.program, options.library):
        if not os.path.exists(path):
            print(f"{path} is missing: build it first, or name it", file=sys.stderr)
            return 2
    gains = []
    slower = []
    print(f"# {options.ranks} ranks, µs a call without and with {os.path.basename(options.library)}")
    print(f"{'operation':>10} {'bytes':>9} {'MPI':>10} {'preloaded':>10} {'gain':>6}")
    size = options.minbytes
    sizes = []
    while size <= options.maxbytes:
        sizes.append(size)
        size *= options.stepfactor
    for operation in options.operations:
        for size in sizes:
            try:
                plain, preloaded = measure(options, operation, size)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                print(error, file=sys.stderr)
                return 2
            # What drowned in the loop's own noise is no proof of anything: it counts as a loss.
            gain = plain / preloaded if min(plain, preloaded) > kNoise else 0.0
            if gain > 0:
                gains.append(gain)
            if gain < options.never_below:
                slower.append(f"{operation} of {size} B: {gain:.2f}×")
            print(f"{operation:>10} {size:>9} {plain:>10.2f} {preloaded:>10.2f} {gain:>6.2f}", flush=True)
            if options.json:
                with open(options.json, "a", encoding="utf-8") as file:
                    for library, time in (("mpi", plain), ("weft preload", preloaded)):
                        file.write(json.dumps({"library": library, "op": operation, "memory": "private",
                                               "ranks": options.ranks, "bytes": size, "time_us": max(time, 0.0)}) + "\n")
    mean = math.exp(sum(math.log(gain) for gain in gains) / len(gains)) if gains else 0.0
    print(f"geometric mean {mean:.2f}× (bar {options.mean}×); slower than {options.never_below}×: "
          f"{', '.join(slower) if slower else 'nowhere'}")
    return 0 if mean >= options.mean and not slower else 1


if __name__ == "__main__":
    sys.exit(main())
