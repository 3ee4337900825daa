#!/usr/bin/env python3
"""Training steps under weft's wrappers beside torch's, on a link that takes half as long as computing: what each hides.

    source scripts/lib.sh && make_python
    build/python/bin/python perf/torch_wrappers_perf.py [--layers 16] [--batch 128] [--rounds 9]

Two pinned ranks of one thread each train a chain of linear layers of width 1024. First a step without communication is timed; then the
link is emulated (weft.emulate_link), 50 us and so fast that one all_reduce of all gradients takes half of that step. Sides take turns of three
steps, of which the last two count, as what a step sends may travel until the next; all with weft.optim.AdamW:
  ddp, weft.ddp     torch's and weft's DistributedDataParallel
  zero, weft.zero2  ZeroRedundancyOptimizer over torch's DDP, and weft.ZeroOptimizer(stage=2, wait_by_unit=True)
  fsdp2, weft.zero3 torch's fully_shard, a unit a layer, and weft.ZeroOptimizer(stage=3)
  gloo …            torch's three on gloo
"hidden" is the part of what the link takes for a side's collectives that its step is not longer than computing by; zero3 and fsdp2 send 1.5 times
as much. At a step's ends nothing is computed that could hide anything: the first layer's gradients come last, and zero3 waits for its parameters as well,
1/layers of an all_reduce for either. "of hideable" leaves that out (docs/decisions/0002), and is judged: 1 - (exposed - ends) / (sent - ends). A collective is work for the core that computes, too, which nothing can hide either: weft's sides are also timed on a group without link ("bare"),
and "beside work" is hidden of what the link takes beside that work: 1 - (step - bare) / (sent - max(0, bare - compute)); no bar is on it. torch's sides are on
weft's back end and on gloo. A step cannot be faster than computing, which is the most that any side could be faster than another.
Gloo moves its bytes through TCP, so its ranks are on two hosts of one machine (tests/hosts), whose link tc holds to the rate of the emulated one (without its latency;
TCP and the hosts' bridge take time of the cores that compute): networks of their own are all that the two processes do not share.
Exit 1: a bar is missed (of hideable >= 90 %, 5 % faster than torch's side on weft, 1.5 times the same on gloo); FAIL names which. 77: no test hosts here.
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import weft
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from interleaved import interleaved

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests/hosts"))
import hosts as test_hosts

WIDTH, LATENCY, STEPS = 1024, 50e-6, 2
BURST = 128 * 1024
LEAST_HIDDEN, LEAST_GAIN, LEAST_OVER_GLOO = 0.9, 1.05, 1.5
PAIRS = {"weft.ddp": "ddp", "weft.zero2": "zero", "weft.zero3": "fsdp2"}  # torch's, on weft; "gloo NAME" is the same on gloo


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16, help="of the model (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="samples of a rank (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="in turns (default: %(default)s)")
    parser.add_argument("--json", help="file to append a line per side to")
    return parser.parse_args()


def make_model(options):
    torch.manual_seed(0)
    layers = [layer for _ in range(options.layers) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU())]
    return nn.Sequential(*layers)


def adamw(parameters):
    return weft.optim.AdamW(parameters, lr=1e-4)


class Side:
    """A model in a wrapper, and its optimizer; a call is so many STEPS, after one that is not timed."""

    def __init__(self, options, wrap, optimizer, sent=0.0, ends=0.0):
        model = make_model(options)
        self.inputs = torch.randn(options.batch, WIDTH)
        self.model = wrap(model)
        self.optimizer = optimizer(self.model)
        self.sent = sent  # times a ring all_reduce of the gradients
        self.ends = ends  # of it, what no computing can hide

    def prepare(self):
        dist.barrier(group=dist.group.WORLD)
        self.step()

    def __call__(self):
        for _ in range(STEPS):
            self.step()

    def step(self):
        self.model(self.inputs).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)


def replicated(group):
    return lambda model: DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)


def sharded_by_torch(group):
    mesh = DeviceMesh.from_group(group, "cpu")

    def wrap(model):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    return wrap


def zero(group, stage):
    return lambda model: weft.ZeroOptimizer(
        model, weft.optim.AdamW, stage=stage, process_group=group, wait_by_unit=stage != 3, lr=1e-4
    )


def zero_of_torch(group):
    return lambda model: ZeroRedundancyOptimizer(model.parameters(), optimizer_class=weft.optim.AdamW, process_group=group, lr=1e-4)


def sides_on(options, group, bare, gloo):
    plain = lambda model: adamw(model.parameters())
    as_it_is = lambda model: model
    layer = 1 / options.layers
    return {
        "compute": Side(options, as_it_is, plain),
        "ddp": Side(options, replicated(group), plain, 1.0),
        "weft.ddp": Side(options, lambda model: weft.DistributedDataParallel(model, group, wait_in_step=True), plain, 1.0),
        "zero": Side(options, replicated(group), zero_of_torch(group), 1.5),
        "weft.zero2": Side(options, as_it_is, zero(group, 2), 1.0),
        "fsdp2": Side(options, sharded_by_torch(group), plain, 1.5),
        "weft.zero3": Side(options, as_it_is, zero(group, 3), 1.5, layer),
        "gloo ddp": Side(options, replicated(gloo), plain, 1.0),
        "gloo zero": Side(options, replicated(gloo), zero_of_torch(gloo), 1.5),
        "gloo fsdp2": Side(options, sharded_by_torch(gloo), plain, 1.5),
        "weft.ddp bare": Side(options, lambda model: weft.DistributedDataParallel(model, bare, wait_in_step=True), plain),
        "weft.zero2 bare": Side(options, as_it_is, zero(bare, 2)),
        "weft.zero3 bare": Side(options, as_it_is, zero(bare, 3)),
    }


def slowest(milliseconds):
    values = torch.tensor(milliseconds, dtype=torch.float64)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return values.tolist()


def step_times(sides, rounds):
    return {name: [one / STEPS for one in slowest(each)] for name, each in interleaved(sides, rounds).items()}


CLONE_NEWNET = 0x40000000


def move_to(namespace):
    """This process, from now on, to the network of a test host. Its other namespaces stay, shared memory among them."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace, "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}: {os.strerror(ctypes.get_errno())}")
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"


def hold_link_to(speed):
    """What leaves this host, bytes a second."""
    subprocess.run(["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{int(8 * speed)}bit", "burst", str(BURST), "latency", "20ms"], check=True)


def measure(rank, options, folder, networks):
    move_to(networks[rank])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("weft", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    bytes_sent = 4 * WIDTH * WIDTH * options.layers
    alone = Side(options, lambda model: model, lambda model: adamw(model.parameters()))
    compute = statistics.median(step_times({"compute": alone}, 5)["compute"])
    speed = bytes_sent / (0.5e-3 * compute)
    weft.emulate_link(f"{LATENCY * 1e6:.0f}us:{speed / 1e6:.1f}MB/s")
    hold_link_to(speed)
    sides = sides_on(options, dist.new_group(), dist.group.WORLD, dist.new_group(backend="gloo"))
    times = step_times(sides, options.rounds)
    good = tell(options, times, sides, 1e3 * bytes_sent / speed) if rank == 0 else True
    dist.barrier()
    dist.destroy_process_group()
    if not good:
        sys.exit(1)


def tell(options, times, sides, link_ms):
    medians = {name: statistics.median(each) for name, each in times.items()}
    print(f"# {options.layers} x Linear({WIDTH}, {WIDTH}), batch {options.batch}, 2 ranks, {options.rounds} rounds; an all_reduce of all gradients takes {link_ms:.0f} ms")
    print(f"# {'':12} {'step ms':>9} {'exposed':>9} {'hidden':>8}   of hideable; beside work; beside")
    good = True
    for name, step in medians.items():
        exposed, sent = step - medians["compute"], sides[name].sent * link_ms
        hidden = 1 - exposed / sent if sent else None
        words = []
        if name in PAIRS:
            gain, over_gloo = medians[PAIRS[name]] / step, medians[f"gloo {PAIRS[name]}"] / step
            bare = medians[f"{name} bare"]
            ends = sides[name].ends * link_ms
            of_hideable = 1 - (exposed - ends) / (sent - ends)
            could = 1 - (step - bare) / (sent - max(0, bare - medians["compute"]))
            bars = {"of hideable": of_hideable >= LEAST_HIDDEN, PAIRS[name]: gain >= LEAST_GAIN, "gloo": over_gloo >= LEAST_OVER_GLOO}
            missed = [bar for bar, holds in bars.items() if not holds]
            good = good and not missed
            words = [f"{100 * of_hideable:5.1f}%  {100 * could:5.1f}%  {PAIRS[name]} {gain:.3f} x, gloo {over_gloo:.3f} x (at most {medians[f'gloo {PAIRS[name]}'] / medians['compute']:.3f} x), "
                     + (f"FAIL: {', '.join(missed)}" if missed else "PASS")]
        share = f"{100 * hidden:7.1f}%" if hidden is not None else f"{'':>8}"
        print(f"  {name:12} {step:9.1f} {exposed:9.1f} {share}   {' '.join(words)}", flush=True)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                line = {"program": "torch_wrappers_perf", "side": name, "step_ms": step, "exposed_ms": exposed, "hidden": hidden}
                file.write(json.dumps(line) + "\n")
    return good


def main():
    options = arguments()
    test_hosts.enter_world()
    hosts = test_hosts.Hosts(2, test_hosts.Link("100gbit", 2 * BURST))
    networks = [f"/proc/{host.pid}/ns/net" for host in hosts]
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.start_processes(measure, (options, folder, networks), nprocs=2, start_method="fork")
        except mp.ProcessExitedException:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
