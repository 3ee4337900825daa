"""What torchrun would have told a process that MPI's launcher has started."""

from __future__ import annotations

import os
import re
import signal
import sys
import zlib

# Of Open MPI's mpirun, MPICH's and Intel's mpiexec, Slurm's srun.
_LAUNCHERS = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
]
_STARTERS = {"torchrun", "torch.distributed.run", "torch.distributed.launch", "weft-run", "weft.run"}
_NAMES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"]
_FIRST_PORT, _PORTS = 20000, 10000  # below those that systems give out by themselves


def fill_environment(environment=os.environ) -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the launcher's variables, where
    none of the first two is set. MASTER_ADDR stays unset where the launcher does not tell which host rank 0 is on."""
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return
    present = [names for names in _LAUNCHERS if names[0] in environment and names[1] in environment]
    if not present:
        return
    for names in present:  # srun --mpi=pmi2 says the rank by PMI_ names and where it is by Slurm's alone
        if all(environment[names[i]] == environment[present[0][i]] for i in (0, 1)):  # no launcher within srun's one task
            for name, source in zip(_NAMES, names):
                value = environment.get(source, "")
                if value.isdigit():  # Slurm's tasks per node may be "2(x3)", or "2,1"
                    environment.setdefault(name, value)
                elif re.fullmatch(r"\d+\(x\d+\)", value):
                    environment.setdefault(name, value.split("(")[0])
    address = _address(environment)
    if address:
        environment.setdefault("MASTER_ADDR", address)
    environment.setdefault("MASTER_PORT", str(_port(environment)))


def is_starter() -> bool:
    """Whether this process is torchrun or weft-run, which starts ranks and is none."""
    return not _STARTERS.isdisjoint(os.path.basename(word) for word in sys.orig_argv[1:5])


def keep_starter() -> None:
    """Makes it outlive SIGUSR2, which `pkill -USR2 -f train.py` sends to it as well as to its ranks. They inherit that until
    they make their first group."""
    if signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def _address(environment) -> str | None:
    if environment.get("LOCAL_WORLD_SIZE") == environment["WORLD_SIZE"]:
        return "127.0.0.1"
    hosts = environment.get("SLURM_STEP_NODELIST", "")
    # "gpu[03-05,9],login": the first of the list, where step's rank 0 is unless its tasks are spread by hand.
    first = re.match(r"([^\[,]+)(?:\[(\d+))?", hosts)
    return first[1] + (first[2] or "") if first else None


def _port(environment) -> int:
    """The same on all ranks of a job, most likely another for another job."""
    for names in (["PMIX_NAMESPACE"], ["SLURM_JOB_ID", "SLURM_STEP_ID"]):
        if all(name in environment for name in names):
            job = " ".join(environment[name] for name in names)
            return _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS
    return 29500  # torchrun's
