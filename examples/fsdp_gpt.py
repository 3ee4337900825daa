#!/usr/bin/env python3
"""A small GPT that learns to write what programs say, its parameters sharded by weft.fully_shard.

  torchrun --nproc-per-node=2 examples/fsdp_gpt.py
  torchrun --nproc-per-node=2 examples/fsdp_gpt.py --precision bf16      gathers and computes in bfloat16
  torchrun --nproc-per-node=2 examples/fsdp_gpt.py --sharding torch      by torch's FSDP2, on Weft's back end

The texts are those of ddp_translation.py, in the language they were translated to; weft.pack puts whole texts together in rows of
one length, weft.Prefetcher loads ahead, weft.optim.AdamW updates each rank's part of the parameters. Rank 0 writes report.json and
loss.png into --output.
"""

import argparse
import contextlib
import math
import random
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
import weft
from torch import nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader
from tqdm import tqdm
from weft.packing import attention_mask

from common import add_data_arguments, from_rank_0, plot, positive, report, texts_of
from translation.data import BEGIN, END, Vocabulary

HEADS = 4


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_arguments(parser, "gpt")
    parser.add_argument("--sharding", choices=("weft", "torch"), default="weft", help="who shards the parameters")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of parameters in forward and backward (default: %(default)s)")
    parser.add_argument("--length", type=positive(int), default=128, help="tokens of a row")
    parser.add_argument("--batch", type=positive(int), default=8, help="rows a rank takes at a time")
    parser.add_argument("--steps", type=positive(int), default=600, help="updates (default: %(default)s)")
    parser.add_argument("--rate", type=positive(float), default=2e-3, help="the highest learning rate")
    parser.add_argument("--vocabulary", type=positive(int), default=2000, help="word pieces (default: %(default)s)")
    parser.add_argument("--width", type=positive(int), default=128, help="of the model (default: %(default)s)")
    parser.add_argument("--layers", type=positive(int), default=4, help="of the model (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.width % HEADS:
        parser.error(f"--width {arguments.width} is no multiple of {HEADS}, the number of attention heads")
    return arguments


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))
        return x + self.feed(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int, layers: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for table in (self.tokens, self.positions, self.head):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, sequence_ids: torch.Tensor) -> torch.Tensor:
        mask = attention_mask(sequence_ids)
        x = self.tokens(input_ids) + self.positions(position_ids)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def loss_of(model: nn.Module, batch: dict) -> torch.Tensor:
    scores = model(batch["input_ids"], batch["position_ids"], batch["sequence_ids"])
    return F.cross_entropy(scores.flatten(0, 1).float(), batch["labels"].flatten())


def fetch(arguments):
    """The vocabulary, and texts for training and validation."""
    texts = [target for _, target, _ in texts_of(arguments)]
    random.Random(0).shuffle(texts)
    texts = texts[: arguments.limit]
    held_out = max(1, len(texts) // 20)
    return Vocabulary.train([(text, "") for text in texts[held_out:]], arguments.vocabulary), texts[held_out:], texts[:held_out]


def sharded_by_weft(model: Gpt, precision: str, options: dict):
    """The optimizer, which shards; how many of the parameters this rank keeps; what they are whole in."""
    if precision == "bf16":
        model.bfloat16()  # the optimizer keeps float32 originals
    for block in model.blocks:
        weft.fully_shard(block)
    optimizer = weft.ZeroOptimizer(model, weft.optim.AdamW, stage=3, **options)
    return optimizer, optimizer.owned_elements(), optimizer.whole_parameters


def sharded_by_torch(model: Gpt, precision: str, options: dict):
    """The same; torch gathers them for each forward."""
    narrow = dict(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if precision == "bf16" else {}
    settings = dict(mesh=init_device_mesh("cpu", (dist.get_world_size(),)), mp_policy=fsdp.MixedPrecisionPolicy(**narrow))
    for module in [*model.blocks, model]:
        fsdp.fully_shard(module, **settings)
    mine = sum(p.to_local().numel() for p in model.parameters())
    return weft.optim.AdamW(model.parameters(), **options), mine, contextlib.nullcontext


def train(model, optimizer, schedule, loader, steps, bar) -> list[float]:
    """The ranks' mean loss of each step."""
    model.train()
    losses = []
    while len(losses) < steps:
        for batch in loader:
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses.append(mean.item())
            bar.update()
            bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
            if len(losses) == steps:
                break
    return losses


@torch.no_grad()
def validate(model, loader) -> float:
    model.eval()
    total = torch.zeros(2)
    for batch in loader:
        total += torch.tensor([loss_of(model, batch).item(), 1.0])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def write(model, vocabulary: Vocabulary, length: int, words: int = 24) -> str:
    """A text as the model finds it likely. All ranks compute it, as each has a part of the parameters."""
    model.eval()
    generator = torch.Generator().manual_seed(1)
    tokens = [BEGIN]
    while len(tokens) < min(words, length) and tokens[-1] != END:
        ids = torch.tensor([tokens])
        scores = model(ids, torch.arange(len(tokens))[None], torch.ones_like(ids))[0, -1].float()
        best = scores.topk(min(20, len(scores)))
        chosen = torch.multinomial(best.values.softmax(0), 1, generator=generator)
        dist.broadcast(chosen, 0)
        tokens.append(best.indices[chosen].item())
    return vocabulary.decode(tokens[1:])


def main() -> None:
    arguments = parse_arguments()
    dist.init_process_group("weft")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    arguments.output.mkdir(parents=True, exist_ok=True)
    pieces, *parts = from_rank_0(lambda: fetch(arguments))
    vocabulary = Vocabulary(pieces)
    samples = [[vocabulary.encode(text, arguments.length) for text in part] for part in parts]
    training, validation = (weft.pack(part, arguments.length, rank=rank, ranks=ranks) for part in samples)

    model = Gpt(len(vocabulary), arguments.length, arguments.width, arguments.layers)
    parameters = sum(p.numel() for p in model.parameters())
    weft.patch(model)
    shard = sharded_by_weft if arguments.sharding == "weft" else sharded_by_torch
    rule = dict(lr=arguments.rate, betas=(0.9, 0.95), weight_decay=0.1, max_norm=1.0)
    optimizer, mine, whole_parameters = shard(model, arguments.precision, rule)
    warmup = max(1, arguments.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / arguments.steps)) + 0.02)
    )
    loader = weft.Prefetcher(DataLoader(training, arguments.batch, shuffle=True, generator=torch.Generator().manual_seed(rank)))
    if rank == 0:
        print(f"{parameters} parameters, {mine} of them on this rank; {len(training)} rows a rank, {100 * training.padding:.2f} % padding")

    before = validate(model, DataLoader(validation, arguments.batch))
    began = time.monotonic()
    with tqdm(total=arguments.steps, desc="training", unit=" steps", disable=rank != 0, mininterval=1) as bar:
        losses = train(model, optimizer, schedule, loader, arguments.steps, bar)
    seconds = time.monotonic() - began
    after = validate(model, DataLoader(validation, arguments.batch))
    with whole_parameters():  # for many short forwards
        text = write(model, vocabulary, arguments.length)
    if rank == 0:
        rate = arguments.steps * arguments.batch * arguments.length * ranks / seconds
        print(f"loss {losses[-1]:.3f}, validation {before:.3f} -> {after:.3f} (perplexity {math.exp(after):.1f}), {rate:.0f} tokens/s")
        print(f"it writes: {text}")
        steps = list(range(1, len(losses) + 1))
        plot({"training": (steps, losses), "validation": ([0, len(losses)], [before, after])}, arguments.output / "loss.png")
        values = {"ranks": ranks, "sharding": arguments.sharding, "precision": arguments.precision, "parameters": parameters, "padding": training.padding}
        report({**values, "validation": [before, after], "tokens_per_second": rate, "text": text}, arguments.output / "report.json")
        print(f"report.json and loss.png are in {arguments.output}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
