#!/usr/bin/env python3
"""weft.layers beside the same of torch's ops, eager, in one run. Exit 1: one of weft's is slower by more than 5 %.

    source scripts/lib.sh && make_python
    build/python/bin/python perf/torch_layers_perf.py [--rounds 15] [--threads 2] [--device cuda --shapes 8192x4096]

Forward and backward of a matrix of rows x columns with weight and bias that need gradients. Sides take turns; medians.
"""
import argparse
import json
import statistics
import sys

import torch
import torch.nn.functional as F
import weft

from interleaved import interleaved

layers = weft.layers
DROPOUT = 0.1
OPS = {
    "layer_norm": (
        lambda x, w, b, r: layers.layer_norm(x, w, b),
        lambda x, w, b, r: F.layer_norm(x, w.shape, w, b),
    ),
    "bias_gelu": (
        lambda x, w, b, r: layers.bias_gelu(x, b),
        lambda x, w, b, r: F.gelu(x + b, approximate="tanh"),
    ),
    "bias_quick_gelu": (
        lambda x, w, b, r: layers.bias_quick_gelu(x, b),
        lambda x, w, b, r: (x + b) * torch.sigmoid(1.702 * (x + b)),
    ),
    "bias_dropout_add": (
        lambda x, w, b, r: layers.bias_dropout_add(x, b, r, DROPOUT),
        lambda x, w, b, r: r + F.dropout(x + b, DROPOUT),
    ),
}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["4096x1024", "512x768", "64x256"], help="rows x width (default: %(default)s)")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES), help="of the tensors (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; on a GPU a time is from the first call to the end of all that it enqueued")
    parser.add_argument("--threads", type=int, default=2, help="of torch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="in turns (default: %(default)s)")
    parser.add_argument("--json", help="file to append a line per case to")
    return parser.parse_args()


class Side:
    def __init__(self, op, shape, dtype, device):
        generator = torch.Generator().manual_seed(1)
        make = lambda *sizes: torch.randn(sizes, generator=generator).to(device, dtype).requires_grad_()  # noqa: E731
        rows, columns = shape
        self.op, self.inputs = op, [make(rows, columns), make(columns), make(columns), make(rows, columns)]
        self.gradient = torch.randn(rows, columns, generator=generator).to(device, dtype)
        self.calls = max(1 if device == "cpu" else 10, 2**20 // (rows * columns))

    def prepare(self):
        for one in self.inputs:
            one.grad = None

    def __call__(self):
        for _ in range(self.calls):
            self.op(*self.inputs).backward(self.gradient)
        if self.gradient.is_cuda:
            torch.cuda.synchronize()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    where = f"{options.threads} threads" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"# forward and backward, {where}, {options.rounds} rounds, torch {torch.__version__}; microseconds")
    print(f"{'op':18} {'shape':>10} {'type':>5} {'weft':>10} {'torch':>10}   torch / weft")
    good = True
    for name, (mine, theirs) in OPS.items():
        for text in options.shapes:
            shape = tuple(map(int, text.split("x")))
            for kind in options.types:
                sides = {side: Side(op, shape, TYPES[kind], options.device) for side, op in (("weft", mine), ("torch", theirs))}
                times = interleaved(sides, options.rounds)
                weft_us, torch_us = (statistics.median(times[side]) / sides[side].calls * 1e3 for side in ("weft", "torch"))
                slower = weft_us > 1.05 * torch_us
                good = good and not slower
                if options.json:
                    line = {"program": "torch_layers_perf", "name": name, "shape": text, "type": kind, "device": options.device,
                            "weft_us": weft_us, "torch_us": torch_us}
                    with open(options.json, "a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                print(f"{name:18} {text:>10} {kind:>5} {weft_us:10.1f} {torch_us:10.1f}   {torch_us / weft_us:5.2f}{'  slower' if slower else ''}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
