"""The examples that train with weft's own parts, or on others' trainers: a few steps each, on catalogues of their own."""

import importlib
import importlib.util
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

import polib
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(ROOT / "python/weft/tests"))

from scripts import run_script  # noqa: E402

PROGRAMS = {"mail": ["send", "reply", "forward"], "paint": ["draw", "fill", "erase"], "player": ["play", "pause", "skip"]}
WORDS = ["red", "green", "small", "old", "new"], ["house", "book", "window", "letter", "picture", "word"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A catalogue for each program, which its verbs tell apart."""
    path = tmp_path_factory.mktemp("catalogues")
    (path / "de").mkdir()
    for name, verbs in PROGRAMS.items():
        file = polib.POFile()
        for verb, colour, thing in itertools.product(verbs, *WORDS):
            file.append(polib.POEntry(msgid=f"{verb} the {colour} {thing}", msgstr=f"{thing}, {colour}, zu {verb}"))
        file.save(str(path / "de" / f"{name}.po"))
    return path


def run(example, folder, output, *arguments, ranks=2, launcher=False):
    """What the example prints and reports, on forked ranks or by torchrun. Skips where what it needs beside weft is not installed."""
    needs = {"finetune_classifier": ["transformers"], "hugging_face_trainer": ["transformers", "accelerate"], "lightning_trainer": ["lightning"]}
    for module in needs.get(example, []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
        if not launcher:
            importlib.import_module(module)  # once, for all ranks
    arguments = [f"--catalogues={folder}", f"--output={output}", *arguments]
    text = launched(example, arguments, ranks) if launcher else run_script(EXAMPLES / f"{example}.py", arguments, ranks, output)
    assert (output / "loss.png").read_bytes().startswith(b"\x89PNG")
    return text, json.loads((output / "report.json").read_text(encoding="utf-8"))


def launched(example, arguments, ranks):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(EXAMPLES / f"{example}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def quiet_surroundings(monkeypatch):
    for name, value in {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "WEFT_AUTOTUNE_CACHE": "0"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "options, best",
    [(["--precision=bf16", "--epochs=1"], 0.0), (["--precision=fp16", "--zero=2", "--epochs=8"], 0.6)],
    ids=["replicas", "zero2"],
)
def test_finetune_classifier(folder, tmp_path, options, best):
    small = ["--batch=8", "--width=32", "--layers=1", "--vocabulary=120", "--rate=0.002"]
    text, report = run("finetune_classifier", folder, tmp_path, *small, *options)
    assert "1 BertOutput, 1 BertSelfOutput, 1 GELUActivation, 3 LayerNorm" in text
    assert sorted(report["classes"]) == sorted(PROGRAMS)
    assert report["epochs"][-1]["accuracy"] >= best, text  # 0.33 by chance


@pytest.mark.parametrize("sharding", ["weft", "torch"])
def test_fsdp_gpt(sharding, folder, tmp_path):
    small = ["--steps=40", "--batch=2", "--width=32", "--layers=1", "--vocabulary=120", "--length=64", "--rate=0.01", "--limit=200"]
    text, report = run("fsdp_gpt", folder, tmp_path, *small, "--precision=bf16", *([] if sharding == "weft" else ["--sharding=torch"]), launcher=sharding == "weft")
    assert report["sharding"] == sharding
    before, after = report["validation"]
    assert after < 0.6 * before, text
    assert report["padding"] < 0.15  # of 11 rows
    all_of_them, mine = map(int, re.search(r"(\d+) parameters, (\d+) of them on this rank", text).groups())
    assert mine < 0.52 * all_of_them == 0.52 * report["parameters"]  # rows of odd tables are rounded up


@pytest.mark.parametrize("example", ["hugging_face_trainer", "lightning_trainer"])
def test_trainers_of_others(example, folder, tmp_path):
    text, report = run(example, folder, tmp_path, "--steps=12", "--length=32", "--limit=200", "--rate=0.01")
    assert report["backend"] == "weft" and report["ranks"] == 2
    losses = [loss if isinstance(loss, float) else loss[1] for loss in report["losses"]]
    assert len(losses) == 12 and losses[-1] < 0.8 * losses[0], text
