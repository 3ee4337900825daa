#!/usr/bin/env python3
"""all_reduce between two test hosts (tests/hosts) beside a plain TCP stream, Open MPI and Gloo over the same link.

    perf/hosts_perf.py [--ranks-per-host 1 2] [--rate 1gbit] [--max-bytes 16777216]

A round starts every library once, the first one changing from round to round, and a TCP stream each way at the same time;
the best of a size's rounds is a library's figure, as in compare.py, whose stopwatch all share. Of Weft is measured what ranks
of mpirun get by default ("weft"), and MPI beside it. With one rank a host, "UCX itself" is one message each way and an addition
(peers/ucx_loop.cpp): what no library on UCX can take less than, up to 1 KiB; no bar is on it.
Exit code: 0 where all bars hold for one of them; 1 where not; 77 where test hosts are not permitted. Bars: at least 95 % of the streams' goodput from 4 MB on (a rank's all_reduce
of B bytes moves B bytes each way between two hosts), faster than every other library at every size, and 1.5 times by geometric
mean with two ranks on a host.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/hosts"), str(ROOT / "perf")]
import hosts as test_hosts  # noqa: E402
import starts  # noqa: E402
from compare import geometric_mean, text_of  # noqa: E402
from peers.catalogue import UCX, Setup, Unavailable, compile_loop, run  # noqa: E402

LARGE = 4 << 20  # from which on the link's rate is the bar
SMALL = 1024  # up to which one message each way is all that there is to do
LIMIT = "UCX itself"
GOODPUT_BAR, MEAN_BAR = 0.95, 1.5
# A stream each way at once: what an all_reduce of two hosts does. Prints MB/s received, from the first byte to the last.
STREAM = """
import socket, sys, threading, time
peer, serves, total = sys.argv[1], sys.argv[2] == "serve", int(sys.argv[3])
if serves:
    listener = socket.create_server(("", 5001)); line, _ = listener.accept()
else:
    for _ in range(200):
        try: line = socket.create_connection((peer, 5001)); break
        except OSError: time.sleep(0.02)
sender = threading.Thread(target=lambda: [line.sendall(bytes(1 << 18)) for _ in range(total >> 18)])
buffer, got, start = bytearray(1 << 20), 0, None
both = sys.argv[4] == "both"
if both or serves: sender.start()
if both or not serves:
    while got < total:
        more = line.recv_into(buffer)
        if start is None: start, first = time.perf_counter(), more
        got += more
    print((got - first) / (time.perf_counter() - start) / 1e6)
if both or serves: sender.join()
line.shutdown(socket.SHUT_WR); line.recv(1)
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks-per-host", nargs="+", type=int, default=[1, 2], help="several numbers are measured one after the other (default: %(default)s)")
    parser.add_argument("--rate", default="1gbit", help="of the link, as tc writes rates (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=32 * 1024, help="bytes that may pass the link at once (default: %(default)s)")
    parser.add_argument("--max-bytes", type=int, default=16 << 20, help="largest message (default: %(default)s)")
    parser.add_argument("--factor", type=int, default=2, help="between two sizes, down from --max-bytes to 8")
    parser.add_argument("--rounds", type=int, default=2, help="launches of each library, taking turns; the best counts (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=4, help="of each size in a launch (default: %(default)s)")
    parser.add_argument("--libraries", nargs="+", help="only those whose names begin with one of these")
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="build folder with the programs (default: %(default)s)")
    parser.add_argument("--folder", default=str(ROOT / "build/peers"), help="where the MPI loop is compiled to")
    parser.add_argument("--python", default=str(ROOT / "build/python/bin/python"), help="one with torch, for Gloo")
    parser.add_argument("--json", help="append the figures to this file, a line for each library and size")
    options = parser.parse_args()
    if options.factor < 2 or options.max_bytes < 8 * options.factor or options.max_bytes % 4:
        parser.error("expected a --factor of at least 2, and --max-bytes, a multiple of 4, for at least two sizes")
    return options


def sizes_of(options):
    """Rising."""
    sizes = [options.max_bytes]
    while sizes[0] >= 8 * options.factor and sizes[0] % (4 * options.factor) == 0:
        sizes.insert(0, sizes[0] // options.factor)
    return sizes


def stream(hosts, ways):
    """Goodput in MB/s: of each direction at once ("both"), or of the one way from host 0 to host 1 ("one")."""
    total = str(48 << 20)
    ends = [host.popen([sys.executable, "-c", STREAM, hosts[0].address, role, total, ways], stdout=subprocess.PIPE, text=True)
            for host, role in zip(hosts, ("serve", "join"))]
    texts = [end.communicate(timeout=60)[0] for end in ends]
    return [float(text) for text in texts if text.strip()]


class Library:
    """`launch(per_host, sizes)` runs it on the hosts and gives the text of its JSON lines, None where it has nothing to say."""

    def __init__(self, name, launch):
        self.name, self.launch = name, launch

    def measure(self, per_host, sizes):
        """bytes → microseconds."""
        text = self.launch(per_host, sizes)
        if text is None:
            return {}
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        if not lines or any(line.get("wrong", 0) for line in lines):
            raise Unavailable(f"{self.name}: wrong results, or none")
        return {line["bytes"]: line["call_us"] for line in lines}


def over_mpirun(hosts, program, options=(), environment=None):
    def launch(per_host, sizes):
        command = starts.mpirun(hosts, per_host, program(sizes), options)
        done = subprocess.run(command, env=starts.mpi_environment() | (environment or {}), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=300, check=False)
        if done.returncode != 0:
            raise Unavailable(f"left with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout
    return launch


def without_mpi(hosts, program, environment=None):
    def launch(per_host, sizes):
        ranks = starts.torchrun(hosts, per_host, program(sizes), stdout=subprocess.PIPE, text=True, environment=environment)
        texts = [rank.communicate(timeout=300)[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            raise Unavailable(f"left with {[rank.returncode for rank in ranks]}")
        return "".join(texts)
    return launch


def libraries_of(options, hosts):
    """Those that are here; the others are named."""
    bin_folder, iterations = pathlib.Path(options.build, "bin"), str(options.iterations)

    def weft(sizes):
        return [str(bin_folder / "all_reduce_perf"), "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(sizes[1] // sizes[0]),
                "-n", iterations, "-c", "1", "--in-place", "0", "--rounds", "1", "--json", "/dev/stdout"]

    def mpi(sizes):
        return [loop, "Open MPI", "4", "all_reduce", iterations, "1", *map(str, sizes)]

    def gloo(sizes):
        return [options.python, str(ROOT / "perf/peers/torch_loop.py"), str(pathlib.Path(options.build, "lib/libweft_perf_peer.so")),
                "gloo", "all_reduce", iterations, "1", *map(str, sizes)]

    flags = run(["mpicc", "--showme:compile"], "mpicc").split() + run(["mpicc", "--showme:link"], "mpicc").split()
    os.makedirs(options.folder, exist_ok=True)
    setup, flags = Setup(options.build, options.folder, False), ["-DOMPI_SKIP_MPICXX=1", *flags]
    loop = compile_loop(setup, "system", flags)

    def ucx(per_host, sizes):
        """Where that is all that an all_reduce has to do."""
        small = [size for size in sizes if size <= SMALL] if per_host == 1 else []
        if not small:
            return None
        return over_mpirun(hosts, lambda _: [loop_of_ucx, iterations, "1", *map(str, small)],
                           ["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"])(per_host, small)

    def weft_over_mpi(per_host, sizes):
        """With shared memory inside hosts, where they have several ranks."""
        return over_mpirun(hosts, weft, ["-x", f"WEFT_BACKEND={'hierarchical' if per_host > 1 else 'mpi'}"])(per_host, sizes)

    found = [Library("weft", over_mpirun(hosts, weft, [])),
             Library("weft over mpi", weft_over_mpi),
             Library("Open MPI ob1", over_mpirun(hosts, mpi, ["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"])),
             Library("Open MPI ucx", over_mpirun(hosts, mpi, UCX))]
    try:
        loop_of_ucx = compile_loop(setup, "system", [*flags, "-lucp", "-lucs"], ["ucx_loop.cpp"])
        found.append(Library(LIMIT, ucx))
    except Unavailable as reason:
        print(f"# {LIMIT}: left out, {reason}")
    if os.path.exists(options.python):
        found.append(Library("Gloo", without_mpi(hosts, gloo, {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"})))
    else:
        print(f"# Gloo: left out, {options.python} is missing")
    wanted = options.libraries or [""]
    return [library for library in found if any(library.name.lower().startswith(one.lower()) for one in wanted)]


def measure(options, hosts, libraries, per_host, sizes):
    """(MB/s each way of the streams, library → bytes → best microseconds)."""
    goodputs, best = [], {library.name: {} for library in libraries}
    alive = list(libraries)
    for turn in range(options.rounds):
        goodputs.append(stream(hosts, "both"))
        first = turn % max(1, len(alive))
        for library in alive[first:] + alive[:first]:
            try:
                for size, took in library.measure(per_host, sizes).items():
                    best[library.name][size] = min(took, best[library.name].get(size, took))
            except (Unavailable, subprocess.TimeoutExpired) as reason:
                print(f"# {library.name} left out: {reason}", flush=True)
                alive.remove(library)
    return max(goodputs, key=min), {name: figures for name, figures in best.items() if figures}


def judge(name, value, bar):
    print(f"{'PASS' if value >= bar else 'FAIL'}: {name} {value:.2f}, bar {bar:.2f}")
    return value >= bar


def report(per_host, goodput, best, sizes):
    """Prints the table, then the bars of each of Weft's back ends; whether they all hold for one of them."""
    each_way = min(goodput)
    print(f"\n# 2 hosts × {per_host}, all_reduce f32, µs; TCP streams both ways at once: {goodput[0]:.1f} and {goodput[1]:.1f} MB/s")
    print(f"# {'bytes':>9}" + "".join(f"  {name:>14}" for name in best))
    for size in sizes:
        print(f"{size:>11}" + "".join(f"  {text_of(figures.get(size, float('nan'))):>14}" for figures in best.values()))
    others = [figures for name, figures in best.items() if not is_ours(name) and name != LIMIT]
    for name, figures in best.items():
        if LIMIT in best and name != LIMIT:
            print(f"# {name}: {geometric_mean([figures[size] / limit for size, limit in best[LIMIT].items()]):.2f} x {LIMIT}")
    return any([judge_all(f"{name}, {per_host} a host", per_host, each_way, figures, others)
                for name, figures in best.items() if is_ours(name)])


def judge_all(what, per_host, each_way, ours, others):
    """Every bar on one back end."""
    good = [judge(f"{what}, {size} bytes: share of goodput", size / took / each_way, GOODPUT_BAR)
            for size, took in ours.items() if size >= LARGE]
    ratios = {size: min(figures[size] for figures in others) / took for size, took in ours.items()} if others else {}
    if not ratios:
        print(f"FAIL: {what}: nothing to compare with")
        good.append(False)
    else:
        lowest = min(ratios, key=ratios.get)
        good.append(judge(f"{what}: lowest ratio to the best other ({lowest} bytes)", ratios[lowest], 1.0))
        if per_host == 2:
            good.append(judge(f"{what}: geometric mean", geometric_mean(list(ratios.values())), MEAN_BAR))
    return all(good)


def is_ours(name):
    return name.startswith("weft")


def main():
    options = arguments()
    test_hosts.enter_world()
    os.environ["WEFT_TUNING_CACHE"] = "0"
    sizes = sizes_of(options)
    good = True
    with test_hosts.Hosts(2, test_hosts.Link(options.rate, options.burst)) as hosts:
        libraries = libraries_of(options, hosts)
        print(f"# one stream, one way: {stream(hosts, 'one')[0]:.1f} MB/s; links of {options.rate}, burst {options.burst} bytes")
        for per_host in options.ranks_per_host:
            goodput, best = measure(options, hosts, libraries, per_host, sizes)
            good = report(per_host, goodput, best, sizes) and good
            if options.json:
                with open(options.json, "a", encoding="utf-8") as file:
                    for name, figures in best.items():
                        for size, took in figures.items():
                            file.write(json.dumps({"library": name, "ranks_per_host": per_host, "bytes": size, "call_us": took,
                                                   "goodput_mb_s": goodput}) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
