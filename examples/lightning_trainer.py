#!/usr/bin/env python3
"""Lightning's Trainer on Weft: its collectives by the back end, the update by weft.optim, layers fused.

  torchrun --nproc-per-node=2 examples/lightning_trainer.py

A small GPT (fsdp_gpt.py's) learns the texts of ddp_translation.py's catalogues. Two lines are Weft's: process_group_backend="weft", and the
optimizer. Needs: pip install lightning.
"""

import argparse
import os
import random
import sys

import torch
import torch.distributed as dist
import weft

from common import add_data_arguments, plot, positive, report, texts_of
from fsdp_gpt import Gpt, loss_of
from translation.data import Vocabulary

try:
    import lightning.pytorch as lightning
    from lightning.pytorch.strategies import DDPStrategy
except ImportError as error:
    sys.exit(f"lightning_trainer.py: {error.name} is not installed: pip install lightning")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_arguments(parser, "lightning")
    parser.add_argument("--steps", type=positive(int), default=300, help="updates (default: %(default)s)")
    parser.add_argument("--length", type=positive(int), default=96, help="tokens of a row")
    parser.add_argument("--rate", type=positive(float), default=1e-3, help="learning rate (default: %(default)s)")
    return parser.parse_args()


class Texts(lightning.LightningModule):
    def __init__(self, model: torch.nn.Module, rate: float):
        super().__init__()
        self.model, self.rate, self.losses = model, rate, []

    def training_step(self, batch, index):
        loss = loss_of(self.model, batch)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return weft.optim.AdamW(self.model.parameters(), lr=self.rate)


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(0)
    # Each rank reads for itself: Lightning makes the process group when training begins.
    texts = [target for _, target, _ in texts_of(arguments)]
    random.Random(0).shuffle(texts)
    texts = texts[: arguments.limit]
    vocabulary = Vocabulary(Vocabulary.train([(text, "") for text in texts], 1000))
    rows = weft.pack([vocabulary.encode(text, arguments.length) for text in texts], arguments.length)
    model = Gpt(len(vocabulary), arguments.length, 96, 3)
    fused = weft.patch(model)
    module = Texts(model, arguments.rate)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        strategy=DDPStrategy(process_group_backend="weft"),
        max_steps=arguments.steps,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(rows, 8, shuffle=True))
    losses, backend = module.losses, dist.get_backend()
    if trainer.is_global_zero:
        print(fused)
        arguments.output.mkdir(parents=True, exist_ok=True)
        plot({"training": (list(range(1, len(losses) + 1)), losses)}, arguments.output / "loss.png")
        report({"backend": backend, "ranks": trainer.world_size, "losses": losses}, arguments.output / "report.json")
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} on {backend}; report.json and loss.png are in {arguments.output}")


if __name__ == "__main__":
    main()
