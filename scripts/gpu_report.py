#!/usr/bin/env python3
"""What gpu_check.sh found, as one JSON file and one Markdown page. Fails when a step failed or was not run, when a test failed
or none ran on the GPU, or when a bar was missed."""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def first_match(command, pattern):
    """A program's version, or null where it is not there."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(pattern, text)
    return found.group(1) if found else None


def nccl_version():
    for path in ("/usr/include/nccl.h", "/usr/local/cuda/include/nccl.h"):
        if pathlib.Path(path).exists():
            text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
            return ".".join(re.search(rf"#define NCCL_{part}\s+(\d+)", text).group(1) for part in ("MAJOR", "MINOR", "PATCH"))
    return None


def training_speed(folder):
    """A row a run of the trainer that was timed."""
    for path in sorted(folder.glob("train_speed*.json")):
        report = json.loads(path.read_text())
        run = report["runs"][0]
        yield {"step": "a CUDA graph" if report["cuda_graph"] else "calls of the host", "model": report["model"],
               "step_ms": run["step_ms"], "tokens_per_s": run["tokens_per_s"]}


def count_tests(folder):
    """Tests that ran, failed and were skipped, and the names of the latter two."""
    counts = {"passed": 0, "failed": [], "skipped": []}
    for path in sorted(folder.glob("*.xml")):
        for case in xml.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            if case.find("failure") is not None:
                counts["failed"].append(name)
            elif case.get("result") == "skipped" or case.find("skipped") is not None:
                counts["skipped"].append(name)
            else:
                counts["passed"] += 1
    return counts


def faults(found):
    for step in found["steps"]:
        if step["result"] != "passed":
            yield f"{step['step']} {step['result']}: {step['reason']}"
    for name in found["tests"]["failed"]:
        yield f"test failed: {name}"
    if found["tests"]["passed"] == 0:
        yield "no test ran"
    if found["tests"]["skipped"]:
        yield f"{len(found['tests']['skipped'])} tests were skipped: {found['tests']['skipped'][0]} …"
    for row in found["kernels"] + found["torch"] + found["host_cost"]:
        if not row.get("holds", True):
            yield f"bar missed: {row['name']}"


def verdict(row):
    return "" if "bar" not in row else f"{'PASS' if row['holds'] else 'FAIL'} (bar {row['bar']:g})"


def table(head, rows):
    lines = [" | ".join(head), "|".join("---" for _ in head)]
    return "\n".join(f"| {line} |" for line in lines + [" | ".join(row) for row in rows]) + "\n"


def markdown(found):
    machine = found["machine"]
    tests = found["tests"]
    page = [f"# GPU check on {machine['device']}\n",
            table(("what", "version"), [(key, str(value)) for key, value in machine.items()]),
            f"\nTests: {tests['passed']} passed, {len(tests['failed'])} failed, {len(tests['skipped'])} skipped.\n\n",
            table(("step", "result", "seconds", "why"),
                  [(s["step"], s["result"], str(s["seconds"]), s["reason"]) for s in found["steps"]])]
    if found["kernels"]:
        page += ["\n## Kernels beside the device-to-device copy\n\n",
                 table(("kernel", "elements", "ms", "host µs", "GB/s", "copy GB/s", "share", ""),
                       [(r["name"], f"{r['elements']:,}", f"{r['ms']:.4f}", f"{r['host_us']:.1f}", f"{r['gb_s']:.0f}",
                         f"{r['copy_gb_s']:.0f}", f"{r['share_of_copy']:.3f}", verdict(r)) for r in found["kernels"]])]
    if found["torch"]:
        page += ["\n## Beside torch\n\n",
                 table(("torch", "ms", "host µs", "Weft ms", "Weft host µs", "speedup", ""),
                       [(r["name"], f"{r['ms']:.4f}", f"{r['host_us']:.1f}", f"{r.get('weft_ms', float('nan')):.4f}",
                         f"{r.get('weft_host_us', float('nan')):.1f}", f"{r.get('speedup', float('nan')):.2f}", verdict(r))
                        for r in found["torch"]])]
    if found["host_cost"]:
        page += ["\n## Host time of a call beside NCCL's own\n\n",
                 table(("call", "ranks", "in a row", "Weft µs", "NCCL µs", "more µs", ""),
                       [(r["name"], str(r["ranks"]), str(r["calls"]), f"{r['weft_us']:.3f}", f"{r.get('nccl_us', float('nan')):.3f}",
                         f"{r['own_us']:.3f}", "PASS" if r["holds"] else f"FAIL (bar {r['bar_us']:g})")
                        for r in found["host_cost"]])]
    if found["training"]:
        page += ["\n## A step of the trainer, bf16, one GPU\n\n",
                 table(("step", "ms", "tokens/s"), [(r["step"], f"{r['step_ms']:.2f}", f"{r['tokens_per_s']:,.0f}") for r in found["training"]])]
    if found["torch_calls"]:
        page += ["\n## PyTorch: what a call costs the host\n\n",
                 table(("call", "NCCL's back end µs", "weft µs"),
                       [(r["name"], f"{r['stock_us']:.1f}", f"{r['weft_us']:.1f}") for r in found["torch_calls"]])]
    if any(found["host_cost_2"].values()):
        page += ["\n## The same, two ranks that share the GPU\n\n",
                 table(("call", "communicator", "Weft µs", "NCCL µs"),
                       [(r["name"], how, f"{r['weft_us']:.3f}", f"{r.get('nccl_us', float('nan')):.3f}")
                        for how, rows in found["host_cost_2"].items() for r in rows])]
    page += ["\n## What did not pass, or was not run\n\n"] + [f"- {fault}\n" for fault in found["faults"] or ["nothing"]]
    return "".join(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="what gpu_check.sh wrote, and where the pages go")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="GoogleTest's XML files")
    parser.add_argument("--device", default="", help="the GPU's name")
    parser.add_argument("--driver", default="", help="its version")
    parser.add_argument("--seconds", type=int, default=0, help="that all of it took")
    options = parser.parse_args()
    found = {
        "machine": {
            "device": options.device or "no GPU",
            "driver": options.driver or None,
            "cuda": first_match(["nvcc", "--version"], r"release (\S+),")
                    or first_match(["/usr/local/cuda/bin/nvcc", "--version"], r"release (\S+),"),
            "nccl": nccl_version(),
            "g++": first_match(["g++", "--version"], r"(\d+\.\d+\.\d+)"),
            "torch": first_match([sys.executable, "-c", "import torch; print(torch.__version__)"], r"(\S+)"),
            "commit": first_match(["git", "rev-parse", "--short", "HEAD"], r"(\S+)"),
            "seconds": options.seconds,
        },
        "steps": read_lines(options.folder / "steps.jsonl"),
        "tests": count_tests(options.results),
        "kernels": read_lines(options.folder / "kernels.jsonl"),
        "torch": read_lines(options.folder / "torch.jsonl"),
        "host_cost": read_lines(options.folder / "host_cost.jsonl"),
        # Two ranks on one GPU: no promise, but what NCCL's thread for each call costs.
        "host_cost_2": {how: read_lines(options.folder / f"host_cost_2_{number}.jsonl")
                        for number, how in enumerate(("non-blocking", "blocking"))},
        "torch_calls": read_lines(options.folder / "torch_calls.jsonl"),
        "training": list(training_speed(options.folder)),
        "collectives": read_lines(options.folder / "collectives.jsonl"),
    }
    found["faults"] = list(faults(found))
    (options.folder / "gpu_check.json").write_text(json.dumps(found, indent=1) + "\n")
    page = markdown(found)
    (options.folder / "gpu_check.md").write_text(page)
    print(page)
    sys.exit(1 if found["faults"] else 0)


if __name__ == "__main__":
    main()
