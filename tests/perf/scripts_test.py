#!/usr/bin/env python3
"""The judges must say FAIL when a bar is missed: fed with made-up measurements whose verdict is known."""
import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest

PERF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "perf")


def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(PERF, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


compare_peers = load("compare_peers")
check_overlap = load("check_overlap")


def line(peer, size, ours, theirs):
    return {"label": peer, "bytes": size, "call_us": ours, "cost_us": ours, "peer_call_us": theirs, "peer_cost_us": theirs,
            "limit_us": 0.1, "rounds_kept": 5}


class ComparePeers(unittest.TestCase):
    def verdict(self, lines):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            good = compare_peers.judge(compare_peers.SETTINGS["symmetric"], compare_peers.table_of(lines))
        return good, output.getvalue()

    def test_all_bars_hold(self):
        good, text = self.verdict([line("ob1", 8, 1.0, 3.1), line("ucx", 8, 1.0, 3.2)])
        self.assertTrue(good, text)

    def test_the_better_peer_counts(self):
        table = compare_peers.table_of([line("ob1", 8, 1.0, 3.1), line("ucx", 8, 1.5, 1.9)])
        self.assertEqual(table[8]["call_peer"], "ucx")
        self.assertAlmostEqual(table[8]["call_ratio"], 1.9 / 1.5)

    def test_one_slow_size_fails(self):
        lines = [line("ob1", size, 1.0, 9.0) for size in (8, 32, 128)] + [line("ob1", 512, 1.0, 1.5)]
        good, text = self.verdict(lines)
        self.assertFalse(good)
        self.assertIn("FAIL: symmetric call: lowest ratio (512 bytes)", text)

    def test_five_percent_are_allowed_below_but_not_in_the_mean(self):
        good, _ = self.verdict([line("ob1", 8, 1.0, 1.91), line("ob1", 32, 1.0, 9.0)])
        self.assertTrue(good)
        good, _ = self.verdict([line("ob1", 8, 1.0, 2.9)])
        self.assertFalse(good)

    def test_a_missing_figure_fails(self):
        good, _ = self.verdict([line("ob1", 8, 1.0, 9.0), line("ob1", 32, -1.0, 9.0)])
        self.assertFalse(good)


class CheckOverlap(unittest.TestCase):
    def verdict(self, **changed):
        weft = {"name": "weft", "link": "x", "ranks": 2, "step_ms": 10.0, "compute_ms": 9.5, "communication_ms": 5.0,
                "hidden_ms": 4.5, "hideable_ms": 5.0, "bound_ms": 9.6, **changed}
        runs = [weft, {"name": "no overlap", "step_ms": 12.0}, {"name": "no bucketing", "step_ms": 13.0},
                {"name": "MPI_Allreduce", "step_ms": 12.5}]
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            path = os.path.join(folder, "report.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"runs": runs}, file)
            before, sys.argv = sys.argv, ["check_overlap", path, path]
            try:
                return check_overlap.main()
            finally:
                sys.argv = before

    def test_all_bars_hold(self):
        self.assertEqual(self.verdict(), 0)

    def test_each_missed_bar_fails(self):
        for changed in ({"bound_ms": 9.0}, {"hidden_ms": 4.0}, {"step_ms": 12.4, "bound_ms": 12.0}):
            self.assertEqual(self.verdict(**changed), 1, changed)

    def test_an_unreadable_report_is_no_pass(self):
        with contextlib.redirect_stderr(io.StringIO()):
            before, sys.argv = sys.argv, ["check_overlap", "/nonexistent", "/nonexistent"]
            try:
                self.assertEqual(check_overlap.main(), 2)
            finally:
                sys.argv = before


if __name__ == "__main__":
    unittest.main()
