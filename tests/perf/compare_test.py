#!/usr/bin/env python3
"""compare.py, compare_peers.py and their pictures: fed with made-up measurements whose verdict is known."""
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

from perf_scripts import barriers, line, load, peer_line, works

compare_peers = load("compare_peers")
compare = load("compare")


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

    def test_a_disturbed_loop_without_calls_makes_no_call_cheap(self):
        cheap = {**line("ob1", 8, 1.0, 2.0), "cost_us": 0.1, "cost_base_us": 2.9}
        self.assertAlmostEqual(compare_peers.table_of([line("ob1", 8, 1.0, 2.0), cheap])[8]["cost_us"], 1.0)

    def test_launches_without_an_undisturbed_round_do_not_count(self):
        disturbed = {**line("ob1", 8, 0.1, 9.0), "rounds_kept": 0}
        self.assertAlmostEqual(compare_peers.table_of([line("ob1", 8, 1.0, 2.0), disturbed])[8]["call_ratio"], 2.0)
        good, text = self.verdict([disturbed])
        self.assertFalse(good)
        self.assertIn("NOTE: no undisturbed round at 8 bytes", text)

    def test_which_peer_is_the_better_one_has_to_be_known(self):
        for unknown in ({**line("ucx", 8, 1.0, 1.5), "rounds_kept": 0}, line("ucx", 8, 1.0, -1.0)):
            self.assertFalse(self.verdict([line("ob1", 8, 1.0, 9.0), unknown])[0])


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

    def test_a_size_that_no_other_library_was_measured_at_holds_no_bar(self):
        good, text = self.verdict([peer_line("weft private", size, 1.0) for size in (8, 32)] + [peer_line("a", 8, 9.0)])
        self.assertFalse(good)
        self.assertIn("FAIL: all_reduce, 2 ranks, private, call: lowest ratio (32 bytes) nan", text)

    def run_main(self, lines, *arguments):
        """Exit code and what is printed of a run that measures `lines`, of libraries that are all there but Weft's symmetric one."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as output, \
                unittest.mock.patch("compare.libraries_of", lambda _: [object()]), \
                unittest.mock.patch("compare.measure", lambda *_: lines), \
                unittest.mock.patch.object(sys, "argv", ["compare", "--output", os.path.join(folder, "x"), *arguments]):
            return compare.main(), output.getvalue()

    def test_a_weft_that_could_not_be_set_up_holds_no_bar(self):
        lines = [peer_line("weft private", 8, 1.0), peer_line("a", 8, 9.0)]
        self.assertEqual(self.run_main(lines, "--bars", "--libraries", "weft-private", "gloo")[0], 0)
        for measured in (lines, lines[1:]):
            code, text = self.run_main(measured, "--bars", "--libraries", "weft-private", "weft-symmetric", "gloo")
            self.assertEqual(code, 1)
            self.assertIn("FAIL: all_reduce, 2 ranks, symmetric: not measured", text)

    def test_bars_without_weft_are_refused(self):
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as left:
            self.run_main([], "--bars", "--libraries", "gloo")
        self.assertEqual(left.exception.code, 2)

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

    def test_what_is_lacking_is_asked_for_by_the_size_that_was_asked_for(self):
        seen = []

        class Fake:
            name = "x"

            def launch(self, op, ranks, iterations, rounds, sizes):
                seen.append(sizes)
                lines = [peer_line("", size // 12 * 12, 1.0, ranks=3) for size in sizes]  # three ranks' parts of whole floats
                return ["printf", "%s", "\n".join(map(json.dumps, lines))], dict(os.environ)

        options = type("Options", (), {"rounds": 1, "iters": 1, "minbytes": 32, "maxbytes": 128 << 10, "stepfactor": 64, "timeout": 60,
                                      "patience": 30, "barrier_us": None})
        compare.measure([Fake()], "all_gather", 3, options)
        sizes = [32, 2 << 10, 128 << 10]
        self.assertEqual(seen, [sizes, sizes] + 6 * [sizes[:2]], "large ones twice, small ones eight times")

    def test_a_turn_that_launches_nothing_is_the_last(self):
        turns = []

        class Fake:
            name = "x"

            def launch(self, *_):
                return ["echo", json.dumps(peer_line("x", 8, 1.0))], dict(os.environ)

        def lacking(*_):
            turns.append(1)
            return {"x": [7]} if len(turns) < 9 else {}  # no size of the series

        options = type("Options", (), {"rounds": 1, "iters": 1, "minbytes": 8, "maxbytes": 8, "stepfactor": 4, "timeout": 60, "patience": 30,
                                      "barrier_us": None})
        with unittest.mock.patch("compare.lacking", lacking):
            compare.measure([Fake()], "all_reduce", 2, options)
        self.assertEqual(len(turns), 1)

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

    @staticmethod
    def read(*lines):
        plot = load("plot")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.jsonl")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            return plot.best(plot.read([path]))

    def test_reads_what_the_scripts_write(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            options = type("Options", (), {"output": os.path.join(folder, "x"), "json": os.path.join(folder, "y.jsonl")})
            compare.write(options, compare.summary([peer_line("a", 8, 1.0), peer_line("a", 32, -1.0)]))
            compare_peers.write_json(options.json, compare_peers.SETTINGS["private"],
                                     compare_peers.table_of([line("ob1", 8, 1.0, 3.0), line("ob1", 32, 1.0, -1.0)]))
            plot = load("plot")
            table = plot.best(plot.read([options.output + ".jsonl", options.json]))
        self.assertEqual(table, {("all_reduce", 2): {"a (1)": {8: 1.0}, "weft private": {8: 1.0, 32: 1.0}, "mpi (linked)": {8: 3.0}}})

    def test_draws_lines_without_a_version(self):
        preloaded = {"library": "weft preload", "op": "allreduce", "memory": "private", "ranks": 2, "bytes": 8, "time_us": 1.0}
        self.assertEqual(self.read(preloaded), {("allreduce", 2): {"weft preload": {8: 1.0}}})

    def test_gpus_and_nccl_have_series_of_their_own(self):
        measured = {"library": "weft", "version": "1", "op": "all_reduce", "memory": "symmetric", "ranks": 2, "bytes": 8}
        table = self.read({**measured, "device": "cpu", "time_us": 1.0, "peer_call_us": 2.0, "peer": "mpi"},
                          {**measured, "device": "cuda", "time_us": 3.0, "peer_call_us": 4.0, "peer": "nccl"},
                          {**measured, "device": "cuda", "time_us": 5.0, "peer_call_us": 3.5})
        self.assertEqual(table["all_reduce", 2], {"weft symmetric (1)": {8: 1.0}, "mpi (linked)": {8: 2.0},
                                                  "weft symmetric cuda (1)": {8: 3.0}, "nccl (linked)": {8: 3.5}})

    def test_nothing_to_draw_is_an_error(self):
        with self.assertRaises(ValueError):
            load("plot").draw([], "/nonexistent/x.png")


if __name__ == "__main__":
    unittest.main()
