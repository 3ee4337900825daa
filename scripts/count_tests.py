#!/usr/bin/env python3
"""Prints "PASSED FAILED" for a ctest run: the GoogleTest cases of each program, one for any other test.

Usage: count_tests.py RESULTS, a folder with ctest.junit and one <test>.xml per GoogleTest program. A program that
failed without saying which case (a crash, a time-out) counts as one failure besides the cases it reported.
"""
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


def main() -> None:
    results = pathlib.Path(sys.argv[1])
    passed = failed = 0
    for test in ElementTree.parse(results / "ctest.junit").getroot().iter("testcase"):
        status = test.get("status")
        report = results / (test.get("name", "") + ".xml")
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
    print(passed, failed)


if __name__ == "__main__":
    main()
