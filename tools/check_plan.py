#!/usr/bin/env python3
"""Checks a plan that weft-schedule --plan wrote, against the graph it is of: nothing of the library is used.

    check_plan.py GRAPH PLAN [--cluster NAME | FILE]

GRAPH is in JSON (docs/op-graph.md; weft-schedule --graph-out writes it), PLAN as docs/plan-file.md describes. Checked are: every
operator runs once; merged are collectives of one kind and group, without a cycle; what an operator waits for has ended; each
resource does one thing at a time; lengths are those of the cost model (with contention); bytes live, peak and capacity; the
makespan; and the lower bound, which is computed again. Exit code 0: all holds; 1: it does not, the first violations are printed;
2: bad usage or input.
"""
import argparse
import errno
import json
import os
import sys

from plan_check.clusters import NAMED
from plan_check.forms import CLUSTER, CLUSTER_MORE, GRAPH, PLAN, BadInput, Object, check
from plan_check.graph import Graph
from plan_check.replay import Replay

MOST_PRINTED = 10


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="JSON, as weft-schedule --graph-out writes it")
    parser.add_argument("plan", help="JSON, as weft-schedule --plan writes it")
    parser.add_argument("--cluster", metavar="NAME|FILE",
                        help=f"{', '.join(NAMED)}, or a cluster's JSON: the plan's has to have what that says (left out: the plan's own "
                        "is taken as it is)")
    return parser.parse_args()


def load(path, form):
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)  # NaN and Infinity are numbers to it
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON: {error}") from error
    return within(path, check, document, form)


def within(path, do, *arguments):
    """Says of which file a refusal is."""
    try:
        return do(*arguments)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def read_cluster(given):
    if given in NAMED:
        return NAMED[given]
    try:
        return load(given, Object(CLUSTER, CLUSTER_MORE))
    except BadInput as error:
        raise BadInput(f"--cluster is neither {', '.join(NAMED)} nor a file: {error}") from error


def other_figures(given, planned, where=""):
    """What a named cluster or a cluster's file says and the plan's does not, as sentences."""
    for key, value in given.items():
        if isinstance(value, dict):
            yield from other_figures(value, planned[key], f"{key}.")
        elif planned[key] != value:
            yield f"the plan is for a cluster with {where}{key} of {planned[key]}, and --cluster says {value}"


def read(options):
    plan = load(options.plan, PLAN)
    graph = within(options.graph, Graph, load(options.graph, GRAPH))
    if graph.name is not None and plan["graph"] != graph.name:
        raise BadInput(f"{options.plan} is of the graph {plan['graph']}, and {options.graph} is {graph.name}")
    return graph, plan


def main():
    options = parse()
    try:
        graph, plan = read(options)
        replay = Replay(graph, plan["cluster"], plan)
        if options.cluster:
            replay.violations += other_figures(read_cluster(options.cluster), plan["cluster"])
        violations = replay.run()
    except BadInput as error:
        print(f"check_plan.py: {error}", file=sys.stderr)
        return 2
    for violation in violations[:MOST_PRINTED]:
        print(violation)
    if violations:
        print(f"{options.plan}: refused: {len(violations)} violation{'s' if len(violations) > 1 else ''}")
        return 1
    best = replay.bound["best_s"]
    ratio = plan["makespan_s"] / best if best > 0 else 1
    print(f"{options.plan}: {len(plan['launches'])} launches hold, {plan['makespan_s'] * 1e3:.3f} ms, {ratio:.4f} of the bound, "
          f"{plan['peak_bytes']} of {plan['capacity']} bytes")
    return 0


def run():
    """A verdict that nobody can read is none: 2, unless it is the reader who wants no more."""
    code = 2
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        code = main()
        sys.stdout.flush()
        return code
    except OSError as error:
        if sys.stdout is not None:  # what is left in its buffer is written once more at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            return code
        print(f"check_plan.py: standard output: cannot be written: {error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
