"""What torch's users may ask of a back end besides collectives: its names, mixtures, options, groups and messages."""

import copy
import datetime
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import time

import pytest
import torch
import torch.distributed as dist
import weft
from models import batch, loss_of, small_model
from ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def check_whole_interface(rank):
    """What a script calls on the default group, whatever that was made of."""
    ranks = dist.get_world_size()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
    assert tensor.eq(ranks * ranks).all()
    dist.barrier()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    objects = [None] * ranks
    dist.all_gather_object(objects, rank)
    assert objects == list(range(ranks))
    objects = [None] * ranks if rank == 0 else None
    dist.gather_object({"rank": rank}, objects, 0)
    assert rank != 0 or objects == [{"rank": r} for r in range(ranks)]
    if rank == 0:
        dist.send_object_list(["a", 1], 1)
    elif rank == 1:
        objects = [None, None]
        dist.recv_object_list(objects, 0)
        assert objects == ["a", 1]
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(tensor, group=pair)
        assert tensor[0] == 2 * ranks * ranks
    local, _ = dist.new_subgroups(2)
    if rank < ranks // 2 * 2:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=local)
        assert tensor == 2
    if dist.group.WORLD._get_backend(CPU).name() == "weft":  # gloo has no coalescing
        with dist._coalescing_manager(device=CPU, async_ops=True) as together:
            tensors = [torch.full((count,), 1.0) for count in (3, 500)]
            for one in tensors:
                dist.all_reduce(one)
        together.wait()
        assert all(one.eq(ranks).all() for one in tensors)
    mesh = dist.init_device_mesh("cpu", (ranks,))
    dist.all_reduce(tensor := torch.ones(1), group=mesh.get_group())
    assert tensor == ranks
    model = DistributedDataParallel(small_model())
    loss_of(model, batch(rank, 4)).backward()


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["weft", "cpu:weft", "cpu:weft,cuda:weft", "cpu:gloo,cuda:weft"])
def test_default_group(name, ranks):
    run_ranks(ranks, name, check_whole_interface)


def check_one_object(rank):
    group = dist.group.WORLD
    assert group._get_backend(CPU) is group._get_backend(CUDA)
    # The name is of no single back end of torch's: nothing may depend on a default one.
    assert dist.get_backend_config() == "cpu:weft,cuda:weft"
    group._get_backend(CPU).set_timeout(datetime.timedelta(seconds=44))
    assert group._get_backend(CUDA).options._timeout == datetime.timedelta(seconds=44)
    inner = dist.new_group()
    assert inner._get_backend(CPU) is inner._get_backend(CUDA)


def test_one_object_serves_both_devices():
    run_ranks(2, "cpu:weft,cuda:weft", check_one_object)


def check_mixed(rank):
    """Groups of both back ends side by side, each with calls under way."""
    other = dist.new_group(backend="gloo" if dist.get_backend() == "weft" else "weft")
    assert {dist.get_backend(), dist.get_backend(other)} == {"weft", "gloo"}
    tensors = [torch.full((1000,), float(number)) for number in range(20)]
    works = [dist.all_reduce(one, group=other if number % 2 else None, async_op=True) for number, one in enumerate(tensors)]
    for number, (one, work) in enumerate(zip(tensors, works)):
        work.wait()
        assert one.eq(2 * number).all()


@pytest.mark.parametrize("default", ["weft", "gloo"], ids=lambda name: f"{name} by default")
def test_groups_of_weft_and_gloo(default):
    run_ranks(2, default, check_mixed)


def check_without_gpu(rank):
    """torch's NCCL back end insists on a GPU; what it says must not be hidden, nor the CPU's group be lost by it."""
    said = {}
    for cpu in ("gloo", "weft"):
        try:
            group = dist.new_group(backend=f"cpu:{cpu},cuda:nccl")
            dist.all_reduce(torch.ones(1), group=group)
            said[cpu] = "works"
        except Exception as error:
            said[cpu] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    assert said["weft"] == said["gloo"], said
    dist.all_reduce(torch.ones(1))
    return said["weft"]


@pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL")
def test_nccl_without_a_gpu_is_as_with_gloo():
    run_ranks(2, "weft", check_without_gpu)


def check_local_synchronization(rank):
    if rank < 2:  # the others do not come
        group = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(tensor := torch.ones(1), group=group)
        assert tensor == 2
    dist.barrier()


def check_split(rank):
    parent = dist.group.WORLD
    backend = parent._get_backend(CPU)
    assert backend.supports_splitting
    ranks = [0, 2] if rank in (0, 2) else [1]
    options = copy.deepcopy(backend.options)  # as torch's split_group() passes them
    assert options is not backend.options and options._timeout == backend.options._timeout
    child = parent.split_group(ranks, timeout=datetime.timedelta(seconds=11), opts=options, group_name=f"split {ranks}")
    inner = child._get_backend(CPU)
    assert (child.rank(), child.size()) == (ranks.index(rank), len(ranks)) and inner.name() == "weft"
    assert inner.options._timeout == datetime.timedelta(seconds=11)
    for _ in range(3):
        child.allreduce([tensor := torch.full((5,), float(rank))]).wait()
        assert tensor[0] == sum(ranks)
    dist.barrier()


def check_sequence(rank):
    backend = dist.group.WORLD._get_backend(CPU)
    before = backend._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 3
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(2)]
    for work in works:
        work.wait()
    assert backend._get_sequence_number_for_group() == before + 5


def check_shutdown(rank):
    group = dist.new_group()
    backend = group._get_backend(CPU)
    assert backend.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    work = dist.all_reduce(tensor := torch.ones(100000), group=group, async_op=True)
    backend.shutdown()  # waits for what is under way
    assert work.is_completed() and tensor.eq(2).all()
    for call in (
        lambda: dist.all_reduce(torch.ones(1), group=group),
        lambda: dist.all_reduce(torch.ones(1), group=group, async_op=True),
        lambda: dist.send(torch.ones(1), 1 - rank, group=group),
    ):
        with pytest.raises(dist.DistBackendError, match="was shut down; make a new one"):
            call()
    backend.shutdown()
    dist.all_reduce(torch.ones(1))  # others are not touched


def check_set_timeout(rank):
    group = dist.new_group()
    group.set_timeout(datetime.timedelta(milliseconds=400))
    if rank == 0:
        began = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="rank 1 did not.*all_reduce|all_reduce.*rank 1 did not"):
            dist.all_reduce(torch.ones(1), group=group)
        assert 0.3 < time.monotonic() - began < 30  # not the half an hour that is usual
    dist.barrier()


def check_premultiplied(rank):
    ranks = dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for factor in (0.25, torch.tensor([0.5], dtype=dtype)):
            scaled = dist._make_nccl_premul_sum(factor)
            whole = torch.arange(4 * ranks).to(dtype)
            share = torch.zeros(4, dtype=dtype)
            dist.reduce_scatter_tensor(share, whole, scaled)
            assert share.equal(whole[4 * rank : 4 * rank + 4] * float(factor) * ranks)
            dist.reduce_scatter(share.zero_(), list(whole.chunk(ranks)), scaled)
            assert share.equal(whole[4 * rank : 4 * rank + 4] * float(factor) * ranks)
            dist.all_reduce(whole, scaled, async_op=True).wait()
            assert whole.equal(torch.arange(4 * ranks).to(dtype) * float(factor) * ranks)


def check_detail(rank):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL puts torch's checks in front of the back end."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group()
    dist.set_debug_level(dist.DebugLevel.OFF)
    dist.all_reduce(tensor := torch.ones(3), group=group)
    assert tensor[0] == 2
    with pytest.raises(RuntimeError, match="[Dd]etected mismatch"):
        dist.all_reduce(torch.ones(3 + rank), group=group)
    model = weft.DistributedDataParallel(small_model(), group)
    loss_of(model, batch(rank, 4)).backward()
    mine = small_model()
    zero = weft.ZeroOptimizer(mine, process_group=group)
    loss_of(mine, batch(rank, 4)).backward()
    zero.step()


def check_profiled_titles(rank):
    ranks = dist.get_world_size()
    whole, share = torch.zeros(4 * ranks), torch.zeros(4)
    lists = list(whole.chunk(ranks))
    calls = {
        "weft:all_gather": lambda: dist.all_gather(lists, share),
        "weft:_all_gather_base": lambda: dist.all_gather_into_tensor(whole, share),
        "weft:gather": lambda: dist.gather(share, lists if rank == 0 else None),
        "weft:scatter": lambda: dist.scatter(share, lists if rank == 0 else None),
        "weft:reduce": lambda: dist.reduce(share, 0),
        "weft:reduce_scatter": lambda: dist.reduce_scatter(share, lists),
        "weft:_reduce_scatter_base": lambda: dist.reduce_scatter_tensor(share, whole),
        "weft:all_to_all": lambda: dist.all_to_all_single(whole, torch.zeros(4 * ranks)),
        "weft:send" if rank == 0 else "weft:recv": lambda: dist.send(share, 1) if rank == 0 else dist.recv(share, 0),
    }
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for call in calls.values():
            call()
    names = {event.name for event in profile.events()}
    assert not set(calls) - names, set(calls) - names


@pytest.mark.parametrize(
    "check, ranks",
    [
        (check_local_synchronization, 3),
        (check_split, 3),
        (check_sequence, 2),
        (check_shutdown, 2),
        (check_set_timeout, 2),
        (check_premultiplied, 2),
        (check_premultiplied, 3),
        (check_detail, 2),
        (check_profiled_titles, 2),
    ],
)
def test_group(check, ranks):
    run_ranks(ranks, "weft", check)


def hang(rank, folder):
    """Rank 1 never comes to the call that the others wait in."""
    os.environ["WEFT_FLIGHT_DIR"] = str(folder)
    group = dist.new_group(timeout=datetime.timedelta(seconds=4))
    dist.all_reduce(torch.ones(1000), group=group)
    if rank == 1:
        weft.dump_flight_recorders()
    else:
        with pytest.raises(dist.DistBackendError, match="rank 1 did not"):
            dist.all_reduce(torch.ones(1000), group=group)
        weft.dump_flight_recorders()


def test_the_doctor_names_a_hung_rank(tmp_path):
    doctor = pathlib.Path(sysconfig.get_path("scripts"), "weft-doctor")  # pip has put it there
    run_ranks(3, "weft", hang, tmp_path)
    said = subprocess.run([doctor, tmp_path], capture_output=True, text=True, check=False).stdout
    assert "rank 1" in said and "all_reduce" in said, said


def check_another_torch(rank):
    import weft.backend

    loaded = weft.backend.extension()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "__version__", "3.7.1+cpu")
        with pytest.raises(ImportError, match=rf"built for torch {loaded.torch_version[:4]}.*but this is torch 3.7.1.*pip install"):
            weft.backend.extension()


def test_the_extension_refuses_another_torch():
    run_ranks(1, "weft", check_another_torch)


@pytest.mark.parametrize(
    "version, distributed, said",
    [
        ("2.10.1", True, "2.10.1 is not supported.*2.11 to"),
        ("3.0.0a0+git", True, "3.0.0a0.* is not supported"),
        ("2.11.0+cpu", False, "without torch.distributed"),
    ],
)
def test_the_build_refuses_what_it_cannot_use(tmp_path, version, distributed, said):
    fake = tmp_path / "torch"
    fake.mkdir()
    (fake / "__init__.py").write_text(
        f"__version__ = {version!r}\n"
        f"class distributed:\n    is_available = staticmethod(lambda: {distributed})\n"
        "compiled_with_cxx11_abi = lambda: True\n"
    )
    script = pathlib.Path(__file__).parents[1] / "find_torch.py"
    run = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert re.search(said, run.stderr), run.stderr
