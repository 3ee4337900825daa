#!/usr/bin/env python3
"""Learns which program a text is from, with a BERT-style encoder of transformers (random initialisation) on Weft.

  torchrun --nproc-per-node=2 examples/finetune_classifier.py                            weft.DistributedDataParallel
  torchrun --nproc-per-node=2 examples/finetune_classifier.py --zero 2                   states and gradients sharded
  torchrun --nproc-per-node=2 examples/finetune_classifier.py --precision fp16 --zero 1  with a loss scale

The texts are those of ddp_translation.py: English messages of Debian's gettext catalogues; the classes are the catalogues with the
most of them. Layers are fused (weft.patch), batches loaded ahead (weft.Prefetcher), one pass clips and updates (weft.optim), and
accuracy is of what all ranks have predicted. Needs: pip install transformers. Rank 0 writes report.json and loss.png into --output.
"""

import argparse
import contextlib
import random
import sys
import time
from collections import Counter

import torch
import torch.distributed as dist
import weft
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

from common import add_data_arguments, from_rank_0, plot, positive, report, texts_of
from translation.data import PAD, Vocabulary

try:
    from transformers import BertConfig, BertForSequenceClassification
except ImportError:
    sys.exit("finetune_classifier.py: needs transformers, which is not installed: pip install transformers")

LONGEST = 48  # pieces of a text that count
TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_arguments(parser, "classifier")
    parser.add_argument("--zero", type=int, choices=(0, 1, 2), default=0, help="what is sharded: 1 optimizer states, 2 gradients too")
    parser.add_argument("--precision", choices=TYPES, default="bf16", help="of forward, by autocast (default: %(default)s)")
    parser.add_argument("--classes", type=positive(int), default=12, help="programs to tell apart (default: %(default)s)")
    parser.add_argument("--epochs", type=positive(int), default=3, help="passes over the data (default: %(default)s)")
    parser.add_argument("--batch", type=positive(int), default=32, help="texts a rank takes at a time")
    parser.add_argument("--rate", type=positive(float), default=5e-4, help="the highest learning rate")
    parser.add_argument("--vocabulary", type=positive(int), default=4000, help="word pieces (default: %(default)s)")
    parser.add_argument("--width", type=positive(int), default=128, help="of the encoder (default: %(default)s)")
    parser.add_argument("--layers", type=positive(int), default=4, help="of the encoder (default: %(default)s)")
    return parser.parse_args()


def fetch(arguments):
    """Names of classes, the vocabulary, and (text, class) for training and test."""
    texts = [(source, name) for source, _, name in texts_of(arguments)]
    names = [name for name, _ in Counter(name for _, name in texts).most_common(arguments.classes)]
    if len(names) < 2:
        raise ValueError(f"the texts are of {len(names)} catalogues; there is nothing to tell apart")
    texts = [(text, names.index(name)) for text, name in texts if name in names]
    random.Random(0).shuffle(texts)
    texts = texts[: arguments.limit]
    held_out = max(1, len(texts) // 10)
    model = Vocabulary.train([(text, "") for text, _ in texts[held_out:]], arguments.vocabulary)
    return names, model, texts[held_out:], texts[:held_out]


def batch_of(samples: list) -> dict:
    tokens, labels = zip(*samples)
    ids = nn.utils.rnn.pad_sequence(list(tokens), batch_first=True, padding_value=PAD)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": torch.tensor(labels)}


def train_epoch(model, optimizer, schedule, scaler, batches, precision, bar) -> list[float]:
    model.train()
    losses = []
    for batch in batches:
        with precision():
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # looks for overflow, unscales, clips, updates, leaves zeros
        scaler.update()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
        bar.update()
        bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    return losses


@torch.no_grad()
def evaluate(model, samples: list, arguments, precision) -> tuple[float, float]:
    """Accuracy, and the mean of the classes' F1, of what all ranks predict of `samples`, share and share alike."""
    model.eval()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = samples[rank::ranks]
    predicted = []
    for first in range(0, len(mine), arguments.batch):
        batch = batch_of(mine[first : first + arguments.batch])
        with precision():
            predicted += model(**batch).logits.argmax(1).tolist()
    everyones = [None] * ranks
    dist.all_gather_object(everyones, list(zip(predicted, [label for _, label in mine])))
    pairs = [pair for share in everyones for pair in share]
    hits = Counter(guess for guess, label in pairs if guess == label)
    guesses, labels = Counter(guess for guess, _ in pairs), Counter(label for _, label in pairs)
    scores = [2 * hits[label] / (guesses[label] + labels[label]) for label in labels]
    return sum(hits.values()) / len(pairs), sum(scores) / len(scores)


def main() -> None:
    arguments = parse_arguments()
    dist.init_process_group("weft")
    rank = dist.get_rank()
    torch.manual_seed(0)
    arguments.output.mkdir(parents=True, exist_ok=True)
    names, pieces, *parts = from_rank_0(lambda: fetch(arguments))
    vocabulary = Vocabulary(pieces)
    training, test = ([(vocabulary.encode(text, LONGEST), label) for text, label in part] for part in parts)

    encoder = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=arguments.width,
            num_hidden_layers=arguments.layers,
            num_attention_heads=4,
            intermediate_size=4 * arguments.width,
            max_position_embeddings=LONGEST,
            num_labels=len(names),
            pad_token_id=PAD,
        )
    )
    fused = weft.patch(encoder)
    dtype = TYPES[arguments.precision]
    scaler = weft.amp.GradScaler(enabled=dtype == torch.float16)
    if arguments.zero:
        model = encoder
        optimizer = weft.ZeroOptimizer(
            encoder, weft.optim.AdamW, stage=arguments.zero, lr=arguments.rate, max_norm=1.0, scaler=scaler if scaler.is_enabled() else None
        )
    else:
        model = weft.DistributedDataParallel(encoder)
        optimizer = weft.optim.AdamW(model.parameters(), lr=arguments.rate, max_norm=1.0, zero_gradients=True)

    def precision():
        return contextlib.nullcontext() if dtype is None else torch.autocast("cpu", dtype)

    sampler = DistributedSampler(training)
    loader = weft.Prefetcher(DataLoader(training, arguments.batch, sampler=sampler, collate_fn=batch_of))
    steps = arguments.epochs * len(loader)
    warmup = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, max(0.0, (steps - step) / max(1, steps - warmup)))
    )
    if rank == 0:
        print(fused)
        print(f"{len(training)} texts of {len(names)} programs for training, {len(test)} for the test")

    losses, results = [], []
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        began = time.monotonic()
        with tqdm(total=len(loader), desc=f"epoch {epoch + 1}", unit=" batches", disable=rank != 0, mininterval=1) as bar:
            losses += train_epoch(model, optimizer, schedule, scaler, loader, precision, bar)
        seconds = time.monotonic() - began
        accuracy, f1 = evaluate(model, test, arguments, precision)
        results.append({"epoch": epoch + 1, "accuracy": accuracy, "f1": f1, "texts_per_second": len(training) / seconds})
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {losses[-1]:.3f}, accuracy {accuracy:.3f}, F1 {f1:.3f}, {len(training) / seconds:.0f} texts/s", flush=True)
    if rank == 0:
        plot({"training": (list(range(1, len(losses) + 1)), losses)}, arguments.output / "loss.png")
        shown = {"zero": arguments.zero, "precision": arguments.precision, "ranks": dist.get_world_size(), "classes": names}
        report({**shown, "parameters": sum(p.numel() for p in encoder.parameters()), "epochs": results}, arguments.output / "report.json")
        print(f"report.json and loss.png are in {arguments.output}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
