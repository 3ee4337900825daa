"""SIGUSR2, which docs/debugging-hangs.md sends to a job that hangs, makes its ranks write their last calls and harms nobody."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import time

import torch
import torch.distributed as dist

from ranks import run_ranks


def wait_for(what, seconds=40):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


def read_dumps(folder: str, ranks: int):
    """Every rank's dump of the default group, or nothing while some are missing."""
    files = [path for path in pathlib.Path(folder).glob("weft-flight.*.json")]
    dumps = [json.loads(path.read_text()) for path in files]
    return sorted(dumps, key=lambda dump: dump["rank"]) if len(dumps) == ranks else None


def doctor(folder: str):
    program = pathlib.Path(sysconfig.get_path("scripts"), "weft-doctor")  # pip has put it there
    return subprocess.run([program, folder, "--least-wait", "0.1"], capture_output=True, text=True, check=False)


def new_dumps(folder: str, pids):
    """What ranks write down now, once rank 0 waits in its call; nothing where it has not come to it yet."""
    for path in pathlib.Path(folder).glob("weft-flight.*.json"):
        path.unlink()
    for pid in pids:
        os.kill(pid, signal.SIGUSR2)
    dumps = wait_for(lambda: read_dumps(folder, 2))
    return dumps if "rank 1 never reached" in doctor(folder).stdout else None


def hang_for_a_while(rank: int, folder: str):
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    tensor = torch.ones(77)
    if rank == 1:
        for dump in wait_for(lambda: new_dumps(folder, pids)):
            last = dump["calls"][-1]
            assert dump["reason"] == "request"
            assert (last["operation"] == "all_reduce" and last["count"] == 77) == (dump["rank"] == 0), last
    dist.all_reduce(tensor)
    assert tensor[0] == 2


def test_ranks_write_their_last_calls(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_FLIGHT_DIR", str(tmp_path))
    run_ranks(2, "weft", hang_for_a_while, str(tmp_path))
    told = doctor(str(tmp_path))
    assert told.returncode == 1, told
    assert "rank 1 never reached all_reduce(77 × f32, sum)" in told.stdout, told


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGUSR2)
        return index


def signal_workers(rank: int, folder: str):
    loader = torch.utils.data.DataLoader(Numbers(), num_workers=2)
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]
    assert not list(pathlib.Path(folder).iterdir())


def signal_after_the_last_group(rank: int):
    group = dist.new_group()
    dist.destroy_process_group(group)
    dist.barrier()
    dist.destroy_process_group()
    os.kill(os.getpid(), signal.SIGUSR2)
    dist.init_process_group("fake", rank=0, world_size=1, store=dist.HashStore())  # for run_ranks' farewell


def test_data_loader_workers_outlive_the_signal(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_FLIGHT_DIR", str(tmp_path))
    run_ranks(2, "weft", signal_workers, str(tmp_path))


def test_ranks_without_a_group_outlive_the_signal():
    run_ranks(2, "weft", signal_after_the_last_group)


WORKER = """
import pathlib, sys, time
import torch, torch.distributed as dist

folder = pathlib.Path(sys.argv[1])
dist.init_process_group("weft")
dist.barrier()
(folder / f"ready{dist.get_rank()}").touch()
while not (folder / "go").exists():
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
"""


def test_torchrun_outlives_the_signal(tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(worker), str(tmp_path)]
    flights = tmp_path / "flights"
    environment = {**os.environ, "WEFT_FLIGHT_DIR": str(flights), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as torchrun:
        try:
            wait_for(lambda: len(list(tmp_path.glob("ready*"))) == 2, seconds=60)
            children = pathlib.Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
            for pid in [torchrun.pid, *map(int, children)]:
                os.kill(pid, signal.SIGUSR2)
            wait_for(lambda: read_dumps(str(flights), 2))
            (tmp_path / "go").touch()
            assert torchrun.wait(60) == 0, torchrun.stderr.read()
        finally:
            torchrun.kill()
