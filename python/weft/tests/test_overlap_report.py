"""What overlap_report() says of stock DDP and FSDP2, and what WEFT_REPORT=1 prints."""

import json
import os
import subprocess
import sys
import textwrap
import time

import pytest
import torch
import torch.distributed as dist
import weft
from ranks import run_ranks
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 4


def train(model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(8, 300)).square().mean().backward()
        optimizer.step()


def layers() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(4)))


def check(report) -> None:
    """What holds of any report."""
    assert report.steps
    for step in report.steps:
        assert step["hidden_ms"] + step["exposed_ms"] == pytest.approx(step["communication_ms"])
        assert 0 <= step["hidden_ms"] <= step["hideable_ms"] + 1e-6 <= step["communication_ms"] + 2e-6
        for one in step["collectives"]:
            assert one["ready_ms"] <= one["started_ms"] + 1e-3 <= one["finished_ms"] + 2e-3
            assert -1e-6 <= one["exposed_ms"] <= one["communication_ms"] + 1e-6
    sums = report.totals()
    assert sums["communication_ms"] == pytest.approx(sum(step["communication_ms"] for step in report.steps))
    assert sum(one["calls"] for one in report.collectives()) == sum(len(step["collectives"]) for step in report.steps)


def train_ddp(rank: int, folder: str) -> dict:
    weft.record_overlap()
    train(DDP(layers(), bucket_cap_mb=0.5))
    report = weft.overlap_report()
    report.write_trace(f"{folder}/trace.json")
    report.plot(f"{folder}/overlap.png")
    check(report)
    return json.loads(report.to_json()) | {"table": report.table()}


def test_ddp_buckets_are_told_one_by_one(tmp_path):
    pytest.importorskip("matplotlib")
    for rank, made in enumerate(run_ranks(2, "weft", train_ddp, str(tmp_path))):
        assert made["rank"] == rank and made["ranks"] == 2
        typical = made["steps"][made["typical_step"]]
        buckets = [one for one in typical["collectives"] if one["operation"] == "all_reduce"]
        assert len(buckets) == 2
        assert sum(one["bytes"] for one in buckets) == 4 * (300 * 300 + 300) * 4
        assert "the median of those alike" in made["table"] and "total" in made["table"]
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    events = [event for event in trace if event["ph"] == "X"]
    assert {event["pid"] for event in events} == {0, 1}
    assert {event["cat"] for event in events} == {"compute", "communication"}
    assert (tmp_path / "overlap.png").read_bytes().startswith(b"\x89PNG")


def train_fsdp(rank: int) -> dict:
    weft.record_overlap()
    model = layers()
    mesh = dist.device_mesh.DeviceMesh("cpu", list(range(dist.get_world_size())))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model)
    report = weft.overlap_report()
    check(report)
    return report.to_dict() | {"table": report.table()}


def test_fsdp2_gathers_and_scatters_are_told():
    for made in run_ranks(2, "weft", train_fsdp):
        operations = {one["operation"] for one in made["collectives"]}
        assert {"all_gather_into_tensor", "reduce_scatter_tensor"} <= operations, operations
        step, _, sums = made["table"].partition(f" {STEPS} steps")
        for operation in ("all_gather_into_tensor", "reduce_scatter_tensor"):
            calls = sum(one["operation"] == operation for one in made["steps"][made["typical_step"]]["collectives"])
            assert step.count(f"  {operation} ") == calls > 0 and operation in sums, made["table"]


def train_own(rank: int, kind: str) -> dict:
    weft.emulate_link("50us:400MB/s")
    model = layers()
    weft.record_overlap()
    if kind == "ddp":
        model = weft.DistributedDataParallel(model, bucket_cap_mb=0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    else:
        optimizer = weft.ZeroOptimizer(model, weft.optim.AdamW, stage=int(kind), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(8, 300)).square().mean().backward()
        optimizer.step()
    report = weft.overlap_report()
    check(report)
    return report.to_dict()


@pytest.mark.parametrize("kind", ["ddp", "1", "2", "3"])
def test_calls_of_own_wrappers_are_told(kind):
    for made in run_ranks(2, "weft", train_own, kind):
        assert len(made["steps"]) == STEPS
        typical = made["steps"][made["typical_step"]]["collectives"]
        moved = {}
        for one in typical:
            moved[one["operation"]] = moved.get(one["operation"], 0) + one["bytes"]
        whole = 4 * (300 * 300 + 300) * 4
        wanted = ["all_reduce"] if kind == "ddp" else ["reduce_scatter", "all_gather"]
        for operation in wanted:
            assert whole <= moved[operation] <= 2.1 * whole, moved  # stage 3 gathers for forward and for backward


def sleep_for_data(rank: int) -> dict:
    model = DDP(layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weft.record_overlap()
    for _ in range(STEPS):
        time.sleep(0.2)  # as a slow loader
        model(torch.ones(8, 300)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    report = weft.overlap_report()
    return report.to_dict() | {"table": report.table()}


def test_time_that_is_neither_is_told():
    made = run_ranks(2, "weft", sleep_for_data)[0]
    step = made["steps"][made["typical_step"]]
    assert step["idle_ms"] >= 195
    assert step["compute_ms"] + step["exposed_ms"] + step["idle_ms"] == pytest.approx(step["step_ms"])
    assert "idle time left out" in made["table"]


def await_call() -> None:
    """Returns once the other rank has made its call, however long it takes to come to it."""
    dist.distributed_c10d._get_default_store().wait(["called"])


def compute(cpu_seconds: float) -> None:
    """Says that the call is made, and computes."""
    end = time.thread_time() + cpu_seconds
    dist.distributed_c10d._get_default_store().set("called", "")
    while time.thread_time() < end:
        pass


def wait_or_compute(rank: int, cpu_seconds: float) -> dict:
    """Rank 1 comes a second late; rank 0 computes a little meanwhile, and waits."""
    dist.all_reduce(torch.ones(1), async_op=True).wait()  # starts the threads
    weft.record_overlap()
    dist.barrier()
    if rank == 1:
        await_call()
        time.sleep(1)
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    if rank == 0:
        compute(cpu_seconds)
    work.wait()
    report = weft.overlap_report()
    check(report)
    return [one for one in report.steps[-1]["collectives"] if one["operation"] == "all_reduce"][-1]


@pytest.mark.parametrize("cpu_seconds", [0, 0.05])
def test_hidden_is_what_was_computed_meanwhile(cpu_seconds):
    call = run_ranks(2, "weft", wait_or_compute, cpu_seconds)[0]
    assert call["communication_ms"] > 400
    computed = 1000 * cpu_seconds
    late = call["started_ms"] - call["ready_ms"]  # on a busy machine: what was computed before it began hides nothing
    assert computed - late - 15 <= call["hidden_ms"] <= computed + 15, call


def record_twice(rank: int) -> tuple:
    weft.record_overlap()
    train(DDP(layers(), bucket_cap_mb=0.5))
    first = weft.overlap_report()
    weft.record_overlap()
    dist.all_reduce(torch.ones(7))
    second = weft.overlap_report()
    return first.to_dict(), first.table(), second.collectives()


def test_recording_again_forgets_and_set_up_is_told_apart():
    for first, table, second in run_ranks(2, "weft", record_twice):
        assert [(one["operation"], one["bytes"], one["calls"]) for one in second] == [("all_reduce", 28, 1)]
        assert len(first["steps"]) == STEPS
        # DDP compares its ranks' models when it is made: not what a step is like.
        alike, _, others = table.partition("the other ")
        assert f"of {STEPS} steps alike" in alike and ", which make other calls" in others, table
        assert "all_gather" not in alike.partition("steps alike")[2] and "all_gather" in others, table


def inline(rank: int) -> dict:
    weft.record_overlap()
    dist.all_reduce(torch.ones(1_000_000))
    report = weft.overlap_report()
    check(report)
    return report.totals()


def message_or_compute(rank: int, cpu_seconds: float) -> tuple:
    """Rank 0 sends a second late; rank 1 computes a little meanwhile, and waits."""
    weft.record_overlap()
    dist.barrier()
    tensor = torch.ones(100_000)
    if rank == 0:
        await_call()
        time.sleep(1)
        dist.send(tensor, 1, tag=3)
    else:
        work = dist.irecv(tensor, 0, tag=3)
        compute(cpu_seconds)
        work.wait()
    dist.barrier()
    report = weft.overlap_report()
    check(report)
    return [one for one in report.steps[-1]["collectives"] if one["operation"] in ("send", "recv")], report.table()


@pytest.mark.parametrize("cpu_seconds", [0, 0.05])
def test_messages_are_told(cpu_seconds):
    (sent, table), (received, _) = run_ranks(2, "weft", message_or_compute, cpu_seconds)
    assert [(one["operation"], one["bytes"]) for one in sent + received] == [("send", 400_000), ("recv", 400_000)]
    assert received[0]["communication_ms"] > 400
    # What the waiting thread spends on moving messages is no computation.
    assert received[0]["hidden_ms"] == pytest.approx(1000 * cpu_seconds, abs=15), received
    assert "send" in table


def batches(rank: int) -> list:
    weft.record_overlap()
    for _ in range(3):
        ops = [dist.P2POp(dist.isend, torch.ones(500), 1 - rank), dist.P2POp(dist.irecv, torch.ones(500), 1 - rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    report = weft.overlap_report()
    check(report)
    return [(one["operation"], one["bytes"], one["calls"]) for one in report.collectives()]


def test_batches_of_messages_are_told_one_by_one():
    for kinds in run_ranks(2, "weft", batches):
        assert kinds == [("recv", 2000, 3), ("send", 2000, 3)]


def test_calls_that_run_inline_are_exposed():
    for totals in run_ranks(2, "weft", inline):
        assert totals["exposed_ms"] == pytest.approx(totals["communication_ms"]) and totals["exposed_ms"] > 0


def sparse(rank: int) -> list:
    weft.record_overlap()
    tensor = torch.eye(3).to_sparse()
    dist.all_reduce(tensor)
    assert tensor.to_dense().equal(2 * torch.eye(3))
    return [(one["operation"], one["bytes"]) for one in weft.overlap_report().collectives()]


def test_sparse_tensors_are_told_by_their_entries():
    assert run_ranks(2, "weft", sparse) == [[("sparse_all_reduce", 3 * (4 + 2 * 8))]] * 2


def test_nothing_recorded_is_said():
    ran = subprocess.run(
        [sys.executable, "-c", "import weft; print(weft.overlap_report())"], capture_output=True, text=True, timeout=120
    )
    assert "has recorded no collective: start with WEFT_REPORT=1" in ran.stdout, ran.stderr


def run_with_report(tmp_path, script) -> str:
    """What two ranks of torchrun's print to stderr under WEFT_REPORT=1."""
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(script))
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)],
        env={**os.environ, "WEFT_REPORT": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def test_the_environment_hears_that_nothing_was_recorded(tmp_path):
    told = run_with_report(tmp_path, """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(3))
        dist.destroy_process_group()
    """)
    assert told.count("has recorded no collective: none of CPU tensors has run on a group of weft's") == 1, told


def test_the_environment_asks_for_it_at_exit(tmp_path):
    told = run_with_report(tmp_path, """
        import torch, torch.distributed as dist
        dist.init_process_group("weft")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(500, 500))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 500)).sum().backward()
            optimizer.step()
        dist.destroy_process_group()
    """)
    assert told.count("weft: rank 0 of 2, step") == 1, told
    assert "weft: rank 1" not in told
