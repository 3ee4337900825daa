#!/usr/bin/env python3
"""The judges must say FAIL when a bar is missed: fed with made-up measurements whose verdict is known."""
import contextlib
import importlib.util
import io
import json
import math
import os
import sys
import tempfile
import unittest
import unittest.mock

PERF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "perf")


sys.path.insert(0, PERF)  # compare.py's own imports
sys.dont_write_bytecode = True


def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(PERF, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


compare_peers = load("compare_peers")
check_overlap = load("check_overlap")
check_baselines = load("check_baselines")
check_buckets = load("check_buckets")
check_strategies = load("check_strategies")
compare = load("compare")


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


def peer_line(library, size, call, canary=1.0, **changes):
    return {"library": library, "version": "1", "op": "all_reduce", "memory": "private", "ranks": 2, "bytes": size,
            "time_us": call, "call_us": call, "cost_us": call, "call_base_us": 0, "cost_base_us": 2.0,
            "canary_copy_us": 30 * canary, "canary_barrier_us": 0.1, "canary_barrier_least_us": 0.1, "canary_work_us": 20, "canary_work_least_us": 20, "wrong": 0, **changes}


def barriers(least, most):
    return {"canary_barrier_least_us": least, "canary_barrier_us": most}


def works(least, most):
    return {"canary_work_least_us": least, "canary_work_us": most}


@unittest.mock.patch("compare.crowded", lambda ranks: ranks > 2)
class Compare(unittest.TestCase):
    def verdict(self, lines):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            rows = compare.summary(lines)
            wefts = [name for name in dict.fromkeys(row["library"] for row in rows) if name.startswith("weft")]
            good = compare.judge(rows, rows[0]["op"], rows[0]["ranks"], wefts)
        return good, output.getvalue()

    def test_what_gave_no_figures_holds_no_bar(self):
        rows = compare.summary([peer_line("weft private", 8, 1.0), peer_line("a", 8, 9.0)])
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertTrue(compare.judge(rows, "all_reduce", 2, ["weft private"]))
            self.assertFalse(compare.judge(rows, "all_reduce", 2, ["weft private", "weft symmetric"]))
            self.assertFalse(compare.judge(compare.summary([peer_line("weft private", 8, 1.0)]), "all_reduce", 2, ["weft private"]))
        self.assertIn("FAIL: all_reduce, 2 ranks, symmetric: not measured", output.getvalue())
        self.assertIn("FAIL: all_reduce, 2 ranks, private: nothing to compare with", output.getvalue())

    def test_disturbed_rounds_do_not_count(self):
        rows = compare.summary([peer_line("x", 8, 2.0), peer_line("x", 8, 1.0, canary=1.4), peer_line("x", 32, 5.0, canary=2)])
        self.assertEqual([(row["bytes"], row["time_us"], row["counted"]) for row in rows], [(8, 2.0, True), (32, 5.0, True)],
                         "copies compare with those of their size")

    def test_a_disturbed_loop_without_calls_makes_no_call_cheap(self):
        usual, cheap = peer_line("x", 8, 10.0), peer_line("x", 8, 10.0, cost_us=1.0, cost_base_us=11.5)
        self.assertAlmostEqual(compare.summary([usual, cheap])[0]["cost_us"], 10.0)
        self.assertTrue(math.isnan(compare.summary([{**cheap, "cost_us": -1}])[0]["cost_us"]))

    def test_less_than_loads_and_stores_take_is_measured_again(self):
        library = type("Library", (), {"name": "x"})
        lines = 2 * [peer_line("x", 1 << 20, 100.0, limit_us=80.0, cost_us=19.0)]
        self.assertTrue(math.isnan(compare.summary(lines)[0]["cost_us"]))
        self.assertEqual(compare.lacking(lines, [library]), {"x": [1 << 20]})
        lines.append(peer_line("x", 1 << 20, 100.0, limit_us=80.0, cost_us=110.0, cost_base_us=0.5))
        self.assertEqual(compare.summary(lines)[0]["cost_us"], 20.5)
        self.assertEqual(compare.lacking(lines, [library]), {})
        self.assertEqual(compare.summary([peer_line("x", 8, 1.0, limit_us=8.0)])[0]["cost_us"], 1.0, "ranks run ahead")

    def test_figures_count_at_the_nearest_distance_at_which_a_third_was_met(self):
        near, far = barriers(0.1, 0.1), barriers(0.3, 0.3)
        lines = [peer_line("x", 8, 3.0, **far), peer_line("y", 8, 4.0, **far)]
        one = peer_line("x", 8, 1.0, **near)
        rows = compare.summary(lines + [one])
        self.assertEqual([(row["library"], row["time_us"], row["counted"]) for row in rows],
                         [("x", 1.0, True), ("y", 4.0, False)])
        rows = compare.summary(lines * 3 + [one])
        self.assertEqual([(row["time_us"], row["counted"]) for row in rows], [(3.0, True), (4.0, True)])
        self.assertAlmostEqual(compare.common([peer_line("x", 8, 1.0, **barriers(us, us)) for us in (0.1, 0.11, 0.12)])["barrier"], 0.11)

    def test_figures_of_cores_that_also_worked_for_others_count_where_most_did(self):
        alone, shared = works(20, 20), works(35, 35)
        lines = [peer_line("x", 8, 2.0, **shared), peer_line("y", 8, 4.0, **shared)]
        rows = compare.summary(lines + [peer_line("x", 8, 1.5, **alone), peer_line("x", 8, 1.0, **works(20, 35))])
        self.assertEqual([(row["time_us"], row["counted"], row["work_us"]) for row in rows], [(2.0, True, 35), (4.0, True, 35)])
        rows = compare.summary(lines + [peer_line("x", 8, 1.5, **alone)])
        self.assertEqual([(row["time_us"], row["counted"], row["work_us"]) for row in rows], [(1.5, True, 20), (4.0, False, 20)])

    def test_work_is_told_of_the_lines_at_the_distance_that_counts(self):
        near, far = barriers(0.1, 0.1), barriers(0.3, 0.3)
        lines = [peer_line("x", 8, 1.0, **near, **works(35, 35))] + 2 * [peer_line("x", 8, 3.0, **far)]
        self.assertEqual(compare.common(lines), {"barrier": 0.1, "work": 35})

    def test_launches_wait_for_the_distance_of_the_rounds_before(self):
        seen = []

        class Fake:
            name = "x"

            def launch(self, *_):
                seen.append((os.environ.get("WEFT_PERF_BARRIER_US"), os.environ.get("WEFT_PERF_WORK_US")))
                return ["echo", json.dumps(peer_line("x", 8, 1.0))], dict(os.environ)

        options = type("Options", (), {"rounds": 3, "iters": 1, "minbytes": 8, "maxbytes": 8, "stepfactor": 4, "timeout": 60, "patience": 0,
                                      "barrier_us": None})
        nothing = (None, None)
        for ranks, later in ((2, ("0.1000", "20.0000")), (4, nothing)):
            seen.clear()
            lines = compare.measure([Fake()], "all_reduce", ranks, options)
            self.assertEqual((seen, len(lines)), ([nothing, later, later], 3))
            self.assertNotIn("WEFT_PERF_BARRIER_US", os.environ)
            self.assertNotIn("WEFT_PERF_WORK_US", os.environ)
        options.barrier_us = 0.2
        for ranks, first, later in ((2, ("0.2000", None), ("0.2000", "20.0000")), (4, nothing, nothing)):
            seen.clear()
            compare.measure([Fake()], "all_reduce", ranks, options)
            self.assertEqual(seen, [first, later, later])

    def test_only_the_distance_that_was_asked_for_counts(self):
        asked = {"asked": {"barrier": 0.3}}
        lines = 3 * [peer_line("x", 8, 1.0, **barriers(0.1, 0.1), **asked)]
        self.assertEqual([row["counted"] for row in compare.summary(lines)], [False])
        lines.append(peer_line("x", 8, 3.0, **barriers(0.31, 0.31), **asked))
        self.assertEqual(compare.common(lines)["barrier"], 0.3)
        self.assertEqual([(row["time_us"], row["counted"]) for row in compare.summary(lines)], [(3.0, True)])

    def test_rounds_that_were_moved_count_at_neither_distance(self):
        lines = [peer_line("x", 8, 3.0, **barriers(0.3, 0.3)), peer_line("x", 8, 1.0, **barriers(0.1, 0.3)),
                 peer_line("y", 8, 4.0, **barriers(0.3, 0.3))]
        self.assertEqual([row["time_us"] for row in compare.summary(lines)], [3.0, 4.0])

    def test_sizes_are_lacking_until_a_library_was_met_there_twice(self):
        libraries = [type("Library", (), {"name": name}) for name in ("x", "y")]
        some = [64 << 10, 256 << 10]
        lines = [peer_line(name, size, 1.0) for name in ("x", "y") for size in some]
        self.assertEqual(compare.lacking([], libraries), {})
        self.assertEqual(compare.lacking(lines, libraries), {"x": some, "y": some})
        self.assertEqual(compare.lacking(lines, libraries[:1]), {"x": some})
        self.assertEqual(compare.lacking(2 * lines, libraries), {})
        far = [{**lines[0], **barriers(0.3, 0.3)}]
        self.assertEqual(compare.lacking(lines + lines[1:] + far, libraries), {"x": some[:1]})
        small = [peer_line("x", 8, 1.0)]
        self.assertEqual([compare.lacking(times * small, libraries) for times in (7, 8)], [{"x": [8]}, {}])

    def test_rounds_beyond_those_asked_for_measure_what_is_lacking(self):
        seen = []

        class Fake:
            def __init__(self, name):
                self.name = name

            def launch(self, op, ranks, iterations, rounds, sizes):
                seen.append((self.name, sizes))
                moved = self.name == "x" and len(seen) < 9  # at all but 1 MiB
                lines = [peer_line("", size, 1.0, **(barriers(0.3, 0.3) if moved and size != 1 << 20 else {})) for size in sizes]
                return ["printf", "%s", "\n".join(map(json.dumps, lines))], dict(os.environ)

        options = type("Options", (), {"rounds": 2, "iters": 1, "minbytes": 64 << 10, "maxbytes": 4 << 20, "stepfactor": 4, "timeout": 60, "patience": 60,
                                      "barrier_us": None})
        compare.measure([Fake("x"), Fake("y")], "all_reduce", 2, options)
        sizes = [64 << 10, 256 << 10, 1 << 20, 4 << 20]
        self.assertEqual(seen[:4], [("x", sizes), ("y", sizes), ("y", sizes), ("x", sizes)])
        self.assertEqual(seen[4:], 4 * [("x", sizes[:2]), ("x", sizes[3:])], "two disturbed, two that count")
        seen.clear()
        options.patience = 0
        compare.measure([Fake("x"), Fake("y")], "all_reduce", 2, options)
        self.assertEqual(len(seen), 4)

    def test_where_ranks_take_turns_barriers_tell_no_distance(self):
        crowd = {"ranks": 4}
        lines = [peer_line("x", 8, 2.0, canary_barrier_us=3.0, **crowd), peer_line("x", 8, 1.0, canary_barrier_us=9.0, **crowd),
                 peer_line("y", 32, 7.0, **crowd), peer_line("x", 32, 5.0, canary=2, canary_barrier_us=3.0, **crowd)]
        rows = compare.summary(lines)
        self.assertEqual([(row["time_us"], row["counted"]) for row in rows], [(1.0, True), (7.0, True), (5.0, False)])
        library = type("Library", (), {"name": "x"})
        self.assertEqual(compare.lacking(4 * lines[:2], [library]), {})
        self.assertEqual(compare.lacking(4 * lines, [library]), {"x": [32]}, "32 bytes were only met disturbed")

    def test_sizes_without_an_element_for_each_rank_are_left_out(self):
        text = "\n".join(json.dumps(peer_line("", size, 1.0)) for size in (0, 32))
        library = type("Library", (), {"name": "x", "launch": lambda *_: (["printf", "%s", text], dict(os.environ))})
        options = type("Options", (), {"iters": 1, "timeout": 60})
        lines = compare.measure_once(library, "all_gather", 4, options, [8, 32])
        self.assertEqual([(line["library"], line["bytes"]) for line in lines], [("x", 32)])

    def test_the_best_library_of_each_size_counts(self):
        rows = compare.summary([peer_line("weft symmetric", 8, 1.0, memory="symmetric"), peer_line("a", 8, 3.0), peer_line("b", 8, 2.0)])
        self.assertEqual(compare.ratios_of(rows, "weft symmetric", "time_us"), {8: 2.0})

    def test_bars(self):
        weft = [peer_line("weft private", size, 1.0) for size in (8, 32)]
        good, text = self.verdict(weft + [peer_line("a", 8, 1.6), peer_line("a", 32, 1.6)])
        self.assertTrue(good, text)
        good, text = self.verdict(weft + [peer_line("a", 8, 9.0), peer_line("a", 32, 0.9)])
        self.assertFalse(good)
        self.assertIn("FAIL: all_reduce, 2 ranks, private, call: lowest ratio (32 bytes) 0.90", text)

    def test_noise_is_no_proof(self):
        self.assertFalse(self.verdict([peer_line("weft private", 8, -1.0), peer_line("a", 8, 9.0)])[0])

    def test_a_library_that_fails_is_left_out_with_all_its_lines(self):
        class Fake:
            def __init__(self, name, fails):
                self.name, self.fails, self.rounds = name, fails, 0

            def launch(self, *_):
                self.rounds += 1
                if self.fails and self.rounds == 2:
                    return [sys.executable, "-c", "raise SystemExit('broken')"], dict(os.environ)
                return [sys.executable, "-c", f"print({json.dumps(json.dumps(peer_line(self.name, 8, 1.0)))})"], dict(os.environ)

        class Options:
            minbytes, maxbytes, stepfactor, iters, rounds, timeout, patience, barrier_us = 8, 8, 4, 1, 3, 30, 0, None

        with contextlib.redirect_stdout(io.StringIO()) as output:
            lines = compare.measure([Fake("good", False), Fake("bad", True)], "all_reduce", 2, Options)
        self.assertEqual({line["library"] for line in lines}, {"good"})
        self.assertEqual(len(lines), 3)
        self.assertIn("bad left out: left with 1: broken", output.getvalue())


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


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class Plot(unittest.TestCase):
    def test_draws_one_line_a_library(self):
        plot = load("plot")
        lines = [peer_line(library, size, size / 10) for library in ("weft private", "a") for size in (8, 32)]
        table = plot.best(lines)
        self.assertEqual(set(table[("all_reduce", 2)]), {"weft private (1)", "a (1)"})
        with tempfile.TemporaryDirectory() as folder:
            plot.draw(lines, os.path.join(folder, "x.png"))
            self.assertGreater(os.path.getsize(os.path.join(folder, "x.png")), 10000)

    def test_nothing_to_draw_is_an_error(self):
        with self.assertRaises(ValueError):
            load("plot").draw([], "/nonexistent/x.png")


if __name__ == "__main__":
    unittest.main()
