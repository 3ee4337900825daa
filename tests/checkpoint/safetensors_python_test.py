#!/usr/bin/env python3
"""Hugging Face's safetensors reads what train_gpt saves. Usage: safetensors_python_test.py TRAIN_GPT

Installs the package, once, beside those of scripts/python.sh; exits with 77 where that cannot be."""
import glob
import json
import os
import subprocess
import sys
import tempfile

SKIPPED = 77


def python_with_safetensors():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(os.environ.get("WEFT_TEST_PYTHON_CACHE") or os.path.join(home, "weft-python"), "safetensors")
    python = os.path.join(folder, "bin", "python")
    check = [python, "-c", "import safetensors.numpy"]
    if os.path.exists(python) and subprocess.run(check, capture_output=True).returncode == 0:
        return python
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "safetensors", "numpy"]
    for command in ([sys.executable, "-m", "venv", "--clear", folder], install, check):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"skipped: no safetensors package: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
            sys.exit(SKIPPED)
    return python


def compare(folder):
    """Runs where the package is: every file, read by it and by the format's description."""
    import numpy
    from safetensors.numpy import load_file

    with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as file:
        index = json.load(file)
    seen = {}
    for path in sorted(set(index["weight_map"].values())):
        tensors = load_file(os.path.join(folder, path))
        with open(os.path.join(folder, path), "rb") as file:
            data = file.read()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        assert header.pop("__metadata__")["format"] == "pt"
        assert set(header) == set(tensors), path
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            assert entry["dtype"] == "F32" and list(tensors[name].shape) == entry["shape"], name
            assert tensors[name].tobytes() == data[8 + length + begin:8 + length + end], name
            assert index["weight_map"][name] == path, name
            seen[name] = tensors[name]
    assert set(seen) == set(index["weight_map"])
    whole = {}
    for name, tensor in index["weft"]["tensors"].items():
        parts = sorted(tensor["parts"], key=lambda part: part["first"])
        whole[name] = numpy.concatenate([seen[part["name"]].reshape(-1) for part in parts])
        assert whole[name].size == numpy.prod(tensor["shape"]), name
        assert numpy.isfinite(whole[name]).all(), name
    return whole


def main():
    if sys.argv[1] == "--compare":
        one, four = (compare(folder) for folder in sys.argv[2:])
        assert "layer1.mlp.expand.weight" in one and "optimizer.head.weight.exp_avg" in one
        assert set(one) == set(four)
        # Trained alike, but for the order of sums.
        assert max(abs(one[name] - four[name]).max() for name in one) < 1e-3
        assert len(set(json.load(open(os.path.join(sys.argv[3], "model.safetensors.index.json")))["weight_map"].values())) == 4
        return
    python = python_with_safetensors()
    with tempfile.TemporaryDirectory() as folder:
        for ranks in ("1", "4"):
            subprocess.run([sys.argv[1], "--layers", "2", "--width", "32", "--heads", "2", "--seq", "16", "--batch", "4",
                            "--steps", "3", "--sample", "0", "--strategy", "zero1", "--ranks", ranks,
                            "--checkpoint", os.path.join(folder, ranks)], check=True, stdout=subprocess.DEVNULL)
        assert len(glob.glob(os.path.join(folder, "1", "save-*", "model.safetensors"))) == 1
        subprocess.run([python, os.path.abspath(__file__), "--compare", os.path.join(folder, "1"),
                        os.path.join(folder, "4")], check=True)


if __name__ == "__main__":
    main()
