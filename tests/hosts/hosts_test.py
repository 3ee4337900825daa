#!/usr/bin/env python3
"""Weft between test hosts: right results over their links, and every rank told what happened when a host fails.

    hosts_test.py PROBE

Skipped where test hosts are not permitted."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import hosts as test_hosts
import starts
from hosts import Hosts, Link

PROBE = ""
kPatience = 100  # seconds for what takes one or two, on a machine that is busy
kTimeoutMs = 5000  # of the calls that are disturbed
FAST = Link("4gbit")  # where nobody looks at times


def until(condition, what):
    deadline = time.monotonic() + kPatience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {kPatience} s for {what()}")
        time.sleep(0.02)


class Job:
    """hosts_probe on every host. `output` is what was said altogether, diary() what a rank wrote down. mpirun ends all ranks once one
    has failed, where `by` is "torchrun" nobody does."""

    def __init__(self, hosts, per_host, words, backend=None, by="mpirun", environment=None):
        self.hosts, self.size, self.by = hosts, per_host * len(hosts), by
        self._file = pathlib.Path("/dev/shm/output")
        for page in test_hosts.SHARED.glob("rank*"):
            page.unlink()
        program = [PROBE, *words]
        with open(self._file, "wb") as sink:
            if by == "torchrun":
                setting = ({"WEFT_BACKEND": backend} if backend else {}) | (environment or {})
                self.processes = starts.torchrun(hosts, per_host, program, setting, stdout=sink, stderr=subprocess.STDOUT)
            else:
                options = ["-x", f"WEFT_BACKEND={backend}"] if backend else []
                self.processes = [subprocess.Popen(starts.mpirun(hosts, per_host, program, options), stdout=sink,
                                                   stderr=subprocess.STDOUT, env=starts.mpi_environment())]

    @property
    def output(self):
        return self._file.read_text(encoding="utf-8", errors="replace")

    @staticmethod
    def diary(rank):
        page = test_hosts.SHARED / f"rank{rank}"
        return page.read_text(encoding="utf-8") if page.exists() else ""

    @staticmethod
    def ranks(host):
        """Process numbers of the host's ranks."""
        return sorted(pid for pid, command in host.processes().items() if pathlib.Path(command[0]).name == "hosts_probe")

    def process_of(self, rank):
        """Its process number. Those who bring ranks into a host may be faster than one another."""
        names = {f"RANK={rank}", f"OMPI_COMM_WORLD_RANK={rank}"}
        for host in self.hosts:
            for pid in self.ranks(host):
                if not names.isdisjoint(pathlib.Path(f"/proc/{pid}/environ").read_text(encoding="utf-8").split("\0")):
                    return pid
        raise AssertionError(f"rank {rank} does not run: {self.output}")

    def wait(self):
        """The first exit code that is not 0, else 0."""
        return next((code for code in [process.wait(kPatience) for process in self.processes] if code), 0)

    def close(self):
        if self.by == "torchrun":
            self._end_ranks()
        else:
            self.processes[0].kill()
        for process in self.processes:
            process.wait()

    def _end_ranks(self):
        """Those who have brought them into a host go on and end after them: a host ends when nobody's child is left in it."""
        for host in self.hosts:
            for pid in host.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.send_signal(signal.SIGCONT)  # it has stopped when the rank was


class Results(unittest.TestCase):
    """Every element is checked by the probe; here, that links carried what has to cross them."""

    kCounts = [1, 1009, 262_147, 2_097_152]

    def check(self, count_of_hosts, per_host, backend=None):
        with Hosts(count_of_hosts, FAST) as hosts:
            before = [host.bytes_sent() for host in hosts]
            job = Job(hosts, per_host, ["sums", *map(str, self.kCounts)], backend)
            self.assertEqual(0, job.wait(), job.output)
            self.assertEqual(job.size, job.output.count(": right"), job.output)
            sent = sum(host.bytes_sent() - start for host, start in zip(hosts, before))
            # B bytes of each of n ranks on h hosts: whatever the algorithm, an all_reduce takes 2(h-1)·B over the links in all, an
            # all_gather brings n·B to every host of which it had B per own rank, and a broadcast B to every host but one.
            whole = 4 * sum(self.kCounts)
            least = whole * (count_of_hosts - 1) * (2 + job.size + 1)
            self.assertGreaterEqual(sent, least, "less crossed the links than has to: some of it went another way")
            for host in hosts:
                self.assertEqual([], [name for name in host.shared_files() if "weft" in name])

    def test_two_hosts_of_one_rank(self):
        self.check(2, 1)

    def test_two_hosts_of_two_ranks(self):
        self.check(2, 2)

    def test_three_hosts(self):
        self.check(3, 1)

    def test_two_hosts_of_one_rank_over_mpi(self):
        self.check(2, 1, "mpi")

    def test_two_hosts_of_two_ranks_over_mpi(self):
        self.check(2, 2, "hierarchical")

    def test_four_hosts_over_mpi(self):
        self.check(4, 1, "mpi")


class Carriers(unittest.TestCase):
    """What carries bytes between hosts of ranks that MPI has started."""

    def explain(self, environment):
        """What rank 0 says of it, and that all was right."""
        options = [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
        with Hosts(2, FAST) as hosts:
            command = starts.mpirun(hosts, 1, [PROBE, "sums", "1009"], options)
            outcome = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=kPatience,
                                     env=starts.mpi_environment())
            self.assertEqual(0, outcome.returncode, outcome.stdout)
            self.assertEqual(2, outcome.stdout.count(": right"), outcome.stdout)
            return "".join(line for line in outcome.stdout.splitlines() if "carries what crosses hosts" in line)

    def test_the_faster_one_as_measured(self):
        self.assertRegex(self.explain({"WEFT_EXPLAIN": "1", "WEFT_TUNING_CACHE": "/dev/shm/tuning.json"}),
                         r"\[explain\] \S+ carries .*: 8 B take \S+ us by UCX and \S+ by MPI")

    def test_mpi_where_ucx_connects_nobody(self):
        self.assertRegex(self.explain({"WEFT_NET_DEVICES": "lo"}), r"\[warn\] MPI carries .*: rank \d: .*connecting over UCX")


class Torchrun(unittest.TestCase):
    """C++ programs with nothing but torchrun's variables: they meet at MASTER_ADDR and talk over UCX."""

    @staticmethod
    def run_ranks(hosts, per_host, words, environment=None):
        """What each rank said, once all have ended well."""
        ranks = starts.torchrun(hosts, per_host, [PROBE, *words], environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = [rank.communicate(timeout=kPatience)[0] for rank in ranks]
        failed = [f"rank {number}: {text}" for number, (rank, text) in enumerate(zip(ranks, said)) if rank.returncode]
        if failed:
            raise AssertionError("\n".join(failed))
        return said

    def test_ranks_of_two_hosts_meet(self):
        with Hosts(2, FAST) as hosts:
            before = [host.bytes_sent() for host in hosts]
            said = self.run_ranks(hosts, 2, ["sums", "1", "1009", "1048576"])
            self.assertEqual([f"rank {rank} of 4: right\n" for rank in range(4)], said)
            for host, start in zip(hosts, before):
                self.assertGreater(host.bytes_sent() - start, 4 * 1048576)

    def test_two_rails(self):
        """Which of the other host's interfaces UCX joins each with is its own choice: both may lead over one link."""
        count = 1 << 20
        with Hosts(2, FAST, rails=2) as hosts:
            said = self.run_ranks(hosts, 2, ["sums", "1", "1009", str(count)], {"WEFT_NET_DEVICES": "eth0,eth1"})
            self.assertEqual([f"rank {rank} of 4: right\n" for rank in range(4)], said)
            for host in hosts:
                self.assertGreater(host.bytes_sent(), 4 * count)

    def test_an_address_of_nobody_is_named(self):
        with Hosts(2, FAST) as hosts:
            ranks = starts.torchrun(hosts, 1, [PROBE, "sums", "1"], {"MASTER_ADDR": "10.255.255.1", "WEFT_TIMEOUT": "1s"},
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said = [rank.communicate(timeout=kPatience)[0] for rank in ranks]
        self.assertTrue(all(rank.returncode for rank in ranks), said)
        self.assertIn("none of the addresses of this host, where rank 0 is", said[0])
        self.assertIn("can this host reach 10.255.255.1:29500", said[1])

    def test_a_network_that_is_not_there_is_named(self):
        with Hosts(2, FAST) as hosts:
            ranks = starts.torchrun(hosts, 1, [PROBE, "sums", "1"], {"WEFT_NET_DEVICES": "eth7"}, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
            said = [rank.communicate(timeout=kPatience)[0] for rank in ranks]
        self.assertTrue(all(rank.returncode for rank in ranks), said)
        for text in said:
            self.assertIn('no network interface "eth7" that is up; it has eth0, lo', text)

    def test_perf_programs_need_no_memory_in_common(self):
        perf = pathlib.Path(PROBE).with_name("all_reduce_perf")
        if not perf.exists():
            self.skipTest(f"{perf} is not built")
        with Hosts(2, FAST) as hosts:
            words = ["env", "-u", "WEFT_PERF_BOARD", str(perf), "-b", "4K", "-e", "4K", "-n", "1", "-w", "1", "--rounds", "1"]
            ranks = starts.torchrun(hosts, 1, words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said = [rank.communicate(timeout=kPatience)[0] for rank in ranks]
        self.assertEqual([0, 0], [rank.returncode for rank in ranks], said)
        self.assertRegex(said[0], r"Rank  0 .* on +host0 ")
        self.assertRegex(said[0], r"Rank  1 .* on +host1 ")
        self.assertIn("Out of bounds values : 0 OK", said[0])

    def test_fewer_bits_are_fewer_bytes(self):
        count = 1 << 20
        sent = {}
        for wire in ("f32", "bf16", "fp8"):
            with Hosts(2, FAST) as hosts:
                before = [host.bytes_sent() for host in hosts]
                self.run_ranks(hosts, 2, ["averages", "1025", str(count)], {"WEFT_WIRE": wire, "WEFT_TUNING_CACHE": "0"})
                sent[wire] = sum(host.bytes_sent() - start for host, start in zip(hosts, before))
        self.assertGreaterEqual(sent["f32"], 2 * 4 * count)
        self.assertLess(sent["bf16"], 0.55 * sent["f32"], sent)
        self.assertLess(sent["fp8"], 0.30 * sent["f32"], sent)


class Failures(unittest.TestCase):
    """Hosts of two ranks; something happens to the last rank, or to its host's link."""

    backend = "hierarchical"  # MPI between hosts
    by = "mpirun"
    count = 1000  # elements of a call
    operation = "all_reduce"
    count_of_hosts = 2
    rails = 1
    environment = {}

    def setUp(self):
        self.hosts = Hosts(self.count_of_hosts, FAST, self.rails)
        self.last = 2 * self.count_of_hosts - 1
        self.addCleanup(self.hosts.close)
        words = ["loop", str(kTimeoutMs), str(test_hosts.SHARED), str(self.count), self.operation]
        self.job = Job(self.hosts, 2, words, self.backend, self.by, self.environment)
        self.addCleanup(self.job.close)
        until(lambda: all("goes on" in self.job.diary(rank) for rank in range(self.last + 1)), lambda: "ranks to go on: " + self.job.output)

    def expect(self, rank, culprits):
        """`rank` has said that one of the `culprits` is to blame."""
        until(lambda: "failed" in self.job.diary(rank), lambda: f"rank {rank}'s failure: {self.job.output}")
        self.assertRegex(self.job.diary(rank), rf"failed: .*rank ({'|'.join(map(str, culprits))}) ")

    def expect_nothing_left(self):
        until(lambda: not any(self.job.ranks(host) for host in self.hosts), lambda: "the ranks to end")
        for host in self.hosts:
            self.assertEqual([], [name for name in host.shared_files() if "weft" in name])

    def test_a_stopped_rank_is_named(self):
        stopped = self.job.process_of(self.last)
        os.kill(stopped, signal.SIGSTOP)
        for rank in range(self.last):
            self.expect(rank, [self.last])
        if self.by == "torchrun":
            os.kill(stopped, signal.SIGKILL)  # as its agent would
        self.expect_nothing_left()

    def test_a_killed_rank_ends_the_job(self):
        os.kill(self.job.process_of(self.last), signal.SIGKILL)
        self.assertNotEqual(0, self.job.wait())
        self.assertIn(f"rank {self.last}", self.job.output)
        self.expect_nothing_left()

    def test_a_cut_link_is_noticed_on_both_sides(self):
        self.hosts[-1].cut()
        self.expect_both_sides()

    def expect_both_sides(self):
        """The last host's ranks blame others, and those them."""
        own, others = [self.last - 1, self.last], range(self.last - 1)
        for rank in range(self.last + 1):
            self.expect(rank, others if rank in own else own)
        self.expect_nothing_left()


class FailuresOverUcx(Failures):
    backend = "hierarchical_ucx"


class FailuresInChunks(Failures):
    """Calls of several chunks, which are under way on both levels when it happens: some ranks wait for their host's, others for the
    other host's, and all find who keeps everybody waiting."""

    backend = "hierarchical_ucx"
    by = "torchrun"
    count = 300_000

    def expect(self, rank, culprits):
        super().expect(rank, culprits)
        one = "|".join(map(str, culprits))
        self.assertRegex(self.job.diary(rank), rf"failed: rank ({one}) (did not complete|is lost|left|\(pid \d+\) died)")
        self.assertRegex(self.job.diary(rank), rf"{self.operation}\(\d+ × ")  # the program's call, whichever step it was at
        self.assertRegex(self.job.diary(rank), rf"\(rank ({one}) is on host\d\)")

    def test_a_killed_rank_ends_the_job(self):
        os.kill(self.job.process_of(self.last), signal.SIGKILL)
        for rank in range(self.last):
            self.expect(rank, [self.last])
        self.assertNotEqual(0, self.job.wait())
        self.expect_nothing_left()


class FailuresInChunksOfThreeHosts(FailuresInChunks):
    count_of_hosts = 3


class FailuresOfReduceScatter(FailuresInChunks):
    """Whose blocks are combined inside hosts while others cross."""

    operation = "reduce_scatter"


class FailuresOfAllGather(FailuresInChunks):
    """Whose blocks are shared inside hosts while others cross."""

    operation = "all_gather"


class FailuresOnRails(FailuresInChunks):
    """Every message leaves by two interfaces."""

    rails = 2
    environment = {"WEFT_NET_DEVICES": "eth0,eth1"}


class CutRails(FailuresInChunks):
    """Messages have not left yet when it happens: UCX 1.13 would end the process where their connection is closed. Where a connection
    breaks by itself it does so (docs/decisions/0026), so nobody is killed here."""

    count = 4_000_000
    rails = 2
    environment = {"WEFT_NET_DEVICES": "eth0,eth1", "UCX_TCP_SNDBUF": "16K"}
    test_a_killed_rank_ends_the_job = None
    test_a_stopped_rank_is_named = None


class Containers(unittest.TestCase):
    """Ranks that cannot see one another's processes."""

    def test_ranks_of_two_pid_namespaces_are_no_host(self):
        with Hosts(1, FAST) as hosts:
            alone = ["unshare", "--pid", "--fork", "--kill-child", PROBE, "sums", "1"]
            ranks = starts.torchrun(hosts, 2, alone, {"WEFT_HOST_ID": "one", "WEFT_BACKEND": "shm"}, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
            said = [rank.communicate(timeout=kPatience)[0] for rank in ranks]
        self.assertTrue(all(rank.returncode for rank in ranks), said)
        self.assertTrue(any("are in different pid namespaces" in text for text in said), said)


class Topology(unittest.TestCase):
    """weft-doctor --topology, which lies beside the probe."""

    def test_a_slow_host_is_named(self):
        doctor = pathlib.Path(PROBE).with_name("weft-doctor")
        if not doctor.exists():
            self.skipTest(f"{doctor} is not built")
        with Hosts(3, Link("1gbit")) as hosts:
            hosts[1].limit(Link("10mbit"))
            command = starts.mpirun(hosts, 1, [str(doctor), "--topology", "--bytes", "131072", "--repeats", "1", "--json"])
            report = json.loads(subprocess.run(command, env=starts.mpi_environment(), stdout=subprocess.PIPE, timeout=kPatience,
                                               check=True).stdout)
        self.assertEqual(["host0", "host1", "host2"], [host["name"] for host in report["hosts"]])
        self.assertEqual(["eth0"], [nic["name"] for nic in report["hosts"][0]["nics"]])
        self.assertEqual(6, len(report["links"]))
        # On a busy machine another host may look slow as well; not so slow as a hundredth of its link, which hides this one.
        for what in ("out of host1 is slow", "into host1 is slow"):
            self.assertTrue(any(sentence.startswith(what) for sentence in report["slow"]), report)


class Leftovers(unittest.TestCase):
    def test_a_killed_run_leaves_nothing(self):
        """The world that this test makes is one within its own."""
        command = [sys.executable, str(pathlib.Path(__file__).with_name("run_on_hosts.py")), "--start", "torchrun", "--", "sleep", "1234.5"]

        def sleepers():
            found = 0
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    found += path.read_bytes().startswith(b"sleep\0001234.5")
                except OSError:  # it has just ended
                    continue
            return found

        run = subprocess.Popen(command)
        try:
            until(lambda: sleepers() == 2, lambda: "both ranks")
        finally:  # whatever was raised: who waits for the run itself waits for the ranks
            run.send_signal(signal.SIGKILL)
            run.wait(kPatience)
        until(lambda: sleepers() == 0, lambda: "the ranks' end")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROBE = sys.argv[1]
    test_hosts.enter_world()
    del sys.argv[1]
    unittest.main(verbosity=2)  # which test it is at, where CTest gives up
