"""How ranks are started on test hosts: by Open MPI's mpirun, or with the variables that torchrun sets."""

import os
import subprocess
import time

from hosts import ENTER

MASTER_PORT = 29500


def mpirun(hosts, per_host, program, options=()):
    """The command line for `per_host` ranks on each host. Open MPI enters a host as it would by ssh. Ranks keep to the host's cores,
    of which each Open MPI by itself would begin to count at the first of the machine."""
    command = ["mpirun", "--host", ",".join(f"{host.name}:{per_host}" for host in hosts), "--bind-to", "none", "--map-by", "slot",
               "--mca", "plm_rsh_agent", ENTER, "--mca", "plm_rsh_no_tree_spawn", "1"]
    return command + ["--mca", "rmaps_base_oversubscribe", "1", *options, *program]


def mpi_environment():
    """What mpirun wants to be told where root runs it, as in containers."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return os.environ | (allowed if os.geteuid() == 0 else {})


def torchrun_environments(hosts, per_host):
    """For each rank its host and what torchrun would tell it."""
    size = per_host * len(hosts)
    for rank in range(size):
        host, local = hosts[rank // per_host], rank % per_host
        names = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": per_host, "GROUP_RANK": host.index,
                 "MASTER_ADDR": hosts[0].address, "MASTER_PORT": MASTER_PORT, "TORCHELASTIC_RUN_ID": "hosts"}
        yield host, {name: str(value) for name, value in names.items()}


def torchrun(hosts, per_host, program, environment=None, **options):
    """Starts the ranks, one process each; in rank order."""
    return [host.popen(program, env=os.environ | names | (environment or {}), **options)
            for host, names in torchrun_environments(hosts, per_host)]


def wait_all(ranks, grace=30):
    """The first exit code that is not 0, else 0. Once a rank has failed the others have `grace` seconds."""
    deadline = None
    while any(rank.poll() is None for rank in ranks):
        failed = [rank.returncode for rank in ranks if rank.returncode]
        if failed and deadline is None:
            deadline = time.monotonic() + grace
        if deadline is not None and time.monotonic() > deadline:
            return failed[0]
        time.sleep(0.02)
    return next((code for code in (rank.returncode for rank in ranks) if code), 0)


def run(hosts, per_host, program, start="mpirun", options=()):
    """Runs it to its end; its exit code."""
    if start == "mpirun":
        return subprocess.run(mpirun(hosts, per_host, program, options), env=mpi_environment(), check=False).returncode
    return wait_all(torchrun(hosts, per_host, program))
