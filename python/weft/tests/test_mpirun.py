"""Ranks that mpirun has started, on several hosts (which only differ in name) and through MPI on one."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from weft import launcher

HERE = pathlib.Path(__file__).parent
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")


def mpirun(ranks: int, *command, timeout: float = 900, **environment):
    """What `mpirun -np RANKS python COMMAND` came to, with both streams in stdout. The limit is against hanging: four ranks
    that share a starved core take minutes for what takes 15 s."""
    return subprocess.run(
        ["mpirun", "--oversubscribe", "-np", str(ranks), sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        cwd=HERE,
        env={**os.environ, **OPEN_MPI, **environment},
    )


@needs_mpirun
@pytest.mark.parametrize(
    "hosts, asked, more",
    [
        pytest.param("abab", None, ["destroy"], id="interleaved"),
        pytest.param("aaab", None, [], id="uneven", marks=pytest.mark.slow),
        pytest.param("aaaa", "mpi", [], id="mpi"),
    ],
)
def test_every_call(hosts, asked, more):
    run = mpirun(len(hosts), "mpirun_ranks.py", hosts, *more, **({"WEFT_BACKEND": asked} if asked else {}))
    assert run.returncode == 0, run.stdout
    assert "checks passed" in run.stdout, run.stdout
    assert "weft: [" not in run.stdout, run.stdout  # no warnings


FAILING = """
import os, torch, torch.distributed as dist
os.environ["WEFT_HOST_ID"] = os.environ["RANK"]
dist.init_process_group("weft")
dist.barrier()
if dist.get_rank() == 1:
    raise RuntimeError("thrown on purpose")
dist.barrier()
"""


@needs_mpirun
def test_a_rank_that_raises_ends_the_job(tmp_path):
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    run = mpirun(2, script)
    assert run.returncode != 0
    assert "thrown on purpose" in run.stdout, run.stdout


def check_refusal(rank, words):
    os.environ["WEFT_HOST_ID"] = f"host {rank}"
    os.environ["WEFT_BACKEND"] = "mpi"
    with pytest.raises(NotImplementedError, match=words):
        dist.new_group(backend="weft")


def test_mpi_without_mpirun_is_refused():
    # The default group is gloo's: it works on.
    run_ranks(2, "gloo", check_refusal, "different hosts.*start every rank with mpirun or srun")


def check_spawned(rank):
    os.environ.update(OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
    check_refusal(rank, "ranks 0 and 1 are both MPI's rank 0.*do not fork or spawn")


def test_ranks_spawned_by_a_rank_of_mpi_are_refused():
    run_ranks(2, "gloo", check_spawned)


def filled(**given) -> dict:
    launcher.fill_environment(given)
    return given


def test_environment_of_open_mpi():
    given = {f"OMPI_COMM_WORLD_{name}": value for name, value in
             {"RANK": "3", "SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}.items()}
    got = filled(**given, PMIX_NAMESPACE="77")
    assert [got[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] == ["3", "4", "1", "2"]
    assert "MASTER_ADDR" not in got  # nobody knows where rank 0 is
    assert 20000 <= int(got["MASTER_PORT"]) < 30000
    assert got["MASTER_PORT"] == filled(**given, PMIX_NAMESPACE="77")["MASTER_PORT"]
    assert got["MASTER_PORT"] != filled(**given, PMIX_NAMESPACE="78")["MASTER_PORT"]
    given["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4"
    assert filled(**given)["MASTER_ADDR"] == "127.0.0.1"
    assert filled(**given, MASTER_ADDR="there")["MASTER_ADDR"] == "there"


@pytest.mark.parametrize("nodes, first", [("gpu[03-05,9],x", "gpu03"), ("b2,b1", "b2"), ("n[7,9]", "n7"), ("one", "one")])
def test_environment_of_slurm(nodes, first):
    got = filled(SLURM_PROCID="5", SLURM_STEP_NUM_TASKS="6", SLURM_LOCALID="1", SLURM_STEP_TASKS_PER_NODE="2(x3)",
                 SLURM_STEP_NODELIST=nodes)
    assert [got[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] == ["5", "6", "1", "2"]
    assert got["MASTER_ADDR"] == first


def test_environment_of_pmi():
    pmi = {"PMI_RANK": "5", "PMI_SIZE": "6"}
    slurm = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
    got = filled(**pmi, **slurm)  # srun --mpi=pmi2
    assert [got[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] == ["5", "6", "1", "2"]
    got = filled(**pmi, **slurm, MPI_LOCALRANKID="3", MPI_LOCALNRANKS="4")  # Intel's mpiexec
    assert [got[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] == ["5", "6", "3", "4"]
    got = filled(**pmi, **slurm | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3"})  # srun has started mpiexec's helpers
    assert (got["RANK"], got["WORLD_SIZE"]) == ("5", "6") and "LOCAL_RANK" not in got


@pytest.mark.parametrize("command", [["/bin/weft-run", "train.py"], ["-m", "weft.run", "train.py"], ["/bin/torchrun"], ["train.py"]])
def test_who_starts_ranks_is_none(monkeypatch, command):
    monkeypatch.setattr(sys, "orig_argv", ["python", *command])
    assert launcher.is_starter() == (command != ["train.py"])


def test_environment_of_torchrun_stays():
    given = {"RANK": "1", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "9"}
    assert filled(**given) == given
    assert filled(SLURM_PROCID="0", SLURM_NTASKS="4") == {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}  # a batch script
