#!/usr/bin/env python3
"""Plans minimalloc's challenging problems with weft-memory, and judges: each fits within 1,048,576 bytes in less than 10 s.

    check_memory.py [--bin build/release/bin] [--data FOLDER] [--rounds 3]

FOLDER holds *.csv; by default it is minimalloc/ in $WEFT_TEST_DATA, or in ../shared/data beside the project. Printed is the
slowest of the rounds. Exit code: 0 when the bar holds or there is no data, 1 when not, 2 when a run fails.
"""
import argparse
import glob
import json
import os
import subprocess
import sys

CAPACITY = 1048576
MOST_SECONDS = 10
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="folder with the programs (default: %(default)s)")
    parser.add_argument("--data", default=os.path.join(os.environ.get("WEFT_TEST_DATA", os.path.join(ROOT, "../shared/data")), "minimalloc"), help="folder with *.csv (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="times each problem is planned; the slowest counts (default: %(default)s)")
    return parser.parse_args()


def plan(options, path):
    command = [os.path.join(options.bin, "weft-memory"), path, "--capacity", str(CAPACITY), "--time-limit", "60", "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        print(run.stderr, file=sys.stderr, end="")
        sys.exit(2)
    return json.loads(run.stdout)


def main():
    options = parse()
    problems = sorted(glob.glob(os.path.join(options.data, "*.csv")))
    if not problems:
        print(f"memory problems: not measured, there are none in {options.data}")
        return 0
    holds = True
    print(f"{'problem':<10}{'buffers':>9}{'live bytes':>12}{'plan bytes':>12}{'seconds':>9}   bar: <= {CAPACITY}, < {MOST_SECONDS} s")
    for path in problems:
        plans = [plan(options, path) for _ in range(options.rounds)]
        seconds = max(one["planning_s"] for one in plans)
        held = all(one["plan_bytes"] <= CAPACITY for one in plans) and seconds < MOST_SECONDS
        holds = holds and held
        name = os.path.basename(path).split(".")[0]
        print(f"{name:<10}{plans[0]['buffers']:>9}{plans[0]['live_bytes']:>12}{plans[0]['plan_bytes']:>12}{seconds:>9.2f}"
              f"   {'holds' if held else 'MISSED'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
