"""The libraries compare.py can measure beside Weft: where each comes from, how it is built and started.

Everything is installed into virtual environments of its own under the build folder (the wheels overwrite one another's
mpicc). What cannot be installed is skipped, with the reason.
"""
import glob
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

PERF = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(PERF)
UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]


class Unavailable(Exception):
    """Why a library cannot be measured here."""


@dataclass
class Setup:
    """What libraries need to know of this build."""

    build: str  # a build folder with the programs and libweft_perf_loop
    folder: str  # where environments and compiled loops go
    install: bool  # whether missing packages may be fetched


@dataclass
class Library:
    """One line of the plots. `launch(op, ranks, iterations, rounds, sizes)` is a (command, environment) whose standard
    output is JSON lines, or a list of them that run together as the ranks."""

    name: str
    version: str = ""
    launch: object = field(default=None, repr=False)


def crowded(ranks):
    return ranks > os.cpu_count()


def environment(**changes):
    result = dict(os.environ, **changes)
    if os.geteuid() == 0:  # Open MPI wants to be told twice
        result.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      PRTE_ALLOW_RUN_AS_ROOT="1", PRTE_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return result


def run(command, what, **options):
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"{what} took longer than {late.timeout} s") from None
    if done.returncode != 0:
        raise Unavailable(f"{what} failed: {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else command}")
    return done.stdout


def virtual_environment(setup, name, packages):
    """The folder of a virtual environment with `packages`, made when it is not there yet."""
    home = os.path.join(setup.folder, name)
    ready = os.path.join(home, ".ready")
    if os.path.exists(ready):
        return home
    if not setup.install:
        raise Unavailable("not installed (leave out --no-install)")
    print(f"# installing {', '.join(packages)}", file=sys.stderr, flush=True)
    run([sys.executable, "-m", "venv", home], "making a virtual environment")
    run([os.path.join(home, "bin/pip"), "install", "-q", *packages], f"pip install {' '.join(packages)}")
    with open(ready, "w", encoding="utf-8") as file:
        file.write("\n".join(packages) + "\n")
    return home


def package_version(home, package):
    code = f"import importlib.metadata as m; print(m.version('{package}'))"
    return run([os.path.join(home, "bin/python"), "-c", code], "reading a version").strip()


def compile_loop(setup, name, flags, sources=("mpi_loop.cpp", "mpi_calls.cpp")):
    """The loop as a program of one MPI; compiled again when its sources or libweft_perf_loop changed."""
    program = os.path.join(setup.folder, f"{os.path.splitext(sources[0])[0]}.{name}")
    archive = os.path.join(setup.build, "lib/libweft_perf_loop.a")
    sources = [os.path.join(PERF, "peers", source) for source in sources]
    if not os.path.exists(archive):
        raise Unavailable(f"{archive} is missing; build weft_perf_loop")
    newest = max(os.path.getmtime(path) for path in [archive, os.path.join(PERF, "peers/mpi_meeting.hpp"), *sources])
    if not os.path.exists(program) or os.path.getmtime(program) < newest:
        run(["g++", "-std=c++20", "-O2", f"-I{PERF}", f"-I{ROOT}/include", f"-I{ROOT}/src", f"-I{setup.build}/include", *sources, archive,
             *flags, "-lfmt", "-lpthread", "-o", program], f"compiling the loop for {name}")
    return program


def mpi_flags(home):
    return [f"-isystem{home}/include", f"-L{home}/lib", "-lmpi", f"-Wl,-rpath,{home}/lib", "-DOMPI_SKIP_MPICXX=1"]


def loop_arguments(library, op, iterations, rounds, sizes):
    return [library.name, library.version, op, str(iterations), str(rounds), *map(str, sizes)]


def open_mpi_placement(ranks):
    return ["--oversubscribe", "--bind-to", "none"] if crowded(ranks) else ["--bind-to", "core"]


def weft(setup, memory):
    library = Library(f"weft {memory}")

    def launch(op, ranks, iterations, rounds, sizes):
        program = os.path.join(setup.build, "bin", f"{op}_perf")
        if not os.access(program, os.X_OK):
            raise Unavailable(f"{program} is not built")
        # Sizes are a geometric series; the JSON lines go to standard output, the table nowhere.
        factor = sizes[1] // sizes[0] if len(sizes) > 1 else 2
        command = [program, "-t", str(ranks), "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(factor), "-n",
                   str(iterations), "-c", "1", "--in-place", "0", "--memory", memory, "--rounds", str(rounds), "--json",
                   "/dev/stdout"] + (["--limit"] if memory == "symmetric" else [])
        return command, environment()

    library.launch = launch
    version = run([os.path.join(setup.build, "bin/all_reduce_perf"), "--version"], "all_reduce_perf --version")
    library.version = version.split()[-1]
    return library


def system_open_mpi(setup, name, mca):
    if shutil.which("mpirun") is None or shutil.which("mpicc") is None:
        raise Unavailable("no mpirun and mpicc (libopenmpi-dev, openmpi-bin)")
    banner = run(["mpirun", "--version"], "mpirun --version")
    if "Open MPI" not in banner:
        raise Unavailable("the mpirun found is not Open MPI's")
    library = Library(name, banner.split("\n")[0].split()[-1])
    flags = run(["mpicc", "--showme:compile"], "mpicc").split() + run(["mpicc", "--showme:link"], "mpicc").split()
    program = compile_loop(setup, "system", ["-DOMPI_SKIP_MPICXX=1", *flags])

    def launch(op, ranks, iterations, rounds, sizes):
        return (["mpirun", "-np", str(ranks), *open_mpi_placement(ranks), *mca, program,
                 *loop_arguments(library, op, iterations, rounds, sizes)], environment())

    library.launch = launch
    return library


def open_mpi_5(setup):
    home = virtual_environment(setup, "openmpi", ["openmpi"])
    program = compile_loop(setup, "openmpi", mpi_flags(home))
    library = Library("Open MPI 5", package_version(home, "openmpi"))

    def launch(op, ranks, iterations, rounds, sizes):
        return ([f"{home}/bin/mpirun", "-np", str(ranks), *open_mpi_placement(ranks), program,
                 *loop_arguments(library, op, iterations, rounds, sizes)], environment())

    library.launch = launch
    return library


def mpich(setup):
    home = virtual_environment(setup, "mpich", ["mpich"])
    program = compile_loop(setup, "mpich", mpi_flags(home))
    library = Library("MPICH", package_version(home, "mpich"))

    def launch(op, ranks, iterations, rounds, sizes):
        placement = [] if crowded(ranks) else ["-bind-to", "core"]
        changes = {}
        if crowded(ranks):  # it yields when polls bring nothing; MPICH 5.0.2 still takes 0.7 ms for 128 B
            changes.update(MPIR_CVAR_CH4_PROGRESS_THROTTLE="1", MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT="1")
        return ([f"{home}/bin/mpiexec", "-n", str(ranks), *placement, program,
                 *loop_arguments(library, op, iterations, rounds, sizes)], environment(**changes))

    library.launch = launch
    return library


def intel_mpi(setup):
    home = virtual_environment(setup, "intelmpi", ["impi-rt", "impi-devel"])
    program = compile_loop(setup, "intelmpi", mpi_flags(home))
    library = Library("Intel MPI", package_version(home, "impi-rt"))

    def launch(op, ranks, iterations, rounds, sizes):
        changes = {"I_MPI_ROOT": home, "FI_PROVIDER_PATH": f"{home}/opt/mpi/libfabric/lib/prov", "I_MPI_FABRICS": "shm"}
        if crowded(ranks):
            changes.update(I_MPI_THREAD_YIELD="2", I_MPI_PIN="0")
        return ([f"{home}/bin/mpiexec.hydra", "-n", str(ranks), program,
                 *loop_arguments(library, op, iterations, rounds, sizes)], environment(**changes))

    library.launch = launch
    return library


def torch_library(setup, name, kind, packages):
    home = virtual_environment(setup, "torch", packages)
    library = Library(name, package_version(home, "torch" if kind == "gloo" else "deepspeed"))
    loop = os.path.join(setup.build, "lib/libweft_perf_peer.so")
    if not os.path.exists(loop):
        raise Unavailable(f"{loop} is missing; build weft_perf_peer")

    extensions = os.path.join(home, "extensions")
    if kind == "deepspeed":  # compiles its extension once, which a launch has no time for
        for lock in glob.glob(os.path.join(extensions, "**/lock"), recursive=True):
            os.remove(lock)  # left by a compilation that was interrupted; the next one would wait for it for ever
        run([f"{home}/bin/python", "-c",
             "from deepspeed.ops.op_builder import ShareMemCommBuilder; ShareMemCommBuilder().load()"],
            "compiling DeepSpeed's extension",
            env=environment(PATH=f"{home}/bin:{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="",
                            TORCH_EXTENSIONS_DIR=extensions), timeout=300)

    def launch(op, ranks, iterations, rounds, sizes):
        if kind == "gloo":  # a thousand times slower than the others on small messages
            iterations = max(1, iterations // 20)
        port = str(20000 + os.getpid() % 20000)
        commands = []
        for rank in range(ranks):
            changes = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_SIZE": str(ranks),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1",
                       "CUDA_VISIBLE_DEVICES": "", "TORCH_EXTENSIONS_DIR": extensions, "PATH": f"{home}/bin:{os.environ['PATH']}"}
            # Gloo slows down when its processes are bound; DeepSpeed's ranks spin, each on a core of its own.
            bound = [] if kind == "gloo" or crowded(ranks) else ["taskset", "-c", str(rank)]
            commands.append((bound + [f"{home}/bin/python", os.path.join(PERF, "peers/torch_loop.py"), loop, kind, op,
                                      str(iterations), str(rounds), *map(str, sizes)], environment(**changes)))
        return commands

    library.launch = launch
    return library


TORCH = ["torch", "numpy", "setuptools", "ninja", "deepspeed"]
CATALOGUE = {
    "weft-symmetric": lambda setup: weft(setup, "symmetric"),
    "weft-private": lambda setup: weft(setup, "private"),
    "openmpi4-ob1": lambda setup: system_open_mpi(setup, "Open MPI 4 ob1", ["--mca", "pml", "ob1"]),
    "openmpi4-ucx": lambda setup: system_open_mpi(setup, "Open MPI 4 ucx", UCX),
    "openmpi5": open_mpi_5,
    "mpich": mpich,
    "intelmpi": intel_mpi,
    "deepspeed": lambda setup: torch_library(setup, "DeepSpeed SHM", "deepspeed", TORCH),
    "gloo": lambda setup: torch_library(setup, "Gloo", "gloo", TORCH),
}
