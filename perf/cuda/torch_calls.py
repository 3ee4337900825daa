#!/usr/bin/env python3
"""torch_calls.py: microseconds that the host is busy with a collective of torch.distributed, one rank, on each back end in turn
in interleaved rounds. Prints a table; --json appends one line a call."""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time


def calls(dist, x, y):
    """Names and what to call; async ones wait on the stream, as DDP does."""
    return {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_reduce, async and wait": lambda: dist.all_reduce(x, async_op=True).wait(),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(y, x),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(y, x),
        "broadcast": lambda: dist.broadcast(x, 0),
    }


def serve(options):
    """In a process of its own, since a process has one default group: a round for each line that comes in."""
    import torch
    import torch.distributed as dist

    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    if options.device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(options.serve)
    x, y = (torch.ones(options.elements, device=options.device) for _ in range(2))
    table = calls(dist, x, y)
    for line in sys.stdin:
        call = table[line.strip()]
        start = time.perf_counter()
        for _ in range(options.calls):
            call()
        took = time.perf_counter() - start
        synchronize()
        time.sleep(0.003)  # what watches calls takes them away
        print(took / options.calls * 1e6, flush=True)
    dist.destroy_process_group()


def start(backend, arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    there = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    return subprocess.Popen([sys.executable, __file__, *arguments, "--serve", backend], env={**os.environ, **there}, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(process, name):
    process.stdin.write(name + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        sys.exit(f"torch_calls: a back end's process ended with exit code {process.wait()}, see above")
    return float(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="of the tensors (default: %(default)s)")
    parser.add_argument("--elements", type=int, default=256, help="of a tensor (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=300, help="a round")
    parser.add_argument("--rounds", type=int, default=20, help="in turns (default: %(default)s)")
    parser.add_argument("--json", help="file to append one JSON line a call to")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options)
    stock = "nccl" if options.device == "cuda" else "gloo"
    processes = {backend: start(backend, sys.argv[1:]) for backend in (stock, "weft")}
    print(f"{'call':30} {stock + ' us':>10} {'weft us':>10} {'ratio':>7}")
    for name in calls(None, None, None):
        times = {backend: [] for backend in processes}
        for round_number in range(-2, options.rounds):
            for backend, process in processes.items():
                took = ask(process, name)
                if round_number >= 0:
                    times[backend].append(took)
        theirs, own = (statistics.median(times[backend]) for backend in (stock, "weft"))
        print(f"{name:30} {theirs:10.2f} {own:10.2f} {theirs / own:7.2f}", flush=True)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as out:
                out.write(json.dumps({"program": "torch_calls", "name": name, "device": options.device, "stock": stock,
                                      "stock_us": theirs, "weft_us": own}) + "\n")
    for process in processes.values():
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
