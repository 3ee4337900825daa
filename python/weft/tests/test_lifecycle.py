"""Groups come and go, ranks die, processes fork; and what is refused is refused by name."""

import datetime
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import weft
from ranks import run_ranks


def usage() -> dict:
    gc.collect()
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(fields["Threads"]),
        "kilobytes": int(fields["VmRSS"].split()[0]),
        "mappings": sum(1 for _ in open("/proc/self/maps")),
    }


def use_tcp_store(rank) -> dist.Store:
    """Makes the default group anew on torchrun's kind of store: ranks that wait in a file's look every 10 ms only."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = [store.port if rank == 0 else None]
    dist.broadcast_object_list(port)
    if rank != 0:
        store = dist.TCPStore("127.0.0.1", port[0])
    size = dist.get_world_size()
    dist.destroy_process_group()
    dist.init_process_group("weft", store=store, rank=rank, world_size=size)
    return store


def check_thousand_groups(rank):
    store = use_tcp_store(rank)

    def one(number):
        group = dist.new_group()
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        if number % 10 == 0:
            dist.all_reduce(tensor, group=group, async_op=True).wait()
            peer = 1 - rank
            ops = [dist.P2POp(dist.isend, tensor, peer, group), dist.P2POp(dist.irecv, torch.ones(3), peer, group)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
        dist.destroy_process_group(group)

    for number in range(50):
        one(number)
    # Who waits long opens a descriptor of the other's process, which lasts as long as the group: here the default group.
    for late in range(2):
        time.sleep(0.5 if rank == late else 0)
        dist.barrier()
    before, keys = usage(), store.num_keys()
    for number in range(1000):
        one(number)
    dist.barrier()
    after, more_keys = usage(), store.num_keys()
    assert after["descriptors"] == before["descriptors"], (before, after)
    assert after["threads"] == before["threads"], (before, after)
    assert after["mappings"] <= before["mappings"] + 10, (before, after)
    assert after["kilobytes"] < before["kilobytes"] + 20000, (before, after)
    return keys, more_keys


def test_a_thousand_groups_leave_nothing():
    run_ranks(2, "weft", check_thousand_groups, timeout=600)  # against hanging


def check_store_is_clean(rank):
    # What torch itself keeps for each group is subtracted by its own back end that keeps no keys.
    store = dist.distributed_c10d._get_default_store()

    def grown(backend):
        dist.barrier()
        before = store.num_keys()
        dist.barrier()
        for _ in range(5):
            dist.destroy_process_group(dist.new_group(backend=backend))
        dist.barrier()
        return store.num_keys() - before

    assert grown("weft") <= grown("fake")


def test_groups_delete_their_keys():
    run_ranks(2, "weft", check_store_is_clean)


def check_streams_only_where_needed(rank):
    before = usage()["threads"]
    for _ in range(10):
        dist.all_reduce(torch.ones(3))
    assert usage()["threads"] == before
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    assert usage()["threads"] == before + 1


def test_threads_start_with_the_first_asynchronous_call():
    run_ranks(2, "weft", check_streams_only_where_needed)


def survive(rank, operation):
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1 .*died") as caught:
        for _ in range(100):
            operation(rank)
    assert time.monotonic() - start < 30
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.get_error() == torch._C._distributed_c10d.ErrorType.REMOTE_ERROR, caught
    os._exit(7)


@pytest.mark.parametrize(
    "operation",
    [
        lambda rank: dist.all_reduce(torch.ones(100)),
        lambda rank: dist.all_reduce(torch.ones(100), async_op=True).wait(),
        lambda rank: dist.recv(torch.ones(1), 1),
        lambda rank: dist.recv(torch.ones(1)),
    ],
    ids=["inline", "asynchronous", "recv", "recv from any"],
)
def test_a_killed_rank_is_named(operation):
    with pytest.raises(AssertionError) as failure:
        run_ranks(3, "weft", survive, operation)
    text = str(failure.value)
    assert "rank 1: ended without a word, exit code -9" in text
    assert text.count("exit code 7") == 2, text  # both survivors saw it


def check_mismatch(rank):
    with pytest.raises(dist.DistBackendError, match="differs between ranks"):
        dist.all_reduce(torch.ones(3 + rank))
    with pytest.raises(dist.DistBackendError, match="differs between ranks"):
        dist.all_reduce(torch.ones(3, dtype=torch.float32 if rank else torch.float64))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # the group goes on
    assert tensor[0] == 2


def check_description(rank):
    group = dist.new_group(group_desc="tensor_parallel")
    other = dist.new_group()
    for call in (lambda: dist.all_reduce(torch.ones(3 + rank), group=group),
                 lambda: dist.all_reduce(torch.ones(3 + rank), group=group, async_op=True).wait()):
        with pytest.raises(dist.DistBackendError, match=r"differs between ranks.*of ranks 0, 1\) \(group_desc tensor_parallel\)"):
            call()
    with pytest.raises(dist.DistBackendError, match="differs between ranks") as caught:
        dist.all_reduce(torch.ones(3 + rank), group=other)
    assert "group_desc" not in str(caught.value)
    with pytest.raises(dist.DistBackendError, match=r"\(group_desc default_pg\)"):
        dist.all_reduce(torch.ones(3 + rank))


def check_refusals(rank):
    with pytest.raises(ValueError, match=f"rank {rank}: all_reduce: tensor.*strides.*has gaps or overlaps.*contiguous"):
        dist.all_reduce(torch.zeros(4, 4)[:, :2])
    with pytest.raises(ValueError, match="row-major"):
        dist.all_gather_into_tensor(torch.zeros(8, 3), torch.zeros(3, 4).t())
    with pytest.raises(TypeError, match="all_reduce: tensors of dtype Float8_e8m0fnu are moved but not reduced"):
        dist.all_reduce(torch.zeros(3, dtype=torch.float8_e8m0fnu))
    with pytest.raises(ValueError, match="band has no meaning for f32"):
        dist.all_reduce(torch.zeros(3), dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="split sizes of input add up to 3"):
        dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [2, 2], [1, 2])
    with pytest.raises(ValueError, match="recv has 5 elements"):
        dist.all_gather_into_tensor(torch.zeros(5), torch.zeros(2))
    dist.barrier()


def check_late_rank(rank):
    group = dist.new_group(timeout=datetime.timedelta(seconds=4))  # which is also what its creation may take
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="rank 1 did not"):
            dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()
    if rank == 1:
        with pytest.raises(dist.DistBackendError):  # rank 0 has given up
            dist.all_reduce(torch.ones(1), group=group)


def check_timeout_of_the_environment(rank):
    group = dist.new_group()  # torch's default, half an hour
    if rank == 0:
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="rank 1 did not.*4000 ms.*init_process_group or new_group"):
            dist.all_reduce(torch.ones(1), group=group)
        assert time.monotonic() - start < 30
    dist.barrier(dist.new_group(timeout=datetime.timedelta(seconds=30)))
    own = dist.new_group(timeout=datetime.timedelta(seconds=30))._get_backend(torch.device("cpu"))
    assert own.options._timeout == datetime.timedelta(seconds=30)


def test_the_environment_limits_groups_without_a_timeout_of_their_own(monkeypatch):
    monkeypatch.setenv("WEFT_TIMEOUT", "4s")
    run_ranks(2, "weft", check_timeout_of_the_environment)


def check_longest_timeout(rank):
    group = dist.new_group(timeout=datetime.timedelta(days=5000))
    value = torch.ones(1)
    dist.all_reduce(value, group=group)
    dist.all_reduce(value, group=group, async_op=True).wait()
    other = torch.zeros(1)
    dist.batch_isend_irecv([dist.P2POp(dist.isend, value, 1 - rank, group), dist.P2POp(dist.irecv, other, 1 - rank, group)])[-1].wait()
    assert value.item() == other.item() == 4


def test_a_timeout_of_years_is_for_ever():
    run_ranks(2, "weft", check_longest_timeout)


def check_a_group_that_is_never_made(rank):
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="rank 1 did not join .*500 ms .seen by rank 0 of group 1.*same order"):
            dist.new_group(timeout=datetime.timedelta(milliseconds=500))
        store.set("gave up", "")
        os._exit(7)
    store.wait(["gave up"])  # it is there all the while
    os._exit(7)


def test_a_group_that_is_never_made_is_named():
    with pytest.raises(AssertionError) as failure:
        run_ranks(2, "weft", check_a_group_that_is_never_made)
    assert str(failure.value).count("exit code 7") == 2, failure.value


def check_wait_limit(rank):
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        with pytest.raises(dist.DistBackendError, match="not complete after waiting for 100 ms"):
            work.wait(datetime.timedelta(milliseconds=100))
        dist.send(torch.ones(1), 1)
        assert work.wait()
    else:
        dist.recv(torch.ones(1), 0)
        dist.all_reduce(torch.ones(1))


def check_abort(rank):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    if rank == 0:
        threading.Timer(0.3, backend.abort).start()
    with pytest.raises(dist.DistBackendError, match="abort"):
        if rank == 0:
            dist.recv(torch.ones(1), 1, group=group)
        else:
            time.sleep(0.6)
            dist.all_reduce(torch.ones(1), group=group)


def check_options(rank):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.name() == "weft" and dist.get_backend() == "weft"
    assert backend.options._timeout == dist.distributed_c10d.default_pg_timeout
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=33))
    assert backend.options._timeout == datetime.timedelta(seconds=33)
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    for count in (1000, 1000, 5, 1000, 1000, 1000, 1000):
        tensor = backend.allocate_tensor(count, dtype=torch.bfloat16, device=torch.device("cpu"))
        assert tensor.shape == (count,) and tensor.dtype == torch.bfloat16
        tensor.fill_(1)
        dist.all_reduce(tensor)
        assert tensor.eq(2).all()
    kept = [backend.allocate_tensor(77, dtype=torch.float32, device=torch.device("cpu")) for _ in range(5)]
    addresses = {tensor.data_ptr() for tensor in kept}
    assert len(addresses) == 5
    del tensor, kept


def check_profile(rank):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.broadcast(torch.ones(3), 0)
        dist.barrier()
    names = [event.name for event in profile.events()]
    assert names.count("weft:all_reduce") == 2 and "weft:broadcast" in names and "weft:barrier" in names, names


def check_default(rank):
    weft.set_default("cpu")
    mesh = dist.init_device_mesh("cpu", (2,))
    group = mesh.get_group()
    assert dist.get_backend(group) == "weft"
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor[0] == 2
    with pytest.raises(ValueError, match="set_default"):
        weft.set_default("tpu")


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((100,), float(index))


def check_data_loader(rank):
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    dist.isend(torch.ones(1), 1 - rank)
    dist.recv(torch.ones(1), 1 - rank)
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2):
            dist.all_reduce(batch)
            dist.all_reduce(batch, async_op=True).wait()
    if os.fork() == 0:  # a child that ends the long way, through destructors
        sys.stdout = sys.stderr = open(os.devnull, "w")
        dist.distributed_c10d._world.pg_map.clear()
        gc.collect()
        os._exit(0)
    os.wait()
    dist.all_reduce(torch.ones(3), async_op=True).wait()


def in_a_child(body):
    """Runs it in a forked process, which has half a minute."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def check_group_destroyed_by_a_callback(rank):
    """Of a collective and of a message, on the thread that runs what is chained to it."""
    for _ in range(3):
        for of_message in (False, True):
            group = dist.new_group()
            if rank == 1:
                dist.recv(torch.ones(1), 0)  # what it sends once it has chained the callback
            tensor = torch.ones(3)
            if of_message:
                work = (dist.irecv if rank == 0 else dist.isend)(tensor, 1 - rank, group=group)
            else:
                work = dist.all_reduce(tensor, group=group, async_op=True)
            if rank == 0:
                destroyed = work.get_future().then(lambda _: dist.destroy_process_group(group))
                dist.send(torch.ones(1), 1)
                destroyed.wait()
            else:
                work.wait()
                dist.destroy_process_group(group)
            dist.barrier()


def check_calls_of_a_child(rank):
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).get_future().wait()

    def child():
        mine = torch.full((3,), 100.0)
        for call in (
            lambda: dist.all_reduce(mine),
            lambda: dist.all_reduce(mine, async_op=True),
            lambda: dist.isend(mine, 1 - rank),
            lambda: dist.recv(mine, 1 - rank),
            dist.barrier,
            dist.monitored_barrier,
        ):
            with pytest.raises((RuntimeError, ValueError), match="forked"):
                call()
        assert mine.eq(100).all()

    in_a_child(child)
    for _ in range(3):
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.eq(2).all()


def check_groups_of_children(rank):
    """A child leaves the group it was born with, and makes one with the other rank's child."""
    dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda _: None).wait()
    path = [tempfile.mktemp(prefix="weft-children-")]
    dist.broadcast_object_list(path, 0)

    def child():
        dist.destroy_process_group()
        dist.init_process_group("weft", init_method=f"file://{path[0]}", rank=rank, world_size=2)
        tensor = torch.full((3,), 10.0 + rank)
        dist.all_reduce(tensor, async_op=True).wait()
        assert tensor.eq(21).all()
        dist.destroy_process_group()

    in_a_child(child)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.eq(2).all()
    if rank == 0:
        pathlib.Path(path[0]).unlink(missing_ok=True)


def check_emulated_link(rank):
    with pytest.raises(ValueError, match="20us:2GB/s"):
        weft.emulate_link("fast")
    weft.emulate_link("20ms:1GB/s")
    slow = dist.new_group()
    weft.emulate_link(None)
    seconds = {}
    for name, group in {"slow": slow, "usual": dist.new_group()}.items():
        dist.barrier(group)
        tensor = torch.ones(3)
        start = time.monotonic()
        dist.all_reduce(tensor, group=group)
        seconds[name] = time.monotonic() - start
        assert tensor.eq(2).all()
    assert seconds["slow"] >= 0.04, seconds  # twice the latency, on a ring of two


def check_barrier_of_no_gpu(rank):
    if not torch.cuda.is_available():
        dist.barrier(device_ids=[0])
        torch._C._ensureCUDADeviceGuardSet()  # as fake tensors do
        dist.barrier(device_ids=[0])


def check_threads(rank):
    groups = [dist.new_group() for _ in range(3)]
    failures = []

    def work(group, number):
        try:
            for i in range(100):
                tensor = torch.full((50,), float(number + i))
                dist.all_reduce(tensor, group=group)
                assert tensor[0] == 2 * (number + i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(group, 1000 * n)) for n, group in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize(
    "check",
    [
        check_mismatch,
        check_refusals,
        check_late_rank,
        check_wait_limit,
        check_abort,
        check_options,
        check_profile,
        check_default,
        check_data_loader,
        check_group_destroyed_by_a_callback,
        check_calls_of_a_child,
        check_groups_of_children,
        check_barrier_of_no_gpu,
        check_emulated_link,
        check_threads,
    ],
)
def test_group(check):
    run_ranks(2, "weft", check)


def spawned(rank, folder, name):
    dist.init_process_group(name, init_method=f"file://{folder}/store", rank=rank, world_size=2)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor[0] == 2
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["weft", "cpu:weft,cuda:weft"])
def test_spawned_processes(tmp_path, name):
    mp.start_processes(spawned, args=(tmp_path, name), nprocs=2, start_method="spawn")


PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("weft")
tensor = torch.ones(2); dist.all_reduce(tensor); assert tensor[0] == dist.get_world_size()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}\\n", end="", flush=True)
"""


def test_started_by_torchrun_without_an_import(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "rank 0 of 2" in done.stdout and "rank 1 of 2" in done.stdout, done.stderr
