"""Wrappers on a real GPU that ranks share, all checks of a kind in one process group; and programs with them."""

import os
import socket
import subprocess
import sys
import tempfile
import time

import pytest
import torch
import torch.distributed as dist
import weft
from gpu_models import SMALL, loss_of, model, on_gpu, sharded, share, update
from gpu_ranks import ON_A_GPU, needs_gpu, run_gpu_ranks, weft_only
from test_gpu_compose import PRECISIONS, STRATEGIES, check_auto, check_composed, check_recomputed
from test_gpu_replicas import check_replicas, check_replicas_of_rank_0s_values, check_unused
from test_gpu_wrapper_refusals import check_refusals
from test_gpu_wrapper_streams import check_default_stream, check_streams
from test_gpu_zero import SHARDED_CHECKS, check_hybrid, check_nested_units, check_saver, check_sharded, check_states

pytestmark = [needs_gpu, weft_only]


def check_host_goes_on(gpu, kind):
    """While the GPU is held up, warm steps are enqueued, and torch waits nowhere."""
    rows = gpu.put(share(0, gpu.rank))
    if kind == "replicas":
        net = weft.DistributedDataParallel(on_gpu(gpu, model()), **SMALL)
        step = lambda: update(net)  # noqa: E731
    else:
        net, zero = sharded(gpu, kind, max_norm=1.0)
        step = zero.step
    for _ in range(3):
        loss_of(net, rows).backward()
        step()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda._sleep(4_000_000_000)  # cycles: two seconds or more
    torch.cuda.set_sync_debug_mode("error")
    try:
        begin = time.perf_counter()
        for _ in range(2):
            loss_of(net, rows).backward()
            step()
        taken = time.perf_counter() - begin
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert taken < 1, f"{taken:.2f} s on the host"


def checks_of(kind: str, ranks: int) -> list:
    """(check, arguments); all of a kind on one process group, since making one takes seconds there."""
    if kind == "compose":
        composed = zip(["ddp", "zero1", "zero2", "zero3", "ddp", "zero3"], [*PRECISIONS, ("bf16", 2), ("fp16", 1)])
        found = [(check_composed, strategy, *precision) for strategy, precision in composed]
        return found + [(check_recomputed, "ddp"), (check_recomputed, "zero3"), (check_auto,)]
    if kind == "units":
        kinds = ("stage 1, timed", "stage 2, by unit", "stage 3, kept", "stage 3, poisoned")
        return [(check_nested_units,), (check_hybrid,)] + [(check_sharded, one, "AdamW", 3) for one in kinds]
    if kind == "refusals":
        return [(check_refusals,)]
    if kind == "replicas":
        found = [(check_replicas, {}, 1), (check_replicas, SMALL, 3)]
        more = [(check_replicas_of_rank_0s_values,), (check_unused,)]
    else:
        found = [(check_sharded, kind, "SGD", 3)]
        more = [(check_sharded, kind, "AdamW", 1), (check_states, kind), (check_saver, kind, f"{tempfile.gettempdir()}/weft {kind}")]
        more += [(check, kind) for check in SHARDED_CHECKS]
    if ranks != 2:
        return found
    return found + more + [(check, kind) for check in (check_streams, check_default_stream, check_host_goes_on)]


def check_all(gpu, kind):
    for check, *arguments in checks_of(kind, dist.get_world_size()):
        print(gpu.rank, check.__name__, *arguments, flush=True)
        check(gpu, *arguments)
        gpu.use(gpu.stream())


KINDS = [(kind, ranks) for ranks in (1, 2, 3) for kind in ("replicas", "stage 1", "stage 2", "stage 3")]
KINDS += [("refusals", 1), ("units", 2), ("compose", 2)]


@pytest.mark.skipif(not ON_A_GPU, reason="needs a GPU, and WEFT_TEST_GPU=1")
@pytest.mark.parametrize(("kind", "ranks"), KINDS)
def test_on_a_real_gpu(kind, ranks):
    run_gpu_ranks(ranks, check_all, kind, seconds=90)


PROGRAM = """
import os, torch, weft

os.environ["NCCL_HOSTID"] = "rank" + os.environ["RANK"]  # ranks share the GPU
device = os.environ["DEVICE"]
torch.distributed.init_process_group("weft")
kept = []
for strategy in ("ddp", "zero1", "zero2", "zero3"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1)).to(device)
    model, optimizer, _ = weft.compose(model, lr=1e-2, strategy=strategy, clip_grad=1.0, autotune=0)
    torch.manual_seed(torch.distributed.get_rank())
    for step in range(200):
        data = torch.randn(128, 64, device=device)
        loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
        optimizer.backward(loss)
        optimizer.step()
    kept += [model, optimizer]
    print(strategy, loss.item(), optimizer.grad_norm.item(), flush=True)
    assert loss.item() < 4
torch.distributed.destroy_process_group()
"""


def test_programs_learn_and_end(tmp_path):
    """Whose wrappers are there until the interpreter goes."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    env = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    env.update(DEVICE="cuda" if ON_A_GPU else "cpu")
    ranks = [
        subprocess.Popen(
            [sys.executable, script], env=dict(env, RANK=str(rank)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    texts = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(texts)
    assert all(strategy in text for strategy in STRATEGIES for text in texts)
