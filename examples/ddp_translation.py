#!/usr/bin/env python3
"""Learns to translate the texts of programs from English, with torch's DistributedDataParallel on Weft.

  torchrun --nproc-per-node=2 examples/ddp_translation.py                      German
  torchrun --nproc-per-node=2 examples/ddp_translation.py --language zh_CN     Chinese
  torchrun --nproc-per-node=2 examples/ddp_translation.py --backend gloo       the same training on gloo, to compare

Nothing in it is Weft's but the name of the backend. The data are gettext catalogues of Debian packages, fetched into a cache
folder (translation/catalogues.py). Rank 0 writes the best model and a plot of the losses into --output.
"""

import argparse
import contextlib
import gc
import math
import pathlib
import random
import subprocess
import sys
import time

import matplotlib
import sacrebleu
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

from common import positive
from translation import catalogues
from translation.data import PAD, Pairs, SimilarLengths, Vocabulary, batch_of
from translation.model import HEADS, Translator

matplotlib.use("Agg")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="weft", help="weft or gloo")
    parser.add_argument("--language", default="de", help="of the catalogues that are fetched (default: %(default)s)")
    parser.add_argument("--catalogues", type=pathlib.Path, help="a folder with LANGUAGE/*.mo or *.po, instead of Debian's")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache/weft-translation", help="folder where fetched catalogues are kept")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/translation"), help="folder for the best model and the plot (default: %(default)s)")
    parser.add_argument("--epochs", type=positive(int), default=20, help="passes over the data, at most (default: %(default)s)")
    parser.add_argument("--patience", type=positive(int), default=2, help="epochs without a better validation loss before it stops")
    parser.add_argument("--batch", type=positive(int), default=32, help="sentence pairs a rank takes at a time")
    parser.add_argument("--accumulate", type=positive(int), default=2, help="batches whose gradients make one step")
    parser.add_argument("--rate", type=positive(float), default=1e-3, help="the highest learning rate")
    parser.add_argument("--warmup", type=positive(int), default=400, help="steps until it is reached")
    parser.add_argument("--vocabulary", type=positive(int), default=4000, help="word pieces (default: %(default)s)")
    parser.add_argument("--width", type=positive(int), default=128, help="of the model (default: %(default)s)")
    parser.add_argument("--layers", type=positive(int), default=3, help="of encoder and decoder each (default: %(default)s)")
    parser.add_argument("--longest", type=positive(int), default=48, help="pieces of a sentence that count")
    parser.add_argument("--sentences", type=positive(int), default=400, help="that the BLEU after an epoch is of; the last is of all")
    parser.add_argument("--limit", type=positive(int), help="take no more than this many training pairs")
    arguments = parser.parse_args()
    if arguments.width % HEADS:
        parser.error(f"--width {arguments.width} is no multiple of {HEADS}, the number of attention heads")
    if arguments.longest < 3:
        parser.error(f"--longest {arguments.longest} leaves no room for a word between begin and end")
    return arguments


def fetch(arguments) -> tuple[dict[str, list], bytes]:
    """The pairs of each part, and the vocabulary of those for training."""
    folder, language = arguments.catalogues, arguments.language
    files = catalogues.find(folder, language) if folder else catalogues.fetch(language, arguments.cache)
    parts = catalogues.split(files)
    parts["training"] = parts["training"][: arguments.limit]
    print(f"{len(files)} catalogues,", ", ".join(f"{len(pairs)} pairs for {name}" for name, pairs in parts.items()))
    return parts, Vocabulary.train(parts["training"], arguments.vocabulary)


def load(arguments) -> tuple[Vocabulary, dict[str, Pairs]]:
    """The data. Rank 0 fetches, splits and learns the vocabulary; the others get what it found."""
    found = [None]
    if dist.get_rank() == 0:
        try:
            found = [fetch(arguments)]
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            found = [f"no data to learn from: {error}"]
    dist.broadcast_object_list(found)
    if isinstance(found[0], str):  # every rank leaves, and one of them says why
        rank = dist.get_rank()
        dist.destroy_process_group()
        sys.exit(f"ddp_translation.py: {found[0]}" if rank == 0 else 1)
    parts, model = found[0]
    vocabulary = Vocabulary(model)
    return vocabulary, {name: Pairs(pairs, vocabulary, arguments.longest) for name, pairs in parts.items()}


def loss_of(model: nn.Module, batch: tuple, smoothing: float = 0.0) -> torch.Tensor:
    source, target = batch
    scores = model(source, target[:, :-1])
    return nn.functional.cross_entropy(
        scores.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=smoothing
    )


def train_epoch(model, batches, optimizer, schedule, arguments, bar) -> float:
    """One pass over this rank's share of the data; the mean loss of all ranks."""
    model.train()
    total = torch.zeros(2)
    for number, batch in enumerate(batches, start=1):
        last = number % arguments.accumulate == 0 or number == len(batches)
        # Gradients stay on the rank until the last batch of a step; its backward sends them while it computes.
        with contextlib.nullcontext() if last else model.no_sync():
            loss = loss_of(model, batch, smoothing=0.1)
            (loss / arguments.accumulate).backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        total += torch.tensor([loss.item(), 1.0])
        bar.update()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    return mean_over_ranks(total)


@torch.no_grad()
def validate(model: Translator, batches) -> float:
    model.eval()
    total = torch.zeros(2)
    for batch in batches:
        total += torch.tensor([loss_of(model, batch).item(), 1.0])
    return mean_over_ranks(total)


def mean_over_ranks(total: torch.Tensor) -> float:
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def bleu(model: Translator, pairs: Pairs, vocabulary: Vocabulary, arguments, sentences: int) -> tuple[float, list]:
    """BLEU of sentences from all over `pairs`, which the ranks translate share and share alike, and some translations."""
    model.eval()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = random.Random(0).sample(range(len(pairs)), min(sentences, len(pairs)))[rank::ranks]
    translated = []
    for first in range(0, len(mine), arguments.batch):
        numbers = mine[first : first + arguments.batch]
        source, _ = batch_of([pairs[number] for number in numbers])
        for number, tokens in zip(numbers, model.translate(source)):
            translated.append((*pairs.texts[number], vocabulary.decode(tokens)))
    everyones = [None] * ranks
    dist.all_gather_object(everyones, translated)
    sources, references, hypotheses = zip(*(sentence for share in everyones for sentence in share))
    tokenizer = "zh" if arguments.language.startswith("zh") else "13a"
    score = sacrebleu.corpus_bleu(list(hypotheses), [list(references)], tokenize=tokenizer).score
    return score, list(zip(sources, references, hypotheses))[:5]


def plot(losses: dict[str, list[float]], path: pathlib.Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for name, values in losses.items():
        axes.plot(range(1, len(values) + 1), values, marker="o", label=name)
    axes.set(xlabel="epoch", ylabel="cross-entropy", title="Loss")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    arguments = parse_arguments()
    dist.init_process_group(arguments.backend)
    rank = dist.get_rank()
    torch.manual_seed(0)
    arguments.output.mkdir(parents=True, exist_ok=True)

    vocabulary, data = load(arguments)
    sampler = DistributedSampler(data["training"])
    batches = DataLoader(
        data["training"], batch_sampler=SimilarLengths(data["training"], sampler, arguments.batch), collate_fn=batch_of
    )
    validation = DataLoader(
        data["validation"], arguments.batch, sampler=DistributedSampler(data["validation"]), collate_fn=batch_of
    )

    translator = Translator(len(vocabulary), arguments.width, arguments.layers, longest=arguments.longest)
    model = DistributedDataParallel(translator, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / arguments.warmup, (arguments.warmup / (step + 1)) ** 0.5)
    )

    losses = {"training": [], "validation": []}
    best, waited = float("inf"), 0
    checkpoint = arguments.output / "best.pt"
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        began = time.monotonic()
        with tqdm(total=len(batches), desc=f"epoch {epoch + 1}", unit=" batches", disable=rank != 0, mininterval=1) as bar:
            losses["training"].append(train_epoch(model, batches, optimizer, schedule, arguments, bar))
        seconds = time.monotonic() - began
        losses["validation"].append(validate(translator, validation))
        score, _ = bleu(translator, data["validation"], vocabulary, arguments, arguments.sentences)
        better = losses["validation"][-1] < best
        best, waited = (losses["validation"][-1], 0) if better else (best, waited + 1)
        if rank == 0:
            pairs, steps = len(data["training"]) / seconds, math.ceil(len(batches) / arguments.accumulate) / seconds
            print(
                f"epoch {epoch + 1}: loss {losses['training'][-1]:.3f}, validation {losses['validation'][-1]:.3f}, "
                f"BLEU {score:.1f}, {pairs:.0f} pairs/s, {steps:.2f} steps/s on {arguments.backend}",
                flush=True,
            )
            plot(losses, arguments.output / "loss.png")
            if better:
                torch.save(translator.state_dict(), checkpoint)
        if waited >= arguments.patience:
            break

    dist.barrier()  # the best model is written
    translator.load_state_dict(torch.load(checkpoint))
    score, samples = bleu(translator, data["test"], vocabulary, arguments, len(data["test"]))
    if rank == 0:
        print(f"test BLEU {score:.1f} of {len(data['test'])} sentences; the model and the losses are in {arguments.output}")
        for source, reference, hypothesis in samples:
            print(f"  {source}\n    they: {reference}\n    we:   {hypothesis}")
    # gloo's threads end with the last reference to its group, the model's among them. One that lets go of a tensor while
    # Python already exits aborts the program.
    del model, optimizer, schedule
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
