#!/usr/bin/env python3
"""transformers' Trainer on Weft: its collectives by the back end, the update by weft.optim, layers fused.

  torchrun --nproc-per-node=2 examples/hugging_face_trainer.py

A small GPT-2 (random initialisation) learns the texts of ddp_translation.py's catalogues. Two lines are Weft's: the process group, which is made
before TrainingArguments look for one (accelerate knows the names of torch's back ends only), and the optimizer handed to Trainer. Needs: pip install transformers accelerate.
"""

import argparse
import random
import sys

import torch.distributed as dist
import weft

from common import add_data_arguments, from_rank_0, plot, positive, report, texts_of
from translation.data import BEGIN, END, Vocabulary

try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
    import accelerate  # noqa: F401
except ImportError as error:
    sys.exit(f"hugging_face_trainer.py: {error.name} is not installed: pip install transformers accelerate")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_arguments(parser, "hugging_face")
    parser.add_argument("--steps", type=positive(int), default=300, help="updates (default: %(default)s)")
    parser.add_argument("--length", type=positive(int), default=96, help="tokens of a row")
    parser.add_argument("--rate", type=positive(float), default=1e-3, help="learning rate (default: %(default)s)")
    return parser.parse_args()


def fetch(arguments):
    texts = [target for _, target, _ in texts_of(arguments)]
    random.Random(0).shuffle(texts)
    texts = texts[: arguments.limit]
    return Vocabulary.train([(text, "") for text in texts], 1000), texts


class Rows:
    """Packed rows under the names that the model's forward has."""

    def __init__(self, packed):
        self.packed = packed

    def __len__(self):
        return len(self.packed)

    def __getitem__(self, index):
        row = self.packed[index]
        return {name: row[name] for name in ("input_ids", "position_ids", "labels")}


def main() -> None:
    arguments = parse_arguments()
    dist.init_process_group("weft")
    pieces, texts = from_rank_0(lambda: fetch(arguments))
    training = TrainingArguments(
        output_dir=str(arguments.output),
        use_cpu=True,
        max_steps=arguments.steps,
        per_device_train_batch_size=8,
        max_grad_norm=1.0,
        logging_steps=max(1, arguments.steps // 20),
        save_strategy="no",
        report_to=[],
    )
    vocabulary = Vocabulary(pieces)
    # Rows for this model, which shifts labels itself; Trainer shares them out to ranks.
    rows = weft.pack([vocabulary.encode(text, arguments.length) for text in texts], arguments.length, shift=False)
    config = GPT2Config(vocab_size=len(vocabulary), n_positions=arguments.length, n_embd=96, n_layer=3, n_head=4, bos_token_id=BEGIN, eos_token_id=END)
    set_seed(training.seed)  # Trainer does so itself only where it makes the model
    model = GPT2LMHeadModel(config)
    fused = weft.patch(model)
    optimizer = weft.optim.AdamW(model.parameters(), lr=arguments.rate)
    trainer = Trainer(model=model, args=training, train_dataset=Rows(rows), optimizers=(optimizer, None))
    trainer.train()
    logged = [(entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    if dist.get_rank() == 0:
        print(fused)
        arguments.output.mkdir(parents=True, exist_ok=True)
        plot({"training": tuple(map(list, zip(*logged)))}, arguments.output / "loss.png")
        report({"backend": dist.get_backend(), "ranks": dist.get_world_size(), "losses": logged}, arguments.output / "report.json")
        print(f"loss {logged[0][1]:.3f} -> {logged[-1][1]:.3f} on {dist.get_backend()}; report.json and loss.png are in {arguments.output}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
