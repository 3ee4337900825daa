#!/usr/bin/env python3
"""Plans the Llama 3 steps with weft-schedule, and judges: each within 3 % of its bound, and no policy that keeps to the same memory faster.
Where no schedule within the memory can be within 3 % of the bound that leaves memory out, it has to be within 3 % of the one that counts it.

    check_scheduler.py [--bin build/release/bin] [--data FOLDER] [--quick] [--out docs/scheduler-results.md]

FOLDER holds the HLO modules of 8B, 70B and 405B; by default it is hlo/ in $WEFT_TEST_DATA, or in ../shared/data beside the project. Graphs
x clusters a100-100g, a100-200g, h100-400g x memory of 80 GB (which all but 8B have to fit) and 1.3 x the transients of the order of least memory x
contention 0, 0.1, 0.2. --quick takes one cluster and contention 0. --out writes the tables, with the step's time over memory for each graph.
Exit code: 0 when the bar holds or there is no data, 1 when not, 2 when a run fails.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
GRAPHS = {"8B": "hlo_llama31_8b_bf16_2x8.hlo", "70B": "hlo_llama31_70b_bf16_16x8.hlo", "405B": "hlo_llama31_405b_bf16_64x8.hlo"}
CLUSTERS = ["a100-100g", "a100-200g", "h100-400g"]
MOST_RATIO = 1.03
MOST_REPLAYED = 1.01
UNFIT = {("8B", "80G")}  # no order of its operators needs less than 82.157 GB
ROUNDING = 1 + 1e-4  # the search ends this close to the bound
CURVE = [1.0, 1.1, 1.3, 1.6, 2.0, 3.0, 4.0]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="folder with the programs (default: %(default)s)")
    parser.add_argument("--data", default=os.path.join(os.environ.get("WEFT_TEST_DATA", os.path.join(ROOT, "../shared/data")), "hlo"), help="folder with the *.hlo (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one cluster, contention 0")
    parser.add_argument("--out", help="the page to write")
    return parser.parse_args()


def plan(options, path, cluster, memory, contention, policy="all"):
    """The program's figures; None where nothing fits the memory."""
    command = [os.path.join(options.bin, "weft-schedule"), path, "--cluster", cluster, "--memory", memory, "--contention",
               str(contention), "--policy", policy, "--replay", "--time-limit", "600", "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode == 1:
        return None
    if run.returncode != 0:
        print(run.stderr, file=sys.stderr, end="")
        sys.exit(2)
    return json.loads(run.stdout)


def judge(figures):
    """(Weft's plan, its ratio to the bound and to the one within the memory, the best other one, whether the bar holds)."""
    weft = next(policy for policy in figures["policies"] if policy["name"] == "weft")
    best = min((policy for policy in figures["policies"] if policy is not weft), key=lambda policy: policy["makespan_ms"])
    ratio = weft["makespan_ms"] / weft["lower_bound_ms"]
    within = weft["makespan_ms"] / figures["bound_within_memory_ms"]
    can_be = figures["bound_within_memory_ms"] <= MOST_RATIO * weft["lower_bound_ms"]
    near = (ratio if can_be else within) <= MOST_RATIO
    return weft, ratio, within, best, near and weft["makespan_ms"] <= best["makespan_ms"] * ROUNDING


def steadiness(figures):
    """The worst ratio, over what operators may take instead, of Weft's plan to the best other one, both started in the planned order."""
    policies = [policy for policy in figures["policies"] if policy["name"] not in ("blocking", "random")]
    weft = next(policy for policy in policies if policy["name"] == "weft")
    return max(weft["replayed_ms"][key] / min(policy["replayed_ms"][key] for policy in policies if policy is not weft) for key in weft["replayed_ms"])


def rows(options, name, path):
    for cluster in CLUSTERS[1:2] if options.quick else CLUSTERS:
        for memory in ("80G", "1.3x"):
            for contention in (0,) if options.quick else (0, 0.1, 0.2):
                figures = plan(options, path, cluster, memory, contention)
                case = [name, cluster, memory, f"{contention:.1f}"]
                if figures is None:
                    known = (name, memory) in UNFIT
                    yield [*case, *[""] * 8, "does not fit" if known else "MISSED: does not fit"], known
                    continue
                weft, ratio, within, best, held = judge(figures)
                steady = steadiness(figures)
                held = held and steady <= MOST_REPLAYED
                yield [*case, f"{weft['makespan_ms']:.1f}", f"{weft['lower_bound_ms']:.1f}", f"{ratio:.4f}",
                       f"{within:.4f}", f"{best['name']} {best['makespan_ms'] / weft['lower_bound_ms']:.4f}", f"{weft['peak_bytes'] / 1e9:.1f}",
                       f"{weft['planning_s']:.1f}", f"{steady:.4f}", "holds" if held else "MISSED"], held


HEADER = ["graph", "cluster", "memory", "contention", "step ms", "bound ms", "ratio", "within memory", "best other", "peak GB", "planned s", "replayed", "bar"]


def curve(options, name, path):
    for times in CURVE[::3] if options.quick else CURVE:
        figures = plan(options, path, "a100-200g", f"{times}x", 0, "weft,asap,xla")
        if figures is None:
            continue
        ratios = [f"{policy['makespan_ms'] / policy['lower_bound_ms']:.4f}" for policy in figures["policies"]]
        yield [name, f"{times:.1f}x", f"{figures['capacity'] / 1e9:.1f}", *ratios]


CURVE_HEADER = ["graph", "transients", "capacity GB", "weft", "asap", "xla"]


def table(header, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *lines])


def page(results, curves):
    return f"""# What planning a step gives

Written by `perf/check_scheduler.py --out docs/scheduler-results.md`. The steps are those of the HLO modules
([planning](scheduler.md)). The bound is what no schedule can beat, whatever memory it takes
([plan files](plan-file.md#the-bound)). Bar: at most {MOST_RATIO} times the bound, and no other policy within the same memory faster.

| column | is |
| --- | --- |
| memory | 80 GB, or 1.3 times the transient bytes of the order of least memory that is known, resident bytes aside |
| within memory | the ratio to the bound that counts what memory keeps from being sent early ([0033](decisions/0033-bounds-of-schedules.md)). It is the one that is judged where that bound alone is above {MOST_RATIO} times the other |
| best other | the fastest of the other policies, and its time over the bound |
| replayed | the plan's time over that of the best other plan where operators take other times (each 20 % more or less by chance; links 20 % slower and computing faster; the reverse), the worst of the three; bar: {MOST_REPLAYED} |

{table(HEADER, results)}

## Time over memory

Step time over the bound on a100-200g without contention, by how many times the least transients there is room for.

{table(CURVE_HEADER, curves)}
"""


def main():
    options = parse()
    results, curves, holds = [], [], True
    for name, file in GRAPHS.items():
        path = os.path.join(options.data, file)
        if not os.path.exists(path):
            print(f"{name}: not planned, there is no {path}")
            continue
        for row, held in rows(options, name, path):
            print("  ".join(f"{cell:<12}" for cell in row), flush=True)
            results.append(row)
            holds = holds and held
        for row in curve(options, name, path) if options.out else ():
            print("  ".join(f"{cell:<12}" for cell in row), flush=True)
            curves.append(row)
    if options.out and results:
        with open(options.out, "w", encoding="utf-8") as out:
            out.write(page(results, curves))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
