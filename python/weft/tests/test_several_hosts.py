"""Ranks that torchrun has started on several hosts, which only differ in name: over UCX, without MPI."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent

needs_ucx = pytest.mark.skipif(not pathlib.Path("/usr/include/ucp/api/ucp.h").exists(), reason="UCX's headers are not here")


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def torchrun_on_two_hosts(*command, timeout: float = 900, **environment):
    """What `python COMMAND` came to with two ranks on each of two hosts: for each the exit code of torchrun, and both streams."""
    start = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1",
             f"--master-port={unused_port()}"]
    runs = [
        subprocess.Popen([*start, f"--node-rank={host}", *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         cwd=HERE, env={**os.environ, **environment})
        for host in range(2)
    ]
    try:
        return [(run.communicate(timeout=timeout)[0], run.returncode) for run in runs]
    finally:
        for run in runs:
            run.kill()


@needs_ucx
def test_every_call():
    runs = torchrun_on_two_hosts("mpirun_ranks.py", "aabb", "destroy", WEFT_EXPLAIN="1")
    output = "\n".join(text for text, _ in runs)
    assert [code for _, code in runs] == [0, 0], output
    assert "checks passed" in output, output
    assert "hierarchical, 4 ranks" in output, output
    assert "weft: [warn]" not in output, output
