"""Python exits while calls are under way."""

import subprocess
import sys

import pytest

PENDING_AT_EXIT = """
import atexit, sys, torch, torch.distributed as dist, weft
weft.emulate_link("100ms:1GB/s")
dist.init_process_group("weft", init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2)
peer = 1 - dist.get_rank()
{calls}
"""


@pytest.mark.parametrize(
    "calls",
    [
        "dist.all_reduce(torch.ones(1000), async_op=True)",
        "dist.all_reduce(torch.ones(1000), async_op=True).get_future().then(lambda done: done.value())",
        "dist.isend(torch.ones(3000000), peer); dist.irecv(torch.ones(3000000), peer)",
        "dist.irecv(torch.ones(3), peer).get_future().then(lambda done: done.value()); dist.send(torch.ones(3), peer)",
        "dist.all_reduce(torch.ones(9), async_op=True).get_future().then(lambda done: dist.all_reduce(torch.ones(9), async_op=True).wait())",
        "atexit.register(lambda: dist.all_reduce(torch.ones(9), async_op=True).wait())",
    ],
    ids=["collective", "chained", "messages", "chained message", "a callback that waits", "waited for at exit"],
)
def test_what_is_under_way_at_exit_does_not_abort_python(tmp_path, calls):
    command = [sys.executable, "-c", PENDING_AT_EXIT.format(calls=f"for _ in range(3): {calls}"), f"file://{tmp_path}/store"]
    ranks = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
