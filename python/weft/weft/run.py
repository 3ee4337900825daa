"""``weft-run``: starts a training script written for one process on several, under one of weft's strategies.

    weft-run --nproc-per-node 2 --strategy zero2 --precision bf16 train.py --epochs 3

Options beside those that --help lists under "weft" are torchrun's, which does the starting.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "hsdp", "auto")
PRECISIONS = ("fp32", "bf16", "fp16")


def parser():
    """torchrun's, with weft's options."""
    parser = torchrun.get_args_parser()
    parser.prog = "weft-run"
    parser.description = "Starts a training script written for one process on several (docs/pytorch-training.md says what is done to it)."
    mine = parser.add_argument_group("weft")
    mine.add_argument("--strategy", default="ddp", help="ddp: replicas; zero1: optimizer states sharded; zero2: gradients too; zero3: parameters too; hsdp: zero3 in groups of ranks; auto: the fastest of those by estimate")
    mine.add_argument("--precision", default="fp32", help="fp32; bf16: the model's forward under autocast; fp16: likewise, and the loss scaled")
    mine.add_argument("--shard-size", type=int, help="ranks of a group under hsdp, a divisor of their number; absent: half of them")
    mine.add_argument("--memory-budget", help="bytes of a rank for parameters, gradients and states, such as 2G: what does not fit is refused, or not taken by auto")
    mine.add_argument("--clip-grad", type=float, help="clips gradients to this norm, in the update")
    mine.add_argument("--accumulate", type=int, default=1, help="backwards before each of the script's steps")
    mine.add_argument("--all-output", action="store_true", help="all ranks print, not only the first")
    return parser


def checked(parser, options) -> None:
    """Leaves with one line where an option makes no sense."""
    if options.strategy not in STRATEGIES:
        parser.error(f"--strategy {options.strategy}; there are {', '.join(STRATEGIES)}")
    if options.precision not in PRECISIONS:
        parser.error(f"--precision {options.precision}; there are {', '.join(PRECISIONS)}")
    if options.shard_size is not None and options.strategy not in ("hsdp", "auto"):
        parser.error(f"--shard-size {options.shard_size} is of --strategy hsdp, and this is {options.strategy}")
    if options.shard_size is not None and options.shard_size < 1:
        parser.error(f"--shard-size {options.shard_size}: it must be at least 1")
    if options.memory_budget is not None and not re.fullmatch(r"[1-9]\d*([KMG](iB?)?)?", options.memory_budget):
        parser.error(f"--memory-budget {options.memory_budget}: it must be a number of bytes, or of K, M or G")
    if options.clip_grad is not None and not options.clip_grad > 0:
        parser.error(f"--clip-grad {options.clip_grad}: it must be above 0")
    if options.accumulate < 1:
        parser.error(f"--accumulate {options.accumulate}: it must be at least 1")
    if options.no_python or options.module or options.run_path:
        parser.error("--no-python, --module and --run-path are not there: give the path of a script")
    if not pathlib.Path(options.training_script).is_file():
        parser.error(f"{options.training_script}: no such script")


def main(arguments: list[str] | None = None) -> None:
    of_all = parser()
    options = of_all.parse_args(arguments)
    checked(of_all, options)
    here = {"strategy": options.strategy, "precision": options.precision, "accumulate": options.accumulate}
    settings = [f"--{name}={value}" for name, value in here.items()]
    for name in ("clip_grad", "shard_size", "memory_budget"):
        value = getattr(options, name)
        settings += [f"--{name.replace('_', '-')}={value}"] if value is not None else []
    settings += ["--all-output"] if options.all_output else []
    options.training_script_args = [*settings, options.training_script, *options.training_script_args]
    options.training_script, options.module = "weft.unchanged", True
    # One node and no meeting point named: its own, on a free port, so that several jobs do not meet.
    if options.nnodes in ("1", "1:1") and not options.rdzv_endpoint and "MASTER_ADDR" not in os.environ:
        options.standalone = True
    try:
        torchrun.run(options)
    except ChildFailedError as error:
        # The script's own words are above; torchrun's traceback would be of torchrun.
        rank, failure = error.get_first_failure()
        sys.exit(f"weft-run: rank {rank} ended with exit code {failure.exitcode}")


if __name__ == "__main__":
    main()
