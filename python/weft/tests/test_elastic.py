"""torchrun starts all ranks anew after one has died, and they go on from the checkpoint."""

import os
import pathlib
import subprocess
import sys

import pytest

WORKER = """
import os, pathlib, sys
import torch, torch.distributed as dist

torch.set_num_threads(1)
folder, backend = pathlib.Path(sys.argv[1]), sys.argv[2]
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group(backend)
rank, ranks = dist.get_rank(), dist.get_world_size()
checkpoint = folder / "checkpoint.pt"
step, total = torch.load(checkpoint) if checkpoint.exists() else (0, torch.zeros(1000))
while step < 6:
    if attempt == 0 and step == 4 and rank == ranks - 1:
        os._exit(17)
    share = torch.full((1000,), float(rank + step))
    dist.all_reduce(share)
    step, total = step + 1, total + share
    if rank == 0 and step % 2 == 0:
        torch.save((step, total), folder / "new.pt")
        os.replace(folder / "new.pt", checkpoint)
    dist.barrier()
print(f"rank {rank} attempt {attempt} total {total.unique().tolist()}", flush=True)
dist.destroy_process_group()
"""


def run_torchrun(backend, tmp_path, **environment):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    command += ["--monitor-interval=0.1", str(worker), str(tmp_path), backend]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env={**os.environ, **environment, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "exitcode  : 17" in run.stderr or "exitcode: 17" in run.stderr, run.stderr
    total = float(sum(rank + step for step in range(6) for rank in range(2)))
    for rank in range(2):
        assert f"rank {rank} attempt 1 total [{total}]" in run.stdout, run.stdout + run.stderr
    assert pathlib.Path(tmp_path, "checkpoint.pt").exists()


def test_restart_with_a_new_store(backend, tmp_path):
    run_torchrun(backend, tmp_path, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


def test_restart_with_the_old_store(backend, tmp_path):
    """torchrun's default: the store still holds what the dead attempt left in it."""
    if backend == "gloo":
        pytest.skip("gloo connects to the addresses that its dead predecessors left in the store")
    run_torchrun(backend, tmp_path)
