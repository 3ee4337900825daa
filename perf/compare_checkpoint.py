#!/usr/bin/env python3
"""Weft's checkpoint saves beside torch.save and safetensors' save_file, of the same tensors into the same folder, in
interleaved rounds. Exit 1: a bar is missed: Weft's caller is held up for longer than another's.

    build/python/bin/python -m pip install safetensors
    build/python/bin/python perf/compare_checkpoint.py [--mib 512] [--folder FOLDER] [--rounds 3]

Weft's are checksummed and on the disk when they are done, so the others' files are synced as well; their callers wait for
all of it, Weft's for a copy in memory.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import save_file

BAR = 1.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="size of the model (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="saves of each, in turns (default: %(default)s)")
    parser.add_argument("--folder", default="build/checkpoint_perf", help="where files are written: the disk that is measured (default: %(default)s)")
    parser.add_argument("--bin", default="build/release/bin", help="folder with the programs (default: %(default)s)")
    return parser.parse_args()


def torch_save(tensors, path):
    torch.save(tensors, path)


def safetensors_save(tensors, path):
    save_file(tensors, path)


def sync(path):
    for name in (path, path.parent):
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def time_save(save, tensors, folder):
    """Seconds to a new file on the disk that takes the last one's place."""
    final = folder / "saved"
    new = folder / "saved.new"
    start = time.perf_counter()
    save(tensors, new)
    sync(new)
    os.replace(new, final)
    sync(final)
    return time.perf_counter() - start


def time_weft(options, ranks, folder):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as report:
        subprocess.run([f"{options.bin}/checkpoint_perf", "--mib", str(options.mib), "--ranks", str(ranks), "--rounds", "3",
                        "--folder", str(folder), "--json", report.name], check=True, stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(report.name).read_text())


def main():
    options = arguments()
    root = pathlib.Path(options.folder)
    root.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    tensors = {f"layers.{i}.weight": (torch.arange(1 << 20) % 1021).float().mul_(1e-3).reshape(1024, 1024)
               for i in range(options.mib // 4)}
    sides = {"torch.save": torch_save, "safetensors": safetensors_save}
    times = {name: [] for name in ("weft", "weft, 2 ranks", *sides)}
    reports = {1: [], 2: []}
    try:
        for _ in range(options.rounds):
            for ranks, name in ((1, "weft"), (2, "weft, 2 ranks")):
                folder = root / f"weft{ranks}"
                report = time_weft(options, ranks, folder)
                reports[ranks].append(report)
                times[name].append(report["durable_s"])
                shutil.rmtree(folder)
            for name, save in sides.items():
                times[name].append(time_save(save, tensors, root))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    size = options.mib * 2**20 * 1e-9
    ours = statistics.median(one["blocked_s"] for one in reports[1])
    good = True
    print(f"# {options.mib} MiB into {root}, {options.rounds} rounds, torch {torch.__version__}; seconds until it is on the disk")
    for name, each in times.items():
        middle = statistics.median(each)
        verdict = ""
        if name in sides:
            good = good and middle >= BAR * ours
            verdict = f"the caller waits {middle / ours:5.2f} x as long as Weft's, bar {BAR:.1f}: {'PASS' if middle >= BAR * ours else 'FAIL'}"
        print(f"  {name:14} {middle:6.3f} s  {size / middle:6.2f} GB/s  {verdict}")
    for ranks, each in reports.items():
        blocked = statistics.median(one["blocked_s"] for one in each)
        slower = statistics.median(one["step_beside_s"] / one["step_s"] for one in each)
        print(f"# weft, {ranks} rank(s): the caller is held up for {blocked * 1e3:.0f} ms ({size / blocked:.1f} GB/s); "
              f"a step beside a save takes {slower:.2f} x as long as one alone")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
