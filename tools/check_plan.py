#!/usr/bin/env python3
"""Checks a plan that weft-schedule --plan wrote, against the graph it is of: nothing of the library is used.

    check_plan.py GRAPH PLAN [--cluster FILE]

GRAPH is in JSON (docs/op-graph.md; weft-schedule --graph-out writes it), PLAN as docs/plan-file.md describes. Checked are: every
operator runs once; merged are collectives of one kind and group, without a cycle; what an operator waits for has ended; each
resource does one thing at a time; lengths are those of the cost model (with contention); bytes live, peak and capacity; the
makespan; and the lower bound, which is computed again. Exit code 0: all holds; 1: it does not, the first violations are printed;
2: bad usage or input.
"""
import argparse
import sys

from plan_check.graph import BadInput, Graph, load
from plan_check.replay import Replay

MOST_PRINTED = 10


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("plan")
    parser.add_argument("--cluster", help="the cluster's JSON, which the plan's has to equal (default: the plan's own)")
    return parser.parse_args()


def read(options):
    plan = load(options.plan, "weft_plan")
    try:
        graph = Graph(load(options.graph, "weft_graph"))
        if plan["graph"] != graph.name:
            raise BadInput(f"{options.plan} is of the graph {plan['graph']}, and {options.graph} is {graph.name}")
        return graph, plan["cluster"], plan
    except (KeyError, TypeError, IndexError) as error:
        raise BadInput(f"{options.graph} or {options.plan}: not as its document describes: {error!r}") from error


def main():
    options = parse()
    try:
        graph, cluster, plan = read(options)
        replay = Replay(graph, cluster, plan)
        if options.cluster and load(options.cluster, None) != cluster:
            replay.violations.append(f"the plan is for another cluster than {options.cluster}")
        violations = replay.run()
    except BadInput as error:
        print(f"check_plan.py: {error}", file=sys.stderr)
        return 2
    except (KeyError, TypeError, ZeroDivisionError) as error:
        print(f"check_plan.py: {options.plan}: not as docs/plan-file.md describes: {error!r}", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main())
