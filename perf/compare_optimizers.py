#!/usr/bin/env python3
"""Weft's optimizer step beside torch's and DeepSpeed's, in one process and interleaved rounds. Exit 1: a bar is missed.

    bash scripts/python.sh && build/python/bin/python perf/compare_optimizers.py [--count 50000000] [--rounds 7]

step: f32 gradients of a scaled loss are unscaled and looked at, clipped (active), AdamW, bf16 copy, gradients zeroed.
    torch: _amp_foreach_non_finite_check_and_unscale_, clip_grad_norm_, AdamW(fused=True), copy_, zero_grad(set_to_none=False)
many: AdamW on --tensors small f32 tensors of --elements each, on one thread and on --threads; torch: fused and foreach.
update: AdamW on f32 parameters alone. DeepSpeed's, DeepSpeedCPUAdam, is compared where it is installed
    (build/python/bin/python -m pip install deepspeed ninja); it is compiled at first use.
"""
import argparse
import ctypes
import json
import statistics
import sys

import torch

from interleaved import interleaved

SCALE = 1024.0
STEP_BAR = 1.8
UPDATE_BAR = 1.0
MANY_BAR = 1.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000_000, help="parameters")
    parser.add_argument("--threads", type=int, default=2, help="of each side (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="in turns (default: %(default)s)")
    parser.add_argument("--tensors", type=int, default=10_000, help="small tensors")
    parser.add_argument("--elements", type=int, default=256, help="elements of each")
    parser.add_argument("--library", default="build/release/lib/libweft_optimizer_peer.so", help="Weft's side, as built (default: %(default)s)")
    parser.add_argument("--json", help="file to append a line per side to")
    return parser.parse_args()


class Weft:
    """perf/optimizer/work_c.cpp's functions."""

    def __init__(self, options, plain):
        self.library = ctypes.CDLL(options.library)
        self.library.weft_optimizer_create.restype = ctypes.c_void_p
        self.library.weft_optimizer_create.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
        for name in ("step", "update", "write_gradients"):
            getattr(self.library, f"weft_optimizer_{name}").argtypes = [ctypes.c_void_p]
        self.work = self.library.weft_optimizer_create(options.count, options.threads, int(plain))
        if not self.work:
            raise MemoryError("weft_optimizer_create: not enough memory")
        self.run = self.library.weft_optimizer_update if plain else self.library.weft_optimizer_step

    def prepare(self):
        self.library.weft_optimizer_write_gradients(self.work)

    def __call__(self):
        self.run(self.work)


class Torch:
    """One parameter, f32 gradients that prepare() writes, and a fused AdamW."""

    def __init__(self, options, plain):
        self.plain = plain
        self.parameter = torch.nn.Parameter(torch.ones(options.count))
        self.source = (torch.arange(options.count) % 256).float() * 0.125 - 15
        self.parameter.grad = self.source.clone()
        self.half = torch.ones(options.count, dtype=torch.bfloat16)
        self.found_inf = torch.zeros(1)
        self.inv_scale = torch.full((1,), 1 / SCALE)
        self.optimizer = self.make()

    def make(self):
        return torch.optim.AdamW([self.parameter], fused=True)

    def prepare(self):
        self.parameter.grad.copy_(self.source)

    def __call__(self):
        if self.plain:
            self.optimizer.step()
            return
        self.found_inf.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_([self.parameter.grad], self.found_inf, self.inv_scale)
        torch.nn.utils.clip_grad_norm_([self.parameter], 1.0)
        if self.found_inf.item() == 0:
            self.optimizer.step()
        with torch.no_grad():
            self.half.copy_(self.parameter)
        self.optimizer.zero_grad(set_to_none=False)


class WeftMany:
    """Many small tensors."""

    def __init__(self, options, threads):
        self.library = ctypes.CDLL(options.library)
        create = self.library.weft_many_tensors_create
        create.restype = ctypes.c_void_p
        create.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t]
        self.update = self.library.weft_many_tensors_update
        self.update.argtypes = [ctypes.c_void_p]
        self.work = create(options.tensors, options.elements, threads)
        if not self.work:
            raise MemoryError("weft_many_tensors_create: not enough memory")

    def prepare(self):
        pass

    def __call__(self):
        self.update(self.work)


class TorchMany:
    """The same, by the implementation that `how` asks for."""

    def __init__(self, options, **how):
        parameters = [torch.nn.Parameter(torch.zeros(options.elements)) for _ in range(options.tensors)]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.125)
        self.optimizer = torch.optim.AdamW(parameters, **how)

    def prepare(self):
        pass

    def __call__(self):
        self.optimizer.step()


class DeepSpeed(Torch):
    """The same with DeepSpeedCPUAdam."""

    def make(self):
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        return DeepSpeedCPUAdam([self.parameter], lr=1e-3, weight_decay=0.01, adamw_mode=True)


def judge(options, what, times, bar):
    ours = statistics.median(times["weft"])
    good = True
    for name, each in times.items():
        middle = statistics.median(each)
        ratio = middle / ours
        verdict = ""
        if name != "weft":
            verdict = f"bar {bar:.1f}: {'PASS' if ratio >= bar else 'FAIL'}"
            good = good and ratio >= bar
        print(f"{what:8} {name:10} median {middle:8.2f} ms   best {min(each):8.2f} ms   {ratio:5.2f} x weft  {verdict}", flush=True)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps({"program": "compare_optimizers", "what": what, "side": name, "median_ms": middle,
                                       "best_ms": min(each), "count": options.count, "threads": options.threads}) + "\n")
    return good


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    print(f"# {options.count} parameters, {options.threads} threads, {options.rounds} rounds, torch {torch.__version__}")
    good = judge(options, "step", interleaved({"weft": Weft(options, False), "torch": Torch(options, False)},
                                              options.rounds), STEP_BAR)
    for threads in (options.threads, 1):
        sides = {"weft": WeftMany(options, threads), "fused": TorchMany(options, fused=True),
                 "foreach": TorchMany(options, foreach=True)}
        good = judge(options, f"many, {threads}", interleaved(sides, options.rounds), MANY_BAR) and good
    sides = {"weft": Weft(options, True), "torch": Torch(options, True)}
    try:
        sides["deepspeed"] = DeepSpeed(options, True)
    except Exception as error:  # whatever its build says
        print(f"# DeepSpeedCPUAdam: not compared: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    return 0 if judge(options, "update", interleaved(sides, options.rounds), UPDATE_BAR) and good else 1


if __name__ == "__main__":
    sys.exit(main())
