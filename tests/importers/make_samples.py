#!/usr/bin/env python3
"""Makes tests/importers/data: what torch writes of one training step of a small model on two gloo ranks (rank 0's).

    python tests/importers/make_samples.py [FOLDER]

kineto_*.json come from torch.profiler, chakra_*.json from ExecutionTraceObserver; ddp and fsdp2 of the same model.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

RANKS = 2
WIDTH = 64


def model_of(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(4 * WIDTH, WIDTH))
    if kind == "ddp":
        return DistributedDataParallel(model, bucket_cap_mb=0.08)
    return fully_shard(model[:2], mesh=init_device_mesh("cpu", (RANKS,)))


def step(model, optimizer, data):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()


def run(rank, kind, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = model_of(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    data = torch.randn(16, WIDTH)
    for _ in range(3):
        step(model, optimizer, data)

    observer = ExecutionTraceObserver().register_callback(f"{folder}/chakra_{kind}.json.{rank}")
    observer.start()
    step(model, optimizer, data)
    observer.stop()
    observer.unregister_callback()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step(model, optimizer, data)
    profiler.export_chrome_trace(f"{folder}/kineto_{kind}.json.{rank}")
    dist.destroy_process_group()


def shorten(trace):
    """Leaves out what belongs to the machine, strides of a profile's arguments, numbers that lead from an execution trace
    to a profile, and attributes that are empty."""
    trace.pop("traceName", None)
    for event in trace.get("traceEvents", []):
        event.get("args", {}).pop("Input Strides", None)
    for node in trace.get("nodes", []):
        node["attrs"] = [attribute for attribute in node["attrs"]
                         if attribute["name"] != "rf_id" and attribute["value"] not in ("", 0)]


def keep(folder, name):
    """Rank 0's."""
    with open(f"{folder}/{name}.0", encoding="utf-8") as file:
        trace = json.load(file)
    shorten(trace)
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        json.dump(trace, file, separators=(",", ":"))
        file.write("\n")
    for rank in range(RANKS):
        os.remove(f"{folder}/{name}.{rank}")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
    os.makedirs(folder, exist_ok=True)
    for kind in ("ddp", "fsdp2"):
        mp.spawn(run, args=(kind, folder), nprocs=RANKS)
        for tool in ("kineto", "chakra"):
            keep(folder, f"{tool}_{kind}.json")


if __name__ == "__main__":
    main()
