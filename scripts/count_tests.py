#!/usr/bin/env python3
"""Prints "PASSED FAILED" for a folder of test results; what was skipped or disabled is neither.

Usage: count_tests.py RESULTS, a folder with any of
  ctest.junit and one <test>.xml per GoogleTest program: the cases of each program, one for any other test; a program
    that failed without saying which case (a crash, a time-out) counts as one failure besides the cases it reported
  pytest.junit: its test cases
  torch.json: what tools/torch_compat/run_distributed_test.py wrote
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def gtest_counts(report: pathlib.Path) -> tuple[int, int]:
    passed = failed = 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None:
            failed += 1
        elif case.get("status") == "run" and case.get("result") == "completed" and case.find("skipped") is None:
            passed += 1
    return passed, failed


def ctest_counts(summary: pathlib.Path) -> tuple[int, int]:
    passed = failed = 0
    for test in ElementTree.parse(summary).getroot().iter("testcase"):
        status = test.get("status")
        report = summary.parent / (test.get("name", "") + ".xml")
        if status not in ("run", "fail"):
            continue  # disabled or skipped
        if report.exists():
            case_passed, case_failed = gtest_counts(report)
        else:
            case_passed, case_failed = (1 if status == "run" else 0), 0
        if status == "fail" and case_failed == 0:
            case_failed = 1
        passed += case_passed
        failed += case_failed
    return passed, failed


def pytest_counts(report: pathlib.Path) -> tuple[int, int]:
    passed = failed = 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is None:
            passed += 1
    return passed, failed


def torch_counts(report: pathlib.Path) -> tuple[int, int]:
    outcomes = [test["outcome"] for test in json.loads(report.read_text())["tests"].values()]
    return outcomes.count("passed"), outcomes.count("failed")


COUNTERS = {"ctest.junit": ctest_counts, "pytest.junit": pytest_counts, "torch.json": torch_counts}


def main() -> None:
    results = pathlib.Path(sys.argv[1])
    counts = [count(results / name) for name, count in COUNTERS.items() if (results / name).exists()]
    if not counts:
        sys.exit(f"count_tests: {results} holds no results")
    print(*(sum(column) for column in zip(*counts)))


if __name__ == "__main__":
    main()
