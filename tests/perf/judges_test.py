#!/usr/bin/env python3
"""The judges must say FAIL when a bar is missed: fed with made-up measurements whose verdict is known."""
import ast
import contextlib
import glob
import io
import json
import os
import sys
import tempfile
import unittest
import unittest.mock

from perf_scripts import PERF, load

check_overlap = load("check_overlap")
check_baselines = load("check_baselines")
check_buckets = load("check_buckets")
check_scheduler = load("check_scheduler")
check_strategies = load("check_strategies")
hosts_perf = load("hosts_perf")


class CheckOverlap(unittest.TestCase):
    """Every bar by itself: a report that misses one of them and no other must fail and name it."""
    BARS = {
        "link: step over bound": ("link", "weft", {"bound_ms": 9.0}),
        "link: hidden over hideable": ("link", "weft", {"hidden_ms": 4.2}),
        "link: step over no overlap": ("link", "no overlap", {"step_ms": 9.9}),
        "link: step over no buckets": ("link", "no bucketing", {"step_ms": 9.9}),
        "plain: step over no overlap": ("plain", "no overlap", {"step_ms": 9.7}),
        "plain: step over one MPI call per tensor": ("plain", "MPI_Allreduce", {"step_ms": 9.9}),
    }

    @staticmethod
    def runs():
        weft = {"name": "weft", "link": "x", "ranks": 2, "step_ms": 10.0, "compute_ms": 9.5, "communication_ms": 5.0,
                "hidden_ms": 4.5, "hideable_ms": 5.0, "bound_ms": 9.6}
        return [weft, {"name": "no overlap", "step_ms": 12.0}, {"name": "no bucketing", "step_ms": 13.0},
                {"name": "MPI_Allreduce", "step_ms": 12.5}]

    def verdict(self, reports):
        """Exit code and the names of the bars that were missed."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as output, \
                contextlib.redirect_stderr(io.StringIO()):
            paths = [os.path.join(folder, name) for name in ("link", "plain")]
            for path in paths:
                with open(path, "w", encoding="utf-8") as file:
                    json.dump({"runs": reports[os.path.basename(path)]}, file)
            before, sys.argv = sys.argv, ["check_overlap", *paths]
            try:
                code = check_overlap.main()
            finally:
                sys.argv = before
        lines = output.getvalue().splitlines()
        judged = [line for line in lines if line.startswith(("PASS: ", "FAIL: "))]
        return code, {bar for bar in self.BARS for line in judged if line.startswith(f"FAIL: {bar} ")}, len(judged)

    def test_all_bars_hold(self):
        self.assertEqual(self.verdict({"link": self.runs(), "plain": self.runs()}), (0, set(), len(self.BARS)))

    def test_each_missed_bar_fails_by_its_name(self):
        for bar, (report, name, changed) in self.BARS.items():
            reports = {"link": self.runs(), "plain": self.runs()}
            next(run for run in reports[report] if run["name"] == name).update(changed)
            self.assertEqual(self.verdict(reports), (1, {bar}, len(self.BARS)), bar)

    def test_bars_allow_just_what_they_say(self):
        reports = {"link": self.runs(), "plain": self.runs()}
        reports["link"][0].update(bound_ms=10.0 / 1.0999, hidden_ms=4.251)
        reports["link"][1]["step_ms"] = reports["link"][2]["step_ms"] = 10.0
        reports["plain"][1]["step_ms"] = 10.0 / 1.0299
        self.assertEqual(self.verdict(reports), (0, set(), len(self.BARS)))

    def test_without_mpi_its_bar_is_skipped(self):
        reports = {"link": self.runs(), "plain": self.runs()[:3]}
        self.assertEqual(self.verdict(reports), (0, set(), len(self.BARS) - 1))

    def test_an_unusable_report_is_no_pass(self):
        for broken in ([], self.runs()[:1], [{**self.runs()[0], "hideable_ms": 0}, *self.runs()[1:]]):
            self.assertEqual(self.verdict({"link": broken, "plain": self.runs()})[0], 2)
        with contextlib.redirect_stderr(io.StringIO()):
            before, sys.argv = sys.argv, ["check_overlap", "/nonexistent", "/nonexistent"]
            try:
                self.assertEqual(check_overlap.main(), 2)
            finally:
                sys.argv = before


class HostsPerf(unittest.TestCase):
    def verdict(self, others):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            return hosts_perf.judge_all("weft", 1, 100.0, {8: 10.0, 4 << 20: 42_000.0}, others), output.getvalue()

    def test_bars(self):
        self.assertTrue(self.verdict([{8: 11.0, 4 << 20: 43_000.0}])[0])
        self.assertFalse(self.verdict([{8: 9.0, 4 << 20: 43_000.0}])[0])

    def test_without_another_library_no_bar_holds(self):
        good, text = self.verdict([])
        self.assertFalse(good)
        self.assertIn("FAIL: weft: nothing to compare with", text)


class CheckScheduler(unittest.TestCase):
    def test_only_8b_may_need_more_than_the_memory(self):
        options = type("Options", (), {"quick": False})
        with unittest.mock.patch("check_scheduler.plan", lambda *_: None):
            for name, missed in (("8B", {"1.3x"}), ("70B", {"80G", "1.3x"})):
                rows = list(check_scheduler.rows(options, name, ""))
                self.assertEqual({row[2] for row, held in rows if not held}, missed)
                self.assertEqual({row[2] for row, held in rows if "MISSED" in row[-1]}, missed)


class CheckTrainer(unittest.TestCase):
    """What is judged of runs of train_gpt."""

    @staticmethod
    def quietly(judge, *arguments):
        with contextlib.redirect_stdout(io.StringIO()):
            return judge(*arguments)

    def test_buckets_are_judged_by_the_best_cap(self):
        caps = {"cap 1 MiB": [100.0] * 4, "cap 2 MiB": [110.0] * 4}
        self.assertTrue(self.quietly(check_buckets.judge, {"weft": [101.9] * 4, **caps}))
        self.assertFalse(self.quietly(check_buckets.judge, {"weft": [102.1] * 4, **caps}))

    def test_both_bars_of_strategies(self):
        good = {"step_ms": 107.9, "compute_ms": 95.0, "communication_ms": 50.0, "bound_ms": 100.0, "hidden_ms": 45.1, "hideable_ms": 50.0}
        self.assertTrue(self.quietly(check_strategies.judge, "ddp", [good]))
        self.assertFalse(self.quietly(check_strategies.judge, "ddp", [{**good, "step_ms": 108.1}]))
        self.assertFalse(self.quietly(check_strategies.judge, "ddp", [{**good, "hidden_ms": 44.9}]))

    def test_a_run_that_fails_is_no_verdict(self):
        class Options:
            bin, ranks, steps = "/nonexistent", 2, 1

        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            Options.bin = folder
            with open(os.path.join(folder, "train_gpt"), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho broken >&2\nexit 1\n")
            os.chmod(file.name, 0o755)
            with self.assertRaises(SystemExit) as left:
                check_strategies.run(Options, "ddp", "auto")
        self.assertEqual(left.exception.code, 2)
        self.assertIn("left 1: broken", said.getvalue())


class CheckBaselines(unittest.TestCase):
    LINE = {"op": "all_reduce", "ranks": 2, "memory": "symmetric", "bytes": 8, "at_most": 2.0, "measured": 1.5}

    def verdict(self, time):
        with contextlib.redirect_stdout(io.StringIO()):
            return check_baselines.judge(self.LINE, {"time_us": time, "limit_us": 1.0, "rounds_kept": 1})[0]

    def test_thresholds(self):
        self.assertTrue(self.verdict(1.9))
        self.assertFalse(self.verdict(2.1))
        self.assertFalse(self.verdict(-0.1))

    def test_every_kept_line_is_complete(self):
        for path in sorted(os.listdir(os.path.join(PERF, "baselines"))):
            for kept in check_baselines.read(os.path.join(PERF, "baselines", path)):
                self.assertEqual(set(kept), set(self.LINE), path)


class Help(unittest.TestCase):
    def test_says_what_every_argument_is(self):
        root = os.path.join(PERF, "..")
        scripts = [path for folder in ("perf", "perf/*", "tools", "tools/*", "scripts", "examples")
                   for path in glob.glob(os.path.join(root, folder, "*.py"))]
        self.assertGreater(len(scripts), 30)
        for path in scripts:
            with open(path, encoding="utf-8") as file:
                calls = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Call)]
            for call in calls:
                if getattr(call.func, "attr", "") == "add_argument":
                    names = {keyword.arg for keyword in call.keywords}
                    self.assertIn("help", names, f"{os.path.relpath(path, root)}: {ast.unparse(call.args[0])}")


if __name__ == "__main__":
    unittest.main()
