#!/usr/bin/env python3
"""check_trainer.py TRAIN_GPT: the trainer on one GPU beside the CPU's: losses of 100 steps, a graph's step beside the eager one,
16-bit types, and two ranks on the one GPU. Prints a line for each and fails when one does not hold. Correctness only: nothing
here is measured."""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

MODEL = "--layers 4 --width 128 --heads 4 --seq 64 --batch 8 --lr 0.001 --sample 0".split()
STEPS = 100


def start(program, arguments, folder, name, extra=None):
    """A run that writes its report and its state under `name`."""
    command = [program, *MODEL, "--steps", str(STEPS), "--report-json", str(folder / f"{name}.json"), "--save", str(folder / name),
               *arguments]
    return subprocess.Popen(command, env={**os.environ, **(extra or {})}, stdout=subprocess.DEVNULL)


def finish(processes, limit):
    for process in processes:
        try:
            if process.wait(timeout=limit) != 0:
                raise SystemExit(f"{' '.join(process.args)}: exit code {process.returncode}")
        except subprocess.TimeoutExpired:
            for one in processes:
                one.kill()
            raise SystemExit(f"{' '.join(process.args)}: did not end in {limit} s") from None


def losses(folder, name):
    return json.loads((folder / f"{name}.json").read_text())["runs"][0]["losses"]


def two_ranks(program, folder, limit):
    """As torchrun starts them. NCCL takes one GPU for two ranks of one host for a mistake, so each is a host of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        extra = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NCCL_HOSTID": f"weft{rank}"}
        ranks.append(start(program, ["--device", "cuda"], folder, "two", extra))
    finish(ranks, limit)


def compare(what, got, expected, tolerance):
    worst = max(abs(a - b) for a, b in zip(got, expected, strict=True))
    good = worst <= tolerance
    print(f"{what}: largest difference of a loss {worst:.2e}, allowed {tolerance:g}: {'holds' if good else 'FAILS'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="train_gpt of a build with CUDA")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = lambda label, *arguments: finish([start(options.program, list(arguments), folder, label)], options.limit)
        run("cpu")
        run("eager", "--device", "cuda")
        run("graph", "--device", "cuda", "--cuda-graph")
        for precision in ("bf16", "fp16"):
            run(precision, "--device", "cuda", "--precision", precision, "--clip", "1")
            run(f"{precision}-graph", "--device", "cuda", "--precision", precision, "--clip", "1", "--cuda-graph")
            run(f"{precision}-cpu", "--precision", precision, "--clip", "1")
        two_ranks(options.program, folder, options.limit)
        good = compare("fp32 beside the CPU", losses(folder, "eager"), losses(folder, "cpu"), 1e-3)
        for precision in ("bf16", "fp16"):
            # Activations have 16 bits there, and 32 on the CPU.
            good &= compare(f"{precision} beside the CPU", losses(folder, precision), losses(folder, f"{precision}-cpu"), 5e-2)
        good &= compare("two ranks on one GPU beside the CPU", losses(folder, "two"), losses(folder, "cpu"), 1e-3)
        for eager, graph in (("eager", "graph"), ("bf16", "bf16-graph"), ("fp16", "fp16-graph")):
            equal = (folder / eager).read_bytes() == (folder / graph).read_bytes() and losses(folder, eager) == losses(folder, graph)
            print(f"{graph}: weights, states and losses {'have' if equal else 'DO NOT HAVE'} the bits of {eager}")
            good &= equal
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
