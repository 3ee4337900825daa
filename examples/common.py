"""What the examples share: their data, arguments, plots and reports."""

import argparse
import json
import pathlib
import subprocess
import sys

import matplotlib
import torch.distributed as dist
from tqdm import tqdm

from translation import catalogues

matplotlib.use("Agg")


def positive(number_type: type):
    """An argparse type: a number above 0."""

    def parse(text: str):
        number = number_type(text)
        if not 0 < number < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return number

    parse.__name__ = number_type.__name__
    return parse


def add_data_arguments(parser: argparse.ArgumentParser, output: str) -> None:
    parser.add_argument("--language", default="de", help="of the catalogues that are fetched")
    parser.add_argument("--catalogues", type=pathlib.Path, help="a folder with LANGUAGE/*.mo or *.po, instead of Debian's")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache/weft-translation", help="folder where fetched catalogues are kept")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build") / output, help="folder for the plot and report.json (default: %(default)s)")
    parser.add_argument("--limit", type=positive(int), help="take no more than this many texts")


def texts_of(arguments) -> list[tuple[str, str, str]]:
    """(English, translation, name of the catalogue) of the texts of programs, each English text once."""
    folder, language = arguments.catalogues, arguments.language
    files = catalogues.find(folder, language) if folder else catalogues.fetch(language, arguments.cache)
    texts = {}
    for path in tqdm(files, desc="catalogues", leave=False):
        for source, target in catalogues.pairs_of(path):
            texts.setdefault(source, (source, target, path.stem))
    print(f"{len(files)} catalogues, {len(texts)} texts")
    return list(texts.values())


def from_rank_0(make):
    """What make() returns on rank 0, on every rank. Where it fails every rank leaves, and rank 0 says why in one line."""
    found = [None]
    if dist.get_rank() == 0:
        try:
            found = [("found", make())]
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            found = [("failed", f"no data to learn from: {error}")]
    dist.broadcast_object_list(found)
    kind, what = found[0]
    if kind == "failed":
        rank = dist.get_rank()
        dist.destroy_process_group()
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {what}" if rank == 0 else 1)
    return what


def plot(curves: dict[str, tuple[list, list]], path: pathlib.Path, label: str = "cross-entropy") -> None:
    """Curves of (steps, values)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for name, (steps, values) in curves.items():
        axes.plot(steps, values, marker="o" if len(steps) < 50 else None, label=name)
    axes.set(xlabel="step", ylabel=label, title="Loss")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def report(values: dict, path: pathlib.Path) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
