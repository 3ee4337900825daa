#!/usr/bin/env python3
"""Runs train_gpt's strategies on an emulated link whose communication lasts about half of the computation, and judges how much
of it each hides: at least 90 % of what could be hidden, in a step of at most 1.08 × its own bound. The link is the one
that `--link auto` finds for ddp; zero3, which sends half as much again, gets one that is half as fast again.

    check_strategies.py [--bin build/release/bin] [--rounds 3] [--steps 24] [--strategies ddp zero1 …] [--traces FOLDER]

Rounds take turns with the strategies, and medians over them are judged. Exit code: 0 when every bar holds, 1 when one does not,
2 when a run fails.
"""
import json
import os
import re
import statistics
import sys

import trainer

STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "hsdp")
TRAFFIC = {"zero3": 1.5}  # of ddp's
HIDDEN, BOUND = 0.90, 1.08


def parse():
    parser = trainer.parser_of(__doc__, rounds=3, steps=24)
    parser.add_argument("--link", help="as 50us:200MB/s, instead of the one found for ddp")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES), help="which to run (default: %(default)s)")
    parser.add_argument("--traces", help="write FOLDER/STRATEGY.trace.json of the last round, for tools/plot_overlap.py")
    parser.add_argument("--json", help="write every run's medians as JSON lines")
    return parser.parse_args()


def scaled(link, factor):
    """"50us:200MB/s (emulated)" with `factor` times the bandwidth."""
    latency, bandwidth, unit = re.match(r"([^:]+):([\d.]+)(\S+)", link).groups()
    return f"{latency}:{float(bandwidth) * factor:.4g}{unit}"


def run(options, strategy, link, trace=None):
    return trainer.run(options, "--link", link, "--strategy", strategy, *(["--trace", trace] if trace else []))[0]


def judge(strategy, runs):
    median = {key: statistics.median(run[key] for run in runs)
              for key in ("step_ms", "compute_ms", "communication_ms", "bound_ms")}
    over = statistics.median(run["step_ms"] / run["bound_ms"] for run in runs)
    hidden = statistics.median(run["hidden_ms"] / run["hideable_ms"] for run in runs)
    holds = over <= BOUND and hidden >= HIDDEN
    print(f"{'PASS' if holds else 'FAIL'}: {strategy:<6} step {median['step_ms']:7.1f} ms, compute {median['compute_ms']:7.1f}, communication "
          f"{median['communication_ms']:7.1f}; hidden of hideable {100 * hidden:5.1f} % (at least {100 * HIDDEN:.0f}), step over bound "
          f"{over:.3f} (at most {BOUND})", flush=True)
    return holds


def main():
    options = parse()
    link = options.link or scaled(run(options, "ddp", "auto")["link"], 1)
    print(f"# {options.ranks} ranks, link {link} (emulated), {options.rounds} rounds of {options.steps} steps")
    runs = {strategy: [] for strategy in options.strategies}
    for index in range(options.rounds):
        for strategy in options.strategies:
            trace = None
            if options.traces and index == options.rounds - 1:
                os.makedirs(options.traces, exist_ok=True)
                trace = os.path.join(options.traces, f"{strategy}.trace.json")
            runs[strategy].append(run(options, strategy, scaled(link, TRAFFIC.get(strategy, 1)), trace))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            for strategy, list_of_runs in runs.items():
                for one in list_of_runs:
                    file.write(json.dumps({"strategy": strategy, **{k: v for k, v in one.items() if isinstance(v, (int, float, str))}}) + "\n")
    return 0 if all([judge(strategy, list_of_runs) for strategy, list_of_runs in runs.items()]) else 1


if __name__ == "__main__":
    sys.exit(main())
