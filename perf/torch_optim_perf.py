#!/usr/bin/env python3
"""A training step's end in PyTorch with weft.optim and weft.amp beside torch's own, in one run. Exit 1: the bar is missed.

    source scripts/lib.sh && make_python
    build/python/bin/python perf/torch_optim_perf.py [--tensors 24] [--shape 1024x2048] [--rounds 15] [--threads 2]
    python3 perf/torch_optim_perf.py --device cuda --tensors 100 --shape 4096x2048

f32 gradients of a scaled loss, in --tensors tensors of --shape, are unscaled and looked at, clipped (active), then AdamW,
a bf16 copy of the parameters, gradients zeroed. Sides take turns, and who begins changes from round to round.
  torch    GradScaler.unscale_(), clip_grad_norm_(), GradScaler.step() of AdamW(fused=True), update(), _foreach_copy_() to
           the copies, zero_grad(set_to_none=False)
  calls    the same calls of weft's: unscale_(), clip_grad_norm_(), step() with copies, update(), zero_grad()
  weft     AdamW(max_norm=, zero_gradients=, copies=), step(), update(), zero_grad(): two passes over memory in all
  freed    torch with zero_grad(set_to_none=True), whose price backward pays: shown, not judged
On a GPU a time is from the first call to the end of all that it enqueued, and `host` is until the last call returns.
At the end the parameters of all sides are compared.
"""
import argparse
import json
import statistics
import sys
import time

import torch
import weft

from interleaved import interleaved

SCALE, MAX_NORM = 1024.0, 1.0
BARS = {"cpu": 1.8, "cuda": 1.3}  # torch's time over weft's


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=24, help="parameters (default: %(default)s)")
    parser.add_argument("--shape", type=lambda text: tuple(map(int, text.split("x"))), default=(1024, 2048), help="of each, such as 1024x2048 (default: %(default)s)")
    parser.add_argument("--device", default="cpu", choices=BARS, help="of the tensors (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of torch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="in turns (default: %(default)s)")
    parser.add_argument("--json", help="file to append a line per side to")
    return parser.parse_args()


class Side:
    def __init__(self, sources, scaler):
        torch.manual_seed(1)
        device = sources[0].device
        self.sources = sources
        self.parameters = [torch.nn.Parameter(torch.randn_like(source)) for source in sources]
        self.copies = [p.detach().bfloat16() for p in self.parameters]
        self.scaler = scaler(device.type, init_scale=SCALE)
        self.scaler.scale(torch.ones((), device=device))  # torch's makes its tensors here
        for p in self.parameters:
            p.grad = torch.zeros_like(p)
        self.host_ms = []

    def __call__(self):
        if not self.sources[0].is_cuda:
            return self.step()
        start = time.perf_counter()
        self.step()
        self.host_ms.append((time.perf_counter() - start) * 1e3)
        torch.cuda.synchronize()

    def prepare(self):
        for p, source in zip(self.parameters, self.sources):
            if p.grad is None:
                p.grad = source.clone()
            else:
                p.grad.copy_(source)
        if self.sources[0].is_cuda:
            torch.cuda.synchronize()


class Torch(Side):
    def __init__(self, sources, set_to_none=False):
        super().__init__(sources, torch.amp.GradScaler)
        self.optimizer = torch.optim.AdamW(self.parameters, fused=True)
        self.set_to_none = set_to_none

    def step(self):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.parameters, MAX_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        with torch.no_grad():
            torch._foreach_copy_(self.copies, self.parameters)
        self.optimizer.zero_grad(set_to_none=self.set_to_none)


class Calls(Side):
    def __init__(self, sources):
        super().__init__(sources, weft.amp.GradScaler)
        self.optimizer = weft.optim.AdamW(self.parameters, copies=self.copies)

    def step(self):
        self.scaler.unscale_(self.optimizer)
        weft.clip_grad_norm_(self.parameters, MAX_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=False)


class Weft(Side):
    def __init__(self, sources):
        super().__init__(sources, weft.amp.GradScaler)
        self.optimizer = weft.optim.AdamW(self.parameters, copies=self.copies, max_norm=MAX_NORM, zero_gradients=True)

    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def farthest(mine, theirs):
    return max((one - other).abs().max().item() for one, other in zip(mine.parameters, theirs.parameters))


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    generator = torch.Generator(options.device).manual_seed(2)
    sources = [torch.randn(options.shape, generator=generator, device=options.device) * SCALE for _ in range(options.tensors)]
    sides = {"torch": Torch(sources), "calls": Calls(sources), "weft": Weft(sources), "freed": Torch(sources, True)}
    count = sum(source.numel() for source in sources)
    bar = BARS[options.device]
    where = f"{options.threads} threads" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"# {count} parameters in {options.tensors} tensors, {where}, {options.rounds} rounds, torch {torch.__version__}")
    times = interleaved(sides, options.rounds)
    ours = statistics.median(times["weft"])
    for name, each in times.items():
        ratio = statistics.median(each) / ours
        verdict = f"bar {bar}: {'PASS' if ratio >= bar else 'FAIL'}" if name == "torch" else ""
        host = f"host {statistics.median(sides[name].host_ms[1:]):8.3f} ms   " if sides[name].host_ms else ""
        far = farthest(sides[name], sides["torch"])
        print(f"{name:6} median {statistics.median(each):8.2f} ms   best {min(each):8.2f} ms   {host}{ratio:5.2f} x weft   "
              f"parameters within {far:.1e} of torch's   {verdict}", flush=True)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                line = {"program": "torch_optim_perf", "side": name, "median_ms": statistics.median(each), "best_ms": min(each),
                        "count": count, "device": options.device, "threads": options.threads}
                if sides[name].host_ms:
                    line["host_ms"] = statistics.median(sides[name].host_ms[1:])
                file.write(json.dumps(line) + "\n")
    equal = all(farthest(side, sides["torch"]) < 1e-5 for side in sides.values())
    if not equal:
        print("parameters differ by more than 1e-5")
    return 0 if equal and statistics.median(times["torch"]) / ours >= bar else 1


if __name__ == "__main__":
    sys.exit(main())
