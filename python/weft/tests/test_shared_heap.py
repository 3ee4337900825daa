"""Tensors in the shared heap: collectives reach them where they lie, fork() keeps them apart, a full heap falls back."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
import torch.distributed as dist
import weft
from ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

LARGE = 300_000  # elements: 1.2 MB of float32


def in_heap(tensor: torch.Tensor) -> bool:
    """Whether freeing the tensor's memory gives it back to the heap."""
    before = weft.shared_heap()["in_use"]
    copy = torch.empty_like(tensor)
    return weft.shared_heap()["in_use"] > before and copy.numel() == tensor.numel()


def explained(capfd) -> str:
    """What WEFT_EXPLAIN made rank 0 say."""
    return "\n".join(line for line in capfd.readouterr().err.splitlines() if "[explain]" in line)


def group_with_heap(size="256M"):
    weft.shared_heap(size)
    os.environ["WEFT_EXPLAIN"] = "1"
    os.environ["WEFT_TUNING_CACHE"] = "0"  # measured, staging may win where ranks are far apart
    return dist.new_group()


def reduce_large(rank: int) -> None:
    group = group_with_heap()
    gap = torch.empty(50_000 * (rank + 1))  # the ranks' tensors lie at different places
    tensor = torch.arange(LARGE, dtype=torch.float32) + rank
    dist.all_reduce(tensor, group=group)
    torch.testing.assert_close(tensor, 2 * torch.arange(LARGE, dtype=torch.float32) + 1)
    gathered = torch.empty(2 * LARGE)
    dist.all_gather_into_tensor(gathered, torch.full((LARGE,), float(rank)), group=group)
    assert gathered[0] == 0 and gathered[-1] == 1
    shard = torch.empty(LARGE)
    dist.reduce_scatter_tensor(shard, gathered, group=group)
    assert (shard == 2 * rank).all()
    del gap


def test_collectives_are_zero_copy(capfd):
    run_ranks(2, "weft", reduce_large)
    said = explained(capfd)
    for call in ("all_reduce, symmetric memory, in place", "all_gather, symmetric memory", "reduce_scatter, symmetric memory"):
        assert f"{call}: direct" in said, said


def train_with_ddp(rank: int, views: bool) -> None:
    group = group_with_heap()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(400, 400) for _ in range(4)))
    ddp = DDP(model, process_group=group, gradient_as_bucket_view=views)
    for _ in range(3):
        ddp.zero_grad()
        ddp(torch.ones(4, 400) * (rank + 1)).square().mean().backward()
    gradient = model[0].weight.grad.clone()
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    torch.testing.assert_close(gradient, model[0].weight.grad)


@pytest.mark.parametrize("views", [True, False])
def test_stock_ddp_is_zero_copy(views, capfd):
    run_ranks(2, "weft", train_with_ddp, views)
    said = explained(capfd)
    assert "all_reduce, symmetric memory, in place: direct" in said, said
    assert "all_reduce, private memory" not in said, said


def send_from_elsewhere(rank: int, folder: str) -> list:
    os.environ["WEFT_FLIGHT_DIR"] = folder
    group = group_with_heap()
    memory = bytearray(4 * LARGE)
    tensor = torch.frombuffer(memory, dtype=torch.float32) if rank == 1 else torch.zeros(LARGE)
    dist.all_reduce(tensor, group=group)
    dumps = [json.loads(pathlib.Path(file).read_text()) for file in weft.dump_flight_recorders()]
    return [call["path"] for dump in dumps for call in dump["calls"] if call["operation"] == "all_reduce"]


def test_says_which_rank_kept_a_call_from_it(capfd, tmp_path):
    reason = "copied: rank 1's send buffer is private memory"
    for paths in run_ranks(2, "weft", send_from_elsewhere, str(tmp_path)):
        assert any(path.startswith(reason) for path in paths if path), paths
    assert reason in explained(capfd)


def fill_heap(rank: int) -> None:
    group = group_with_heap("4M")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = [torch.ones(LARGE) for _ in range(8)]
    full = [str(one.message) for one in caught if "no room for a tensor" in str(one.message)]
    assert len(full) == 1, full
    for tensor in kept:
        dist.all_reduce(tensor, group=group)
        assert (tensor == 2).all()
    used = weft.shared_heap()["in_use"]
    del kept, tensor
    assert weft.shared_heap()["in_use"] < used
    assert in_heap(torch.ones(LARGE)), "what was freed serves again"


def test_a_full_heap_falls_back_and_says_so_once():
    run_ranks(2, "weft", fill_heap)


def small_and_zero(rank: int) -> None:
    weft.shared_heap("64M")
    before = weft.shared_heap()["in_use"]
    small = [torch.ones(1000) for _ in range(10)] + [torch.empty(0)]
    assert weft.shared_heap()["in_use"] == before
    large = torch.ones(LARGE)
    assert weft.shared_heap()["in_use"] >= before + 4 * LARGE
    resized = large.resize_(2 * LARGE)
    assert (resized[:LARGE] == 1).all()
    del small, large, resized
    assert weft.shared_heap()["in_use"] == before
    with pytest.raises(ValueError, match="its size cannot change"):
        weft.shared_heap("128M")
    with pytest.raises(ValueError, match="is no size"):
        weft.shared_heap("lots")
    with pytest.raises(ValueError, match="weft.shared_heap: size is 1.5"):
        weft.shared_heap(1.5)
    assert weft.shared_heap("64MiB") == weft.shared_heap("64Mi") == weft.shared_heap()


def test_only_large_tensors_take_room():
    run_ranks(1, "weft", small_and_zero)


def fork_and_write(rank: int) -> None:
    weft.shared_heap("128M")
    tensors = [torch.full((LARGE,), float(i)) for i in range(4)]
    child = os.fork()
    if child == 0:
        try:
            assert all((tensor == i).all() for i, tensor in enumerate(tensors))
            for tensor in tensors:
                tensor.fill_(-1)
            fresh = [torch.full((LARGE,), -2.0) for _ in range(20)]
            assert all((tensor == -2).all() for tensor in fresh) and (tensors[3] == -1).all()
            del tensors, fresh, tensor
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all((tensor == i).all() for i, tensor in enumerate(tensors)), "the child's writes show in its parent"


def test_what_a_forked_child_writes_and_allocates_stays_its_own():
    run_ranks(2, "weft", fork_and_write)


def free_under_a_child(rank: int) -> None:
    weft.shared_heap("64M")
    tensor = torch.full((LARGE,), 7.0)
    go_read, go_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go_read, 1)
        os._exit(0 if (tensor == 7).all() else 1)
    del tensor
    others = [torch.full((LARGE,), 9.0) for _ in range(30)]
    os.write(go_write, b"g")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child's tensor was overwritten"
    assert len(others) == 30


def test_memory_that_a_child_may_read_is_not_used_again():
    run_ranks(1, "weft", free_under_a_child)


class InPlace(Dataset):
    """Samples that its workers change where they lie."""

    def __init__(self) -> None:
        self.data = torch.zeros(8, LARGE)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.data[index] += index + 1
        return self.data[index].clone()


def load(rank: int) -> None:
    group = group_with_heap("256M")
    dataset = InPlace()
    for _ in range(2):
        loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context="fork")
        for number, batch in enumerate(loader):
            assert (batch[0] == 2 * number + 1).all() and (batch[1] == 2 * number + 2).all()
            total = torch.full((LARGE,), 1.0)
            dist.all_reduce(total, group=group)
            assert (total == 2).all()
        assert (dataset.data == 0).all(), "a worker's in-place write shows in its parent"


def test_dataloader_workers_write_in_place():
    run_ranks(2, "weft", load)


def reduce_in_child_of_heap(rank: int) -> None:
    assert weft.shared_heap()["capacity"] > 0
    tensor = torch.ones(LARGE)
    dist.all_reduce(tensor)
    assert (tensor == 2).all()


def test_ranks_forked_from_a_process_with_a_heap_have_their_own():
    script = """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        import torch, weft
        from ranks import run_ranks
        from test_shared_heap import reduce_in_child_of_heap
        kept = torch.full((300_000,), 5.0)
        assert weft.shared_heap()["in_use"] >= kept.nbytes
        run_ranks(2, "weft", reduce_in_child_of_heap)
        assert (kept == 5).all()
        print("fine")
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), folder],
        env={**os.environ, "WEFT_TORCH_HEAP": "256M", "WEFT_EXPLAIN": "1", "WEFT_TUNING_CACHE": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.stdout.strip().endswith("fine"), ran.stderr
    assert "all_reduce, symmetric memory, in place: direct" in ran.stderr, ran.stderr


@pytest.mark.parametrize("size", ["", "0"])
def test_no_size_in_the_environment_is_no_heap(size):
    ran = subprocess.run(
        [sys.executable, "-c", "import weft; weft._autoload(); print(weft.backend.extension().heap_usage())"],
        env={**os.environ, "WEFT_TORCH_HEAP": size, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.stdout.strip() == "None", ran.stderr


def test_bad_sizes_in_the_environment_are_named():
    ran = subprocess.run(
        [sys.executable, "-c", "import weft; weft._autoload()"],
        env={**os.environ, "WEFT_TORCH_HEAP": "much", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode != 0 and "WEFT_TORCH_HEAP=much" in ran.stderr, ran.stderr


def ask_without_heap(rank: int) -> None:
    assert not any(weft.shared_heap().values())
    torch.ones(LARGE)
    assert weft.shared_heap() == {"capacity": 0, "committed": 0, "in_use": 0, "withheld": 0}
    weft.shared_heap("64M")
    assert weft.shared_heap()["capacity"] == 64 << 20


def test_a_question_installs_nothing():
    run_ranks(2, "weft", ask_without_heap)


def test_half_of_the_machine_before_groups_are_made():
    script = "import weft; weft.shared_heap(); import torch; kept = torch.ones(300_000); print(weft.shared_heap()['in_use'] >= kept.nbytes)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.strip() == "True", ran.stderr
