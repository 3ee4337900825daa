"""Several "hosts" on one machine, for programs that are to talk through a network.

A host is a network, UTS, IPC, mount and PID namespace: it has its own name, interfaces, System V and POSIX shared memory, /proc and
process numbers, so that nothing but its link leads to another host. Links are veth pairs to one bridge, held to a rate by tc's
tbf in both directions:

    host0 eth0 10.77.0.1 ──┐
    host1 eth0 10.77.0.2 ──┤ bridge, 10.77.0.254: the world
    ...                  ──┘

With several rails every host has a link more for each: eth1 to a bridge of its own with 10.78.0.1, and so on.

The bridge and the program that uses this module are in namespaces of their own as well, the world, into which enter_world() starts
the program again. So two runs never meet, nothing is visible outside, and all of it ends with the program: it is process 1 of the
world, at whose end the kernel ends every other, and with the last process of a namespace that namespace. Needs root, or user
namespaces that users may create; where neither is to be had, enter_world() says so and exits with kSkipped.
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import threading

kSkipped = 77  # what CTest counts as skipped
BRIDGE_ADDRESS = "10.77.0.254"
SHARED = pathlib.Path("/dev/shm/shared")  # the same folder in the world and in all hosts, as a network file system would be
FOLDER = pathlib.Path("/dev/shm/hosts")  # of the world: a file for each host, which enter_host reads
NAMES = pathlib.Path("/dev/shm/etc-hosts")  # lies over /etc/hosts
ENTER = str(pathlib.Path(__file__).resolve().with_name("enter_host"))

_LEASH = "WEFT_TEST_HOSTS_LEASH"
_WORLD = ["unshare", "--net", "--mount", "--ipc", "--uts", "--pid", "--fork", "--mount-proc"]
# Whether all that hosts are made of is permitted.
_TRIAL = """mount -t sysfs sys /sys
ip link add one type veth peer name other
ip link add bridge type bridge
tc qdisc add dev one root tbf rate 1gbit burst 32kb latency 20ms"""
# What process 1 of a host does: sets it up, says so, and reaps what is left to it until its standard input ends.
_INIT = """exec 3<"$1"
hostname "$0" && mount -t tmpfs shm /dev/shm && mkdir "$1" && mount --no-canonicalize --bind /proc/self/fd/3 "$1" &&
  mount -t sysfs sys /sys && ip link set lo up && exec 3<&- && echo ready
while read -r _; do :; done"""


def skip(why):
    """Ends the program as one that cannot run here."""
    print(f"skipped: test hosts are not to be had here: {why}", flush=True)
    sys.exit(kSkipped)


def _unshare(*arguments):
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [_WORLD[0], *user, *_WORLD[1:], *arguments]


def enter_world():
    """Returns in the world. Outside of it, starts this very program there and exits as that does. Called first."""
    if _LEASH in os.environ:
        return _settle(int(os.environ.pop(_LEASH)))
    for tool, package in {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "tc": "iproute2"}.items():
        if shutil.which(tool, path=_path()) is None:
            skip(f"{tool} is missing (Debian and Ubuntu: apt-get install {package})")
    trial = subprocess.run(_unshare("sh", "-ec", _TRIAL), capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        skip(f"{trial.stderr.strip()}; it takes a kernel with veth, bridge and tbf, and root or user namespaces that users may make")
    # The world sees the leash's other end close however this process ends.
    leash, hold = os.pipe()
    command = _unshare(sys.executable, *sys.argv)
    with subprocess.Popen(command, pass_fds=[leash], env=os.environ | {_LEASH: str(leash), "PATH": _path()}) as world:
        os.close(leash)
        try:
            code = world.wait()
        except KeyboardInterrupt:
            code = 130
        os.close(hold)
    sys.exit(code)


def _path():
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


def _settle(leash):
    """As process 1 of the world: a /dev/shm of its own, temporary files in it, and an end when the leash is dropped."""
    threading.Thread(target=lambda: os._exit(0 if os.read(leash, 1) else 129), daemon=True).start()
    _do("mount", "-t", "tmpfs", "shm", "/dev/shm")
    FOLDER.mkdir()
    SHARED.mkdir()
    NAMES.touch()
    _do("mount", "--bind", str(NAMES), "/etc/hosts")
    _do("mount", "-t", "sysfs", "sys", "/sys")  # which shows the world's own interfaces
    _do("hostname", "world")
    _do("ip", "link", "set", "lo", "up")
    os.environ["TMPDIR"] = "/dev/shm"
    os.environ["WEFT_TEST_HOSTS"] = str(FOLDER)
    os.environ["WEFT_PERF_BOARD"] = str(SHARED)  # where the measuring programs' ranks of different hosts share a start line


def _do(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@dataclasses.dataclass
class Link:
    """`rate` as tc writes it; bytes may leave at once up to `burst_bytes`, below which time says nothing of the rate."""

    rate: str = "1gbit"
    burst_bytes: int = 32 * 1024

    def limit(self, prefix, interface):
        """Of what leaves through the interface; `prefix` names the namespace. Packets are never longer than a burst: tbf would
        cut them one by one, for which a network card takes no time of the processor."""
        segment = str(min(self.burst_bytes // 2, 65536))
        _do(*prefix, "ip", "link", "set", interface, "gso_max_size", segment)
        _do(*prefix, "tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate", self.rate,
            "burst", str(self.burst_bytes), "latency", "20ms")


class Host:
    """One host of the world. Made by Hosts."""

    def __init__(self, index, count, link, rails):
        self.index, self.name, self.address = index, f"host{index}", f"10.77.0.{index + 1}"
        self.links = [self.name if rail == 0 else f"{self.name}rail{rail}" for rail in range(rails)]  # as the world calls them
        self.cores = self._share_of_cores(count)
        self._keeper = subprocess.Popen(_WORLD + ["bash", "-c", _INIT, self.name, str(SHARED)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self._keeper.stdout.readline().strip()
        if said != "ready":
            raise OSError(f"{self.name}: {said or 'ended at once'}")
        self.pid = self._pid_of_init()
        (FOLDER / self.name).write_text(f"{self.pid} {self.cores}\n", encoding="utf-8")
        self._connect(link)

    def _share_of_cores(self, count):
        """An equal share of the cores each; where there are too few, hosts take turns on them."""
        cores = sorted(os.sched_getaffinity(0))
        each = max(1, len(cores) // count)
        first = self.index * each % len(cores)
        return ",".join(map(str, cores[first:first + each]))

    def _pid_of_init(self):
        pid = self._keeper.pid
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()[0])

    def _connect(self, link):
        for rail, name in enumerate(self.links):
            _do("ip", "link", "add", name, "type", "veth", "peer", "name", f"eth{rail}", "netns", str(self.pid))
            _do("ip", "link", "set", name, "master", _bridge(rail), "up")
            _do(*self.command("ip", "address", "add", f"10.{77 + rail}.0.{self.index + 1}/24", "dev", f"eth{rail}"))
            _do(*self.command("ip", "link", "set", f"eth{rail}", "up"))
            self._receive_on_one_core([], name)
            self._receive_on_one_core(self.command(), f"eth{rail}")
        self._choose_congestion_control()
        self.limit(link)

    def _receive_on_one_core(self, prefix, interface):
        """As a network card's queue, which interrupts one core: elsewhere what leaves on two of them, some when it is sent and
        some when an acknowledgement comes, arrives on two and out of order. TCP takes that for losses, and sends less at once.
        A kernel without RPS, or one that keeps it from users who are not root, leaves it at that: hosts are slower, not wrong."""
        mask = f"{1 << int(self.cores.split(',')[0]):x}"
        groups = ",".join(mask[max(0, end - 8):end] for end in range(len(mask), 0, -8)[::-1])
        subprocess.run([*prefix, "sh", "-c", f"echo {groups} > /sys/class/net/{interface}/queues/rx-0/rps_cpus"],
                       stderr=subprocess.DEVNULL, check=False)

    def _choose_congestion_control(self):
        """The one that every kernel has and lets namespaces have, whatever this machine's own is. bbr sends next to nothing for
        200 ms in every 10 s: some calls would take half as long again."""
        _do(*self.command("sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"))

    def limit(self, link):
        """Gives the host's links, in both directions, another rate."""
        for rail, name in enumerate(self.links):
            link.limit(self.command(), f"eth{rail}")
            link.limit([], name)

    def command(self, *words):
        """The command line that runs one in this host."""
        return ["taskset", "-c", self.cores, "nsenter", f"--target={self.pid}", "--uts", "--ipc", "--mount", "--net", "--pid",
                "--", *words]

    def popen(self, words, **options):
        """Runs it in the host, in this process's folder."""
        return subprocess.Popen(self.command("sh", "-c", 'cd "$0" && exec "$@"', os.getcwd(), *words), **options)

    def close(self):
        self._keeper.stdin.close()
        self._keeper.wait()
        self._keeper.stdout.close()
        (FOLDER / self.name).unlink()
        # The kernel does that too, sooner or later.
        for name in self.links:
            subprocess.run(["ip", "link", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def cut(self):
        """As if its cables were pulled."""
        for name in self.links:
            _do("ip", "link", "set", name, "down")

    def bytes_sent(self, rail=None):
        """Through its links, or one of them, since they were made, headers of packets included."""
        counters = {}
        for line in pathlib.Path("/proc/net/dev").read_text(encoding="utf-8").splitlines():
            name, _, counts = line.partition(":")
            if name.strip() in self.links:
                counters[name.strip()] = int(counts.split()[0])
        return sum(counters.values()) if rail is None else counters[self.links[rail]]

    def processes(self):
        """The host's processes but its first: number, as the world counts, → words of the command line."""
        namespace = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int(entry.name) != self.pid and os.readlink(entry / "ns/pid") == namespace:
                    found[int(entry.name)] = (entry / "cmdline").read_text(encoding="utf-8").split("\0")
            except OSError:  # it has just ended
                continue
        return found

    def shared_files(self):
        """What lies in its /dev/shm."""
        return sorted(name for name in os.listdir(f"/proc/{self.pid}/root/dev/shm") if name != SHARED.name)


def _bridge(rail):
    return "bridge" if rail == 0 else f"bridge{rail}"


class Hosts:
    """`count` hosts with equal links, `rails` each: `with Hosts(2) as hosts`. In the world only."""

    def __init__(self, count, link=Link(), rails=1):
        self.bridges = [_bridge(rail) for rail in range(rails)]
        for bridge in self.bridges:
            _do("ip", "link", "add", bridge, "type", "bridge")
            _do("ip", "link", "set", bridge, "up")
        _do("ip", "address", "add", f"{BRIDGE_ADDRESS}/24", "dev", "bridge")
        self._name_all(count)
        self.all = [Host(index, count, link, rails) for index in range(count)]

    @staticmethod
    def _name_all(count):
        """/etc/hosts of the world and of the hosts."""
        lines = ["127.0.0.1 localhost", f"{BRIDGE_ADDRESS} world"] + [f"10.77.0.{index + 1} host{index}" for index in range(count)]
        NAMES.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def close(self):
        """Ends every process of the hosts, and them."""
        for host in self.all:
            host.close()
        for bridge in self.bridges:
            _do("ip", "link", "delete", bridge)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return iter(self.all)

    def __len__(self):
        return len(self.all)

    def __getitem__(self, index):
        return self.all[index]
