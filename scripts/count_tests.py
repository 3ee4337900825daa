#!/usr/bin/env python3
"""Prints "PASSED FAILED" for a folder of test results, then a line with the name of each that failed; what was skipped
or disabled is neither.

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


def gtest_results(report: pathlib.Path) -> tuple[int, list[str]]:
    passed, failed = 0, []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None:
            failed.append(f"{report.stem}: {case.get('classname')}.{case.get('name')}")
        elif case.get("status") == "run" and case.get("result") == "completed" and case.find("skipped") is None:
            passed += 1
    return passed, failed


def ctest_results(summary: pathlib.Path) -> tuple[int, list[str]]:
    passed, failed = 0, []
    for test in ElementTree.parse(summary).getroot().iter("testcase"):
        status, name = test.get("status"), test.get("name", "")
        if status not in ("run", "fail"):
            continue  # disabled or skipped
        report = summary.parent / f"{name}.xml"
        cases_passed, cases_failed = gtest_results(report) if report.exists() else (int(status == "run"), [])
        if status == "fail" and not cases_failed:
            cases_failed = [f"{name}: crashed, ran out of time, or failed outside of a test"]
        passed += cases_passed
        failed += cases_failed
    return passed, failed


def pytest_results(report: pathlib.Path) -> tuple[int, list[str]]:
    passed, failed = 0, []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is None:
            passed += 1
    return passed, failed


def torch_results(report: pathlib.Path) -> tuple[int, list[str]]:
    outcomes = {name: test["outcome"] for name, test in json.loads(report.read_text())["tests"].items()}
    failed = [name for name, outcome in outcomes.items() if outcome == "failed"]
    return list(outcomes.values()).count("passed"), failed


READERS = {"ctest.junit": ctest_results, "pytest.junit": pytest_results, "torch.json": torch_results}


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    results = [read(folder / name) for name, read in READERS.items() if (folder / name).exists()]
    if not results:
        sys.exit(f"count_tests: {folder} holds no results")
    failed = [name for _, names in results for name in names]
    print(sum(passed for passed, _ in results), len(failed))
    for name in failed:
        print(name)


if __name__ == "__main__":
    main()
