#!/usr/bin/env python3
"""train_gpt on two test hosts (tests/hosts) of one rank each, beside itself over blocking MPI and torch's DDP over Gloo on the same model.

    perf/hosts_trainer.py [--rate 1gbit] [--rounds 3] [--steps 16]

A round starts `train_gpt --compare`, which takes turns step by step between ways to communicate, then torch. Every figure is the median of
the rounds' medians. Bars: a step takes at most 1.10 times its bound, max(compute, compute before the first bucket + communication), with
compute that of steps that send nothing; at least 95 % of what can be hidden is hidden; blocking MPI and torch's DDP take longer. The hosts
have a core each, which computes and is TCP's as well: its time is not taken out.
Exit code: 0 where all bars hold; 1 where not; 77 where test hosts are not permitted.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/hosts"), str(ROOT / "perf")]
import hosts as test_hosts  # noqa: E402
import starts  # noqa: E402

STEP_BAR, HIDDEN_BAR = 1.10, 95


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit", help="of the link, as tc writes rates (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=32 * 1024, help="bytes that may pass the link at once (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way, taking turns; medians count (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=16, help="of a run (default: %(default)s)")
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="build folder with the programs (default: %(default)s)")
    parser.add_argument("--python", default=str(ROOT / "build/python/bin/python"), help="one that has torch")
    return parser.parse_args()


def weft(options, hosts):
    """run → its figures."""
    with tempfile.TemporaryDirectory(dir=options.build) as folder:  # not in memory, which hosts do not share
        report = pathlib.Path(folder, "report.json")
        trainer = [str(pathlib.Path(options.build, "bin/train_gpt")), "--steps", str(options.steps), "--compare", "--sample", "0",
                   "--report-json", str(report)]
        subprocess.run(starts.mpirun(hosts, 1, trainer), env=starts.mpi_environment(), stdout=subprocess.DEVNULL, timeout=600, check=True)
        return {run["name"]: run for run in json.loads(report.read_text())["runs"]}


def torch(options, hosts):
    program = [options.python, str(ROOT / "perf/peers/torch_gpt.py"), "gloo", str(options.steps)]
    ranks = starts.torchrun(hosts, 1, program, {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}, stdout=subprocess.PIPE, text=True)
    texts = [rank.communicate(timeout=600)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(f"torch left with {[rank.returncode for rank in ranks]}")
    return json.loads(texts[0])


def judge(what, value, holds):
    print(f"{'PASS' if holds else 'FAIL'}: {what}: {value}")
    return holds


def main():
    options = arguments()
    test_hosts.enter_world()
    try:
        hosts = test_hosts.Hosts(2, test_hosts.Link(options.rate, options.burst))
    except OSError as refused:
        print(f"hosts_trainer: the hosts cannot be made: {str(refused).splitlines()[0]}", file=sys.stderr)
        return 77
    runs, peers = [], []
    with hosts:
        for _ in range(options.rounds):
            runs.append(weft(options, hosts))
            if os.path.exists(options.python):
                peers.append(torch(options, hosts))
    names = list(runs[0])

    def of(name, key):
        return statistics.median(run[name][key] for run in runs)

    print(f"# {options.rounds} rounds of {options.steps} steps, two hosts at {options.rate}; ms")
    for name in names:
        print(f"{name:>24}  step {of(name, 'step_ms'):8.1f}  bound {of(name, 'bound_ms'):8.1f}  communication {of(name, 'communication_ms'):8.1f}")
    ours = of("weft", "step_ms")
    ratio = statistics.median(run["weft"]["step_ms"] / run["weft"]["bound_ms"] for run in runs)
    hidden = statistics.median(100 * run["weft"]["hidden_ms"] / run["weft"]["hideable_ms"] for run in runs)
    held = [judge(f"step over its bound, at most {STEP_BAR}", f"{ratio:.3f}", ratio <= STEP_BAR),
            judge(f"% hidden of what can be, at least {HIDDEN_BAR}", f"{hidden:.1f}", hidden >= HIDDEN_BAR)]
    blocking = next((name for name in names if name.startswith("MPI")), None)
    if blocking:
        held.append(judge(f"{blocking} over weft", f"{of(blocking, 'step_ms') / ours:.2f}", of(blocking, "step_ms") > ours))
    if peers:
        step, alone = (statistics.median(peer[key] for peer in peers) for key in ("step_ms", "compute_ms"))
        print(f"{'torch DDP, gloo':>24}  step {step:8.1f}  without sending {alone:8.1f}  ({peers[0]['parameters']} parameters)")
        held.append(judge("torch DDP over gloo, over weft", f"{step / ours:.2f}", step > ours))
    else:
        print(f"# torch: left out, {options.python} is missing")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
