#!/usr/bin/env python3
"""Sweeps seven caps of buckets on an emulated link beside train_gpt --bucket-policy optimal, and judges: its step takes at most
1.02 × that of the best cap.

    check_buckets.py [--bin build/release/bin] [--rounds 3] [--steps 42] [--link 50us:190MB/s] [-- TRAIN_GPT_OPTION …]

The eight take turns step by step (train_gpt --compare), and every round is a process of its own, which plans anew. Judged are
lower quartiles over all steps of all rounds: disturbances only ever lengthen a step. Medians are printed beside. Exit code: 0 when the bar holds, 1 when not, 2 when a run fails.
"""
import json
import os
import statistics
import sys

import trainer

MODEL = ("--layers", "6", "--batch", "4")  # half of train_gpt's defaults: twice the steps
CAPS_MB = (0.125, 0.25, 0.5, 1, 2, 4, 8)
BAR = 1.02
COLD = 2  # steps at the start that do not count: the first one plans


def parse():
    parser = trainer.parser_of(__doc__, rounds=3, steps=42)
    parser.add_argument("--link", default="50us:190MB/s", help="emulated link, latency:bandwidth (default: %(default)s)")
    parser.add_argument("--json", help="append every step's time, a line for each run of a round; earlier lines count too")
    parser.add_argument("train_gpt", nargs="*", default=list(MODEL), help=f"options of the model, default: {' '.join(MODEL)}")
    return parser.parse_args()


def round_of(options):
    """{name: [milliseconds of each step that counts]}"""
    runs = trainer.run(options, "--link", options.link, "--bucket-policy", "optimal", "--compare", "--compare-caps",
                       *map(str, CAPS_MB), *options.train_gpt)
    return {run["name"]: [step["step_ms"] for step in run["steps"][COLD:]] for run in runs}


def rounds_of(options):
    rounds = []
    if options.json and os.path.exists(options.json):
        with open(options.json, encoding="utf-8") as file:
            rounds = [json.loads(line) for line in file]
    for _ in range(options.rounds):
        rounds.append(round_of(options))
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(rounds[-1]) + "\n")
    return rounds


def judge(steps):
    """`steps`: {name: milliseconds}"""
    quartiles = {name: statistics.quantiles(times, n=4)[0] for name, times in steps.items()}
    print(f"{'run':<14}{'quartile ms':>12}{'median ms':>11}{'optimal over it':>17}")
    ratios = {}
    for name, times in steps.items():
        label = "optimal" if name == "weft" else name
        ratio = quartiles["weft"] / quartiles[name]
        print(f"{label:<14}{quartiles[name]:>12.2f}{statistics.median(times):>11.2f}{ratio:>17.3f}")
        if name.startswith("cap "):
            ratios[name] = ratio
    best = max(ratios, key=ratios.get)
    good = ratios[best] <= BAR
    print(f"{'PASS' if good else 'FAIL'}: optimal over the best cap ({best}) {ratios[best]:.3f}, at most {BAR:.3f}")
    return good


def main():
    options = parse()
    rounds = rounds_of(options)
    steps = {name: [ms for one in rounds for ms in one[name]] for name in rounds[0]}
    print(f"# {options.link}, {options.ranks} ranks, {len(steps['weft'])} steps in {len(rounds)} rounds")
    return 0 if judge(steps) else 1


if __name__ == "__main__":
    sys.exit(main())
