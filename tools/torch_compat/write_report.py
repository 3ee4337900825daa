#!/usr/bin/env python3
"""Writes docs/torch-compatibility.md from the results that scripts/torch_compat.sh left.

Usage: write_report.py RESULTS OUTPUT SECONDS; RESULTS holds BACKEND-RANKS.json of run_distributed_test.py for gloo and weft,
and pytest.junit of python/weft/tests; SECONDS is how long all that took.
"""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

BACKENDS = ["gloo", "weft"]
RANKS = [2, 4]

HEAD = """# Compatibility with PyTorch

What PyTorch's own tests, and ours of what they leave out, say about `init_process_group("weft")` beside gloo, torch's backend
for CPUs. Written by `make torch-compat`: {facts}.

| tests | backend | passed | failed | skipped |
|---|---|---|---|---|
{totals}

"Skipped" is what torch skips for gloo too, here or everywhere: tests for GPUs, for NCCL, for more ranks.

## Not within a backend's reach on CPUs

- DDP's log calls every plug-in's backend "custom"; `test_ddp_logging_data_cpu` is run with this one word put right.
- `test_accumulate_gradients_no_sync…` ask for the backend's name in their bodies and know gloo, MPI and NCCL: they are told
  "gloo" there. Everywhere else the name is "weft".
- `ProcessGroup` sequence numbers outside the DETAIL debug wrapper, `split_group` without an accelerator, SyncBatchNorm on CPU
  and torch's symmetric memory are torch's own code for its own backends.

"""


def load_torch(results: pathlib.Path) -> dict:
    return {
        (backend, ranks): json.loads((results / f"{backend}-{ranks}.json").read_text())
        for backend in BACKENDS
        for ranks in RANKS
    }


def load_own(report: pathlib.Path) -> dict:
    """{(file, test): {backend: (outcome, reason)}}; tests of what only weft has know no other backend."""
    tests = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name, _, options = case.get("name").rstrip("]").partition("[")
        options = options.split("-") if options else []
        backend = next((option for option in options if option in BACKENDS), "weft")
        rest = "-".join(option for option in options if option != backend)
        file = case.get("classname").rpartition(".")[2]
        outcome = ("passed", "")
        for kind in ("failure", "error", "skipped"):
            found = case.find(kind)
            if found is not None:
                outcome = ("skipped" if kind == "skipped" else "failed", found.get("message", ""))
        tests.setdefault((file, f"{name}[{rest}]" if rest else name), {})[backend] = outcome
    return tests


def brief(reason: str) -> str:
    lines = [line.strip() for line in reason.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
    text = (lines or [line for line in reason.splitlines() if line.strip()] or [""])[-1]
    return re.sub(r"\s+", " ", text.replace("|", "\\|"))[:160]


def cell(outcome: tuple) -> str:
    kind, reason = outcome
    if kind == "passed":
        return "passed"
    return f"**failed**: {brief(reason)}" if kind == "failed" else f"skipped: {brief(reason)}"


def count(outcomes) -> str:
    outcomes = list(outcomes)
    return " | ".join(str(outcomes.count(kind)) for kind in ("passed", "failed", "skipped"))


def totals(torch_results: dict, own: dict) -> list[str]:
    rows = []
    for ranks in RANKS:
        for backend in BACKENDS:
            tests = torch_results[backend, ranks]["tests"].values()
            rows.append(f"| torch's DistributedTest, {ranks} ranks | {backend} | {count(test['outcome'] for test in tests)} |")
    for backend in BACKENDS:
        outcomes = [outcomes[backend][0] for outcomes in own.values() if backend in outcomes]
        rows.append(f"| `python/weft/tests` | {backend} | {count(outcomes)} |")
    return rows


def torch_section(results: dict) -> list[str]:
    columns = [(backend, ranks) for ranks in RANKS for backend in BACKENDS]
    names = sorted(set().union(*(results[column]["tests"] for column in columns)))

    def outcome(name, column):
        test = results[column]["tests"].get(name, {"outcome": "missing", "reason": ""})
        return test["outcome"], test["reason"]

    lines = ["## torch's DistributedTest", "", "| test | " + " | ".join(f"{backend}, {ranks} ranks" for backend, ranks in columns)]
    lines[-1] += " |"
    lines.append("|---" * (len(columns) + 1) + "|")
    skipped = {}
    for name in names:
        outcomes = [outcome(name, column) for column in columns]
        if all(kind == "skipped" for kind, _ in outcomes):
            reasons = "; ".join(dict.fromkeys(brief(reason) for _, reason in outcomes))
            skipped.setdefault(reasons, []).append(name)
        else:
            lines.append(f"| {name} | " + " | ".join(map(cell, outcomes)) + " |")
    lines += ["", "Skipped on both backends with 2 and with 4 ranks:", "", "| torch's reason | tests |", "|---|---|"]
    lines += [f"| {reason} | {', '.join(tests)} |" for reason, tests in sorted(skipped.items())]
    return lines


def own_section(own: dict) -> list[str]:
    lines = [
        "## python/weft/tests",
        "",
        "The wheel of torch carries no tests of functional collectives, FSDP2, DTensor, pipelines or checkpoints. These check what",
        "they guarantee: that a parallel run computes what one process computes, and that what is saved is loaded, on however many",
        "ranks. Tests without a result for gloo (–) are about what only weft has.",
        "",
        "| file | test | gloo | weft |",
        "|---|---|---|---|",
    ]
    for (file, test), outcomes in sorted(own.items()):
        lines.append(f"| {file} | {test} | " + " | ".join(cell(outcomes[b]) if b in outcomes else "–" for b in BACKENDS) + " |")
    return lines


def facts(torch_results: dict, seconds: int) -> str:
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True).stdout.strip()
    torch_version = torch_results["weft", 2]["torch"]
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    took = f"{round(seconds / 60)} minutes"
    return f"torch {torch_version}, Python {platform.python_version()}, {machine}, commit {commit}, in {took}"


def main() -> None:
    results, output, seconds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    torch_results, own = load_torch(results), load_own(results / "pytest.junit")
    text = HEAD.format(facts=facts(torch_results, seconds), totals="\n".join(totals(torch_results, own)))
    output.write_text("\n".join([text + "\n".join(torch_section(torch_results)), "", *own_section(own)]) + "\n")
    worse = [
        (name, ranks)
        for ranks in RANKS
        for name, test in torch_results["gloo", ranks]["tests"].items()
        if test["outcome"] == "passed" and torch_results["weft", ranks]["tests"].get(name, {}).get("outcome") != "passed"
    ]
    for name, ranks in worse:
        print(f"{name} with {ranks} ranks passes on gloo and not on weft")
    print(f"wrote {output}")
    sys.exit(1 if worse or any("failed" in (kind for kind, _ in outcomes.values()) for outcomes in own.values()) else 0)


if __name__ == "__main__":
    main()
