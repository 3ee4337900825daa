"""The translation example, on catalogues of its own: a few hundred phrases that follow one grammar."""

import itertools
import os
import pathlib
import random
import re
import socket
import subprocess
import sys

import polib
import pytest
from torch.utils.data.distributed import DistributedSampler

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from translation import catalogues, data  # noqa: E402

COLOURS = {"red": "rotes", "green": "grünes", "blue": "blaues", "old": "altes", "new": "neues", "small": "kleines"}
THINGS = {"house": "Haus", "book": "Buch", "window": "Fenster", "picture": "Bild", "word": "Wort", "sheet": "Blatt"}
VERBS = {"open": "öffnen", "close": "schließen", "show": "zeigen", "find": "finden", "move": "bewegen"}


def phrases():
    for (verb, tun), (colour, farbe), (thing, ding) in itertools.product(VERBS.items(), COLOURS.items(), THINGS.items()):
        yield f"{verb} a {colour} {thing}", f"ein {farbe} {ding} {tun}"


@pytest.fixture
def folder(tmp_path):
    """Four catalogues, one of them large, of which the phrases are dealt out to them as cards are."""
    files = {name: polib.POFile() for name in ("one", "two", "three", "large")}
    owners = (["one", "two", "three"] + ["large"] * 9) * 100
    for (english, german), owner in zip(phrases(), owners):
        files[owner].append(polib.POEntry(msgid=f"<b>{english}</b>", msgstr=german))
    (tmp_path / "de").mkdir()
    for number, (name, file) in enumerate(files.items()):
        path = tmp_path / "de" / name
        file.save_as_mofile(f"{path}.mo") if number % 2 else file.save(f"{path}.po")
    return tmp_path


@pytest.mark.parametrize(
    "text, expected",
    [
        ("<b>bold</b> and <item type=\"x\">not</item>", "bold and not"),
        ("_File ~Edit &View", "File Edit View"),
        ("copy %s to %2$d (%.3f)", "copy to ( )"),
        ("%PRODUCTNAME starts $(ARG1) {0}", "starts"),
        ("R & D, a_b stays 100 % itself", "R & D, ab stays 100 % itself"),
    ],
)
def test_markup_goes(text, expected):
    assert catalogues.clean(text) == expected


def test_useless_entries_go(tmp_path):
    file = polib.POFile()
    for source, target in [("Same", "Same"), ("12:30", "halb eins"), ("word", ""), ("good word", "gutes Wort"), ("x" * 400, "lang")]:
        file.append(polib.POEntry(msgid=source, msgstr=target))
    file.save(str(tmp_path / "some.po"))
    assert catalogues.pairs_of(tmp_path / "some.po") == [("good word", "gutes Wort")]


def test_split_by_catalogue(folder):
    files = catalogues.find(folder, "de")
    parts = catalogues.split(files)
    sets = [set(parts[name]) for name in ("training", "validation", "test")]
    assert all(sets) and sum(map(len, sets)) == len(list(phrases()))
    assert not (sets[0] & sets[1] or sets[0] & sets[2] or sets[1] & sets[2])
    assert any(set(catalogues.pairs_of(path)) == sets[2] for path in files)  # whole catalogues
    assert parts == catalogues.split(files)


def test_too_few_catalogues_are_refused(folder):
    with pytest.raises(ValueError, match="at least three"):
        catalogues.split(catalogues.find(folder, "de")[:2])
    with pytest.raises(FileNotFoundError, match="no gettext catalogues of fr"):
        catalogues.find(folder, "fr")


def test_vocabulary_and_batches():
    pairs = list(phrases())
    vocabulary = data.Vocabulary(data.Vocabulary.train(pairs, 120))
    for text in pairs[17]:
        assert vocabulary.decode(vocabulary.encode(text, 64).tolist()) == text
    source, target = data.batch_of([data.Pairs(pairs, vocabulary, 64)[number] for number in (0, 50, 99)])
    assert len(source) == len(target) == 3
    assert (source[:, 0] == data.BEGIN).all() and ((source == data.END).sum(1) == 1).all()
    assert len(vocabulary.encode(pairs[0][0], 4)) == 4


def test_batches_of_similar_lengths():
    generator = random.Random(1)
    pairs = [(" ".join("a" * generator.randint(1, 20)), " ".join("b" * generator.randint(1, 20))) for _ in range(501)]
    vocabulary = data.Vocabulary(data.Vocabulary.train(pairs, 20))
    dataset = data.Pairs(pairs, vocabulary, 64)
    samplers = [DistributedSampler(dataset, num_replicas=2, rank=rank) for rank in range(2)]
    batches = [list(data.SimilarLengths(dataset, sampler, 4)) for sampler in samplers]
    for sampler, mine in zip(samplers, batches):
        assert sorted(number for batch in mine for number in batch) == sorted(sampler)  # each pair of the share once
        assert len(mine) == len(data.SimilarLengths(dataset, sampler, 4)) == 63
    lengths = [[[len(dataset[number][1]) for number in batch] for batch in mine] for mine in batches]
    spread = [max(batch) - min(batch) for mine in lengths for batch in mine]
    assert sum(spread) / len(spread) < 4  # 12 in batches as they come
    apart = [abs(max(one) - max(other)) for one, other in zip(*lengths)]
    assert sum(apart) / len(apart) < 4  # what ranks wait for one another
    samplers[0].set_epoch(1)
    assert list(data.SimilarLengths(dataset, samplers[0], 4)) != batches[0]


@pytest.mark.parametrize(
    "stderr, expected",
    [
        ("W: not signed\nE: Unable to locate package kile-l10n\n", "Unable to locate package kile-l10n (apt-get update may help)"),
        ("E: Failed to fetch http://x\nE: Some files failed\nW: unsandboxed\n", "Failed to fetch http://x"),
        ("", "apt-get left with 100"),
    ],
)
def test_why_a_package_is_left_out(stderr, expected):
    assert catalogues.reason_of(subprocess.CompletedProcess([], 100, "", stderr)) == expected


def train(backend, folder, output):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(EXAMPLES / "ddp_translation.py"), f"--backend={backend}", f"--catalogues={folder}", f"--output={output}"]
    command += ["--epochs=25", "--patience=25", "--batch=4", "--accumulate=2", "--warmup=30", "--rate=0.003", "--vocabulary=120", "--width=64"]
    command += ["--layers=1", "--longest=32"]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=150, check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )
    said = [line for line in run.stderr.splitlines() if "batches/s" not in line]  # not what hides why: progress
    assert run.returncode == 0, "\n".join([run.stdout, *said])
    epochs = re.findall(r"loss ([\d.]+), validation ([\d.]+), BLEU ([\d.]+)", run.stdout)
    test = re.search(r"test BLEU ([\d.]+)", run.stdout)
    return [tuple(map(float, epoch)) for epoch in epochs], float(test[1]), run.stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--batch=0"], "0 is not above 0"),
        (["--rate=nan"], "nan is not above 0"),
        (["--width=30"], "no multiple of 4"),
        (["--longest=2"], "no room for a word"),
        (["--catalogues=/nowhere"], "no gettext catalogues of de under /nowhere"),
        (["--language=xx"], "no gettext catalogues of xx"),
    ],
)
def test_bad_input_is_one_line_and_a_failure(folder, tmp_path, arguments, message):
    # One rank by itself: the launcher would put its own words around the program's.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, str(EXAMPLES / "ddp_translation.py"), f"--catalogues={folder}", f"--output={tmp_path / 'out'}", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **rank})
    assert run.returncode != 0
    assert message in run.stderr.strip().splitlines()[-1]
    assert "Traceback" not in run.stderr, run.stderr


def test_learns_and_does_the_same_on_both_backends(folder, tmp_path):
    results = {backend: train(backend, folder, tmp_path / backend) for backend in ("gloo", "weft")}
    for backend, (epochs, bleu, text) in results.items():
        assert epochs[-1][1] < 0.3 * epochs[0][1], text
        assert bleu > 50, text  # phrases that it has never seen
        assert (tmp_path / backend / "loss.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / backend / "best.pt").exists()
    # Two ranks' sum is the same in either order: the backends agree to the last digit printed, for as long as rounding does.
    for gloo, weft in zip(results["gloo"][0][:3], results["weft"][0][:3]):
        assert gloo == pytest.approx(weft, abs=0.02)
