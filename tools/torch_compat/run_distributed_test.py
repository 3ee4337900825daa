#!/usr/bin/env python3
"""Runs torch's own DistributedTest on a backend that torch does not know, on the CPU, and writes what became of each test.

The decorators of torch.testing._internal.distributed.distributed_test decide when the module is imported which tests a
backend gets, from a fixed list of names. It is imported as for gloo, so that the backend gets exactly gloo's tests; only
then is the backend's own name put in. Ranks start by fork, which takes a tenth of a second where spawn takes eight.

The result is JSON: {"backend", "ranks", "torch", "seconds", "tests": {name: {"outcome": "passed" | "failed" | "skipped",
"reason", "seconds"}}}; the exit code tells whether every test passed or was skipped.
"""
import argparse
import fnmatch
import json
import logging
import os
import pathlib
import sys
import tempfile
import time
import unittest


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="weft", help="that is tested (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="of each test (default: %(default)s)")
    parser.add_argument("--tests", nargs="+", default=["test_*"], help="names or patterns (default: all)")
    parser.add_argument("--tests-from", type=pathlib.Path, help="a file of names, one a line, instead of --tests")
    parser.add_argument("--seconds-per-test", type=int, default=100, help="then it has failed (default: 100)")
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    return parser.parse_args()


def import_tests_as_gloo(ranks: int):
    """torch's test module with gloo's choice of tests, and the module it takes its helpers from."""
    os.environ.update(
        BACKEND="gloo",
        WORLD_SIZE=str(ranks),
        TEMP_DIR=tempfile.mkdtemp(prefix="torch-compat-"),
        CUDA_VISIBLE_DEVICES="",
        OMP_NUM_THREADS="1",
    )
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    return distributed_test, common_distributed


def introduce(backend: str, tests, helpers) -> None:
    """Makes the test module take `backend` for a backend that can all that gloo can."""
    tests.BACKEND = backend
    for backends in helpers.DistTestCases.backend_feature.values():
        if "gloo" in backends:
            backends.add(backend)
    for backends in (tests.PROFILING_SUPPORTED_BACKENDS, tests.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        if backend not in backends:
            backends.append(backend)

    # One test's body asks for the name and knows only four.
    base = tests.DistributedTest._DistTestBase
    accumulate = base._test_accumulate_gradients_no_sync

    def accumulate_as_on_gloo(self, *arguments, **options):
        tests.BACKEND = "gloo"  # the process group is there already; this is for the test's own decisions
        try:
            accumulate(self, *arguments, **options)
        finally:
            tests.BACKEND = backend

    base._test_accumulate_gradients_no_sync = accumulate_as_on_gloo

    # DDP calls every plug-in's backend "custom" in its log, whatever its name. This one word is put right, so that the
    # test that compares the log with the backend's name still checks all the rest of it.
    ddp = tests.DistributedDataParallel
    get_log = ddp._get_ddp_logging_data

    def log_with_the_name(self):
        log = get_log(self)
        return {**log, "backend_name": backend} if log.get("backend_name") == "custom" else log

    ddp._get_ddp_logging_data = log_with_the_name


def test_case(tests):
    import torch.multiprocessing

    class Forked(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Forked


class Recorder(unittest.TestResult):
    """Notes outcome, reason and duration of each test and prints a line for it."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def note(self, test, outcome, reason=""):
        name = test.id().split(".")[-1]
        seconds = round(time.monotonic() - self.started, 1)
        self.outcomes[name] = {"outcome": outcome, "reason": reason, "seconds": seconds}
        print(f"{outcome:8}{seconds:6.1f} s  {name}  {reason.splitlines()[-1] if reason else ''}", flush=True)

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addFailure(self, test, error):
        self.note(test, "failed", self._exc_info_to_string(error, test))

    addError = addFailure


def main() -> int:
    arguments = parse_arguments()
    tests, helpers = import_tests_as_gloo(arguments.ranks)
    introduce(arguments.backend, tests, helpers)
    helpers.get_timeout = lambda test_id: arguments.seconds_per_test
    logging.disable(logging.WARNING)
    import torch

    case = test_case(tests)
    patterns = arguments.tests
    if arguments.tests_from:
        patterns = [line.strip() for line in arguments.tests_from.read_text().splitlines() if line[:1] not in ("", "#")]
    names = [
        name
        for name in unittest.defaultTestLoader.getTestCaseNames(case)
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    if not names:
        sys.exit(f"no test of torch's DistributedTest is called {' or '.join(patterns)}")

    began = time.monotonic()
    recorder = Recorder()
    case.setUpClass()
    for name in names:
        case(name).run(recorder)
    case.tearDownClass()

    outcomes = [test["outcome"] for test in recorder.outcomes.values()]
    result = {
        "backend": arguments.backend,
        "ranks": arguments.ranks,
        "torch": torch.__version__,
        "seconds": round(time.monotonic() - began),
        "tests": recorder.outcomes,
    }
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in ("passed", "failed", "skipped"))
    print(f"{arguments.backend}, {arguments.ranks} ranks, {result['seconds']} s: {counts}")
    return 1 if "failed" in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
