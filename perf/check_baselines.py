#!/usr/bin/env python3
"""This project's own figures as ratios to the machine's limit, held against the thresholds kept beside them.

    check_baselines.py [--bin build/release/bin] [BASELINE.jsonl…]     exit code 1 when a threshold is passed
    check_baselines.py --record                                        measures again and rewrites `measured`

A baseline line names a program's setting and the largest `at_most` that time over limit may be there; `measured` says
what it was when the line was recorded. The limit is measured in the same run, so nothing depends on the machine's clock.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

PERF = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(PERF)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="folder with the programs (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="measure again and rewrite `measured`; nothing is judged")
    parser.add_argument("--rounds", type=int, default=5, help="undisturbed rounds of each line; the best counts (default: %(default)s)")
    parser.add_argument("baselines", nargs="*", default=sorted(glob.glob(os.path.join(PERF, "baselines/*.jsonl"))), help="files of thresholds (default: perf/baselines/*.jsonl)")
    return parser.parse_args()


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def measure(options, line):
    """The program's JSON line for one baseline line."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines")
        command = [os.path.join(options.bin, line["op"] + "_perf"), "-t", str(line["ranks"]), "-b", str(line["bytes"]),
                   "-e", str(line["bytes"]), "--memory", line["memory"], "--in-place", "0", "--limit", "--rounds",
                   str(options.rounds), "--json", path]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} left with {done.returncode}:\n{done.stdout}")
        return read(path)[0]


def judge(line, found):
    """Whether the threshold holds; a time that drowned in noise is no proof."""
    value = found["time_us"] / found["limit_us"]
    holds = 0 < value <= line["at_most"]
    noise = "" if found["rounds_kept"] else " (no undisturbed round: measure again)"
    print(f"{'PASS' if holds else 'FAIL'}: {line['op']}, {line['ranks']} ranks, {line['memory']}, {line['bytes']} bytes: "
          f"{found['time_us']:.3f} us, {value:.2f} x limit, at most {line['at_most']:.2f}, was {line['measured']}{noise}",
          flush=True)
    return holds, value


def main():
    options = arguments()
    good = True
    for path in options.baselines:
        lines = read(path)
        for line in lines:
            try:
                holds, value = judge(line, measure(options, line))
            except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"check_baselines: {error}", file=sys.stderr)
                return 2
            good = holds and good
            if options.record:
                line["measured"] = round(value, 2)
        if options.record:
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
    return 0 if good or options.record else 1


if __name__ == "__main__":
    sys.exit(main())
