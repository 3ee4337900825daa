#!/usr/bin/env python3
"""Has train_gpt --autotune find buckets on an emulated link, beginning with the library's default, beside a sweep of every setting
that it may try, and judges: once it has settled a step takes at most 1.03 × that of the best of the sweep and at most 1.02 × the
default's, and it has settled within its share of the steps.

    check_autotune.py [--bin build/release/bin] [--rounds 2] [--steps 120] [--share 0.5] [--link 50us:190MB/s] [-- TRAIN_GPT_OPTION …]

Every run is a process of its own, and rounds take turns. Judged are lower quartiles over the steps of all rounds: disturbances only
ever lengthen a step. Medians are printed beside. Exit code: 0 when the bars hold, 1 when not, 2 when a run fails.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import trainer

MODEL = ("--layers", "6", "--batch", "4")  # half of train_gpt's defaults: twice the steps
DEFAULT = {"bucket": 25, "first": 1, "last": 1}  # BucketLimits
CAPS_MB = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
SWEEP_STEPS = 22
COLD = 2  # steps at the start that do not count
OF_SWEEP = 1.03
OF_DEFAULT = 1.02


def parse():
    parser = trainer.parser_of(__doc__, rounds=2, steps=120)
    parser.add_argument("--share", type=float, default=0.5, help="of the steps, at most, before it has settled")
    parser.add_argument("--link", default="50us:190MB/s", help="emulated link, latency:bandwidth (default: %(default)s)")
    parser.add_argument("train_gpt", nargs="*", default=list(MODEL), help=f"options of the model, default: {' '.join(MODEL)}")
    return parser.parse_args()


def limits(bucket, first, last):
    return ["--bucket-mb", str(bucket), "--first-bucket-mb", str(first), "--last-bucket-mb", str(last)]


def settings():
    """{name: options}: what the autotuner has to choose from."""
    sweep = {"default": limits(**DEFAULT), "optimal": [*limits(**DEFAULT), "--bucket-policy", "optimal"]}
    for cap in CAPS_MB:
        sweep[f"cap {cap:g} MiB"] = limits(cap, min(cap, 1), min(cap, max(cap / 4, 0.25)))
    return sweep


def run(options, steps, *arguments):
    """Each step's milliseconds, and what was said meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [os.path.join(options.bin, "train_gpt"), "--ranks", str(options.ranks), "--steps", str(steps), "--sample", "0",
                   "--link", options.link, "--report-json", report, *arguments, *options.train_gpt]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=600, check=False,
                              env={**os.environ, "WEFT_AUTOTUNE_CACHE": "0"})
        if done.returncode != 0:
            print(f"check_autotune.py: {' '.join(command)} left {done.returncode}: {done.stderr.strip()}", file=sys.stderr)
            sys.exit(2)
        with open(report, encoding="utf-8") as file:
            return [step["step_ms"] for step in json.load(file)["runs"][0]["steps"]], done.stderr


def tuned(options):
    """Milliseconds of the steps after it has settled, and after how many that was."""
    times, said = run(options, options.steps, "--autotune", "--autotune-share", str(options.share), *limits(**DEFAULT))
    settled = re.search(r"\[autotune\] .* tried in (\d+) of \d+ steps", said)
    if not settled:
        print(f"check_autotune.py: it has not settled: {said.strip()}", file=sys.stderr)
        sys.exit(2)
    print(said.strip())
    return times[int(settled[1]) + 1:], int(settled[1])


def quartile(times):
    return statistics.quantiles(times, n=4)[0]


def judge(sweep, settled, spent, options):
    print(f"{'setting':<14}{'quartile ms':>12}{'median ms':>11}{'settled over it':>17}")
    for name, times in {**sweep, "settled": settled}.items():
        print(f"{name:<14}{quartile(times):>12.2f}{statistics.median(times):>11.2f}{quartile(settled) / quartile(times):>17.3f}")
    best = min(sweep, key=lambda name: quartile(sweep[name]))
    of_sweep = quartile(settled) / quartile(sweep[best])
    of_default = quartile(settled) / quartile(sweep["default"])
    share = spent / options.steps
    good = of_sweep <= OF_SWEEP and of_default <= OF_DEFAULT and share <= options.share
    print(f"{'PASS' if good else 'FAIL'}: settled over the best of the sweep ({best}) {of_sweep:.3f}, at most {OF_SWEEP}; over the "
          f"default {of_default:.3f}, at most {OF_DEFAULT}; {100 * share:.0f} % of the steps spent, at most {100 * options.share:.0f} %")
    return good


def main():
    options = parse()
    sweep = {name: [] for name in settings()}
    settled, spent = [], 0
    for _ in range(options.rounds):
        for name, arguments in settings().items():
            sweep[name] += run(options, SWEEP_STEPS, *arguments)[0][COLD:]
        times, steps = tuned(options)
        settled += times
        spent = max(spent, steps)
    print(f"# {options.link}, {options.ranks} ranks, {options.rounds} rounds")
    return 0 if judge(sweep, settled, spent, options) else 1


if __name__ == "__main__":
    sys.exit(main())
