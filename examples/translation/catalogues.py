"""Sentence pairs from gettext catalogues, the translated texts of programs.

Debian ships them in packages; fetch() downloads some and unpacks them into a cache folder without installing anything. The
texts belong to their authors: a package's licence lies beside it in the cache (usr/share/doc/PACKAGE/copyright, which some only
link to; GPL-3+ for GCC's, MPL-2.0 for LibreOffice's). Nothing of them is part of this repository.
"""

import pathlib
import random
import re
import subprocess
import tempfile

import polib
from tqdm import tqdm

# {} is the language as packages spell it (de, zh-cn).
PACKAGES = [
    *("gcc-12-locales", "libreoffice-l10n-{}", "gimp-data", "evolution-common", "vlc-l10n", "gnupg-l10n", "binutils-common"),
    *("krita-l10n", "kdevelop-l10n", "kile-l10n", "k3b-i18n", "cinnamon-l10n", "libvirt-l10n", "gnucash-common", "git"),
]
LONGEST = 300  # characters; longer entries are whole help pages

ACCELERATOR = re.compile(r"[_~&](?=\w)")  # the key in _File, E~xit, &View
MARKUP = re.compile(
    r"<[^>]*>"  # <b>, <item type="…">
    r"|%[A-Z_]{2,}%?|\$\([A-Z0-9]+\)|\{\w*\}"  # %PRODUCTNAME, $(ARG1), {0}
    r"|%(?:\d+\$)?[-+#0*.\d']*(?:hh|h|ll|l|z|t|j)?[a-zA-Z]|%[<>'\d]"  # %s, %2$d, GCC's quotes
)


def fetch(language: str, cache: pathlib.Path) -> list[pathlib.Path]:
    """The catalogues of a language (de, zh_CN); downloads the packages that the cache does not hold yet."""
    cache.mkdir(parents=True, exist_ok=True)
    packages = [package.format(language.lower().replace("_", "-")) for package in PACKAGES]
    missing = [package for package in packages if not (cache / package).exists()]
    for package in (bar := tqdm(missing, desc="packages", disable=not missing)):
        bar.set_postfix_str(package)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            download = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True, text=True, check=False)
            if download.returncode != 0:
                bar.write(f"{package} is left out: {reason_of(download)}")
                continue
            (archive,) = pathlib.Path(folder).glob("*.deb")
            unpacked = pathlib.Path(folder, "unpacked")
            subprocess.run(["dpkg-deb", "--extract", archive, unpacked], check=True)
            unpacked.rename(cache / package)  # whole or not at all
    return find(cache, language)


def reason_of(failure: subprocess.CompletedProcess) -> str:
    """apt-get's error, without its warnings."""
    lines = failure.stderr.strip().splitlines() or [f"apt-get left with {failure.returncode}"]
    error = next((line for line in lines if line.startswith("E: ")), lines[-1]).removeprefix("E: ")
    return f"{error} (apt-get update may help)" if "Unable to locate" in error else error


def find(folder: pathlib.Path, language: str) -> list[pathlib.Path]:
    catalogues = [path for kind in ("mo", "po") for path in folder.glob(f"**/{language}/**/*.{kind}")]
    if not catalogues:
        raise FileNotFoundError(f"no gettext catalogues of {language} under {folder} (…/{language}/…/*.mo or *.po)")
    return sorted(catalogues)


def clean(text: str) -> str:
    return " ".join(MARKUP.sub(" ", ACCELERATOR.sub("", text)).split())


def pairs_of(catalogue: pathlib.Path) -> list[tuple[str, str]]:
    """What a catalogue translates, without markup; neither what it left as it was nor what holds no words."""
    read = polib.mofile if catalogue.suffix == ".mo" else polib.pofile
    pairs = [(clean(entry.msgid), clean(entry.msgstr)) for entry in read(str(catalogue)) if entry.msgid and entry.msgstr]
    return [
        (source, target)
        for source, target in pairs
        if source != target and re.search(r"[a-z]{2}", source) and max(len(source), len(target)) <= LONGEST
    ]


def split(catalogues: list[pathlib.Path], held_out: float = 0.04) -> dict[str, list[tuple[str, str]]]:
    """Pairs for training, validation and test. Each catalogue goes to one of them as a whole, and a text that two of them
    hold stays in the first only: neighbours and repetitions do not leak from training into the test."""
    by_catalogue = [pairs_of(path) for path in catalogues]
    by_catalogue = [pairs for pairs in by_catalogue if pairs]
    total = sum(map(len, by_catalogue))
    random.Random(0).shuffle(by_catalogue)
    by_catalogue.sort(key=lambda pairs: max(len(pairs), held_out * total))  # large ones last: they are for training
    parts, seen = {"validation": [], "test": [], "training": []}, set()
    for pairs in by_catalogue:
        part = next((name for name in ("validation", "test") if len(parts[name]) < held_out * total), "training")
        fresh = {source: (source, target) for source, target in pairs if source not in seen}
        seen.update(fresh)
        parts[part].extend(fresh.values())
    empty = [name for name, pairs in parts.items() if not pairs]
    if empty:
        raise ValueError(f"{len(by_catalogue)} catalogues leave nothing for {' and '.join(empty)}; at least three are needed")
    return parts
