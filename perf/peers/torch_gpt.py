#!/usr/bin/env python3
"""One rank of train_gpt's model under PyTorch's DistributedDataParallel, for hosts_trainer.py.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.1.0.1 MASTER_PORT=29500 torch_gpt.py BACKEND STEPS

The byte-level GPT of examples/train_gpt: 12 pre-norm blocks of width 256 with 8 heads, sequences of 128 bytes, 8 of them a step over
all ranks, an untied head, AdamW, f32. Rank 0 prints the medians of a step, and of one that sends nothing, as JSON.
"""
import contextlib
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, HEADS, LENGTH, BATCH, BYTES = 12, 256, 8, 128, 8, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x):
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]
        return self.out(functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(-2))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(BYTES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES)

    def forward(self, text):
        x = self.tokens(text) + self.positions.weight
        return self.head(self.norm(self.blocks(x)))


def main():
    backend, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group(backend)
    model = DistributedDataParallel(Gpt(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    text = torch.randint(BYTES, (BATCH // dist.get_world_size(), LENGTH + 1))

    def step(sends):
        with contextlib.nullcontext() if sends else model.no_sync():
            optimizer.zero_grad(set_to_none=False)
            logits = model(text[:, :-1])
            functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
            optimizer.step()

    taken = {True: [], False: []}
    for turn in range(2 * steps + 6):
        dist.barrier()
        begin = time.perf_counter()
        step(turn % 2 == 0)
        if turn >= 6:
            taken[turn % 2 == 0].append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "step_ms": 1e3 * statistics.median(taken[True]),
                          "compute_ms": 1e3 * statistics.median(taken[False])}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
