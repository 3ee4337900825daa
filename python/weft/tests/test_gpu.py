"""Collectives of tensors on a GPU, in host memory: results, the order of streams, lives of tensors, errors."""

import datetime
import threading

import pytest
import torch
import torch.distributed as dist
from gpu_ranks import BACKEND, fake_only, needs_gpu, run_gpu_ranks, weft_only

pytestmark = needs_gpu
WAYS = ["waits at once", "async"]


def values(rank: int, count: int = 5, dtype=torch.float32) -> torch.Tensor:
    return (torch.arange(count) % 7 + 1 + rank).to(dtype)


def total(ranks: int, **how) -> torch.Tensor:
    return sum(values(r, **how) for r in range(ranks))


def finish(work, way: str) -> None:
    if way == "async":
        assert work.wait()
    else:
        assert work is None


def check_all_reduce(gpu, way):
    tensor = gpu.put(values(gpu.rank))
    finish(dist.all_reduce(tensor, async_op=way == "async"), way)
    assert gpu.get(tensor).equal(total(dist.get_world_size()))


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_all_reduce(ranks, way):
    run_gpu_ranks(ranks, check_all_reduce, way)


@weft_only
@pytest.mark.parametrize("name", ["weft", "cpu:weft,cuda:weft"])
def test_one_group_serves_both_devices(name):
    def body(gpu):
        host, device = values(gpu.rank), gpu.put(values(gpu.rank))
        dist.all_reduce(host)
        dist.all_reduce(device)
        assert host.equal(total(2)) and gpu.get(device).equal(total(2))
        group = dist.group.WORLD
        return group._get_backend(torch.device("cpu")) is group._get_backend(torch.device("cuda"))

    assert all(run_gpu_ranks(2, body, backend=name))


def check_every_collective(gpu, way):
    ranks, rank, later = dist.get_world_size(), gpu.rank, way == "async"
    mine = values(rank, 6)
    all_values = [values(r, 6) for r in range(ranks)]

    def call(operation, outputs, *arguments, **how):
        finish(operation(*arguments, async_op=later, **how), way)
        return [gpu.get(output) for output in outputs]

    def empty(count=6):
        return gpu.put(torch.zeros(count))

    tensor = gpu.put(mine)
    assert call(dist.broadcast, [tensor], tensor, src=ranks - 1)[0].equal(all_values[-1])

    tensor = gpu.put(mine)
    [got] = call(dist.reduce, [tensor], tensor, dst=0)
    assert rank != 0 or got.equal(sum(all_values))

    outputs = [empty() for _ in range(ranks)]
    for got, wanted in zip(call(dist.all_gather, outputs, outputs, gpu.put(mine)), all_values):
        assert got.equal(wanted)

    outputs = [empty(r + 1) for r in range(ranks)]
    for got, wanted in zip(call(dist.all_gather, outputs, outputs, gpu.put(mine[: rank + 1])), all_values):
        assert got.equal(wanted[: len(got)])

    output = empty(6 * ranks)
    assert call(dist.all_gather_into_tensor, [output], output, gpu.put(mine))[0].equal(torch.cat(all_values))

    outputs = [empty() for _ in range(ranks)] if rank == 0 else None
    for got, wanted in zip(call(dist.gather, outputs or [], gpu.put(mine), outputs, dst=0), all_values):
        assert got.equal(wanted)

    inputs = [gpu.put(one) for one in all_values] if rank == 0 else None
    output = empty()
    assert call(dist.scatter, [output], output, inputs, src=0)[0].equal(all_values[rank])

    output = empty()
    inputs = [gpu.put(mine + r) for r in range(ranks)]
    wanted = sum(all_values) + ranks * rank
    assert call(dist.reduce_scatter, [output], output, inputs)[0].equal(wanted)
    assert call(dist.reduce_scatter_tensor, [output], output, torch.cat(inputs))[0].equal(wanted)
    output = empty(rank + 1)
    uneven = [one[: r + 1].clone() for r, one in enumerate(inputs)]
    assert call(dist.reduce_scatter, [output], output, uneven)[0].equal(wanted[: rank + 1])

    outputs = [empty() for _ in range(ranks)]
    for r, got in enumerate(call(dist.all_to_all, outputs, outputs, inputs)):
        assert got.equal(all_values[r] + rank)
    output = empty(6 * ranks)
    [got] = call(dist.all_to_all_single, [output], output, torch.cat(inputs))
    assert got.equal(torch.cat([all_values[r] + rank for r in range(ranks)]))

    # Rank r gives r + 1 elements to everybody.
    give = [rank + 1] * ranks
    take = [r + 1 for r in range(ranks)]
    output = empty(sum(take))
    source = gpu.put(torch.full((sum(give),), float(rank)))
    [got] = call(dist.all_to_all_single, [output], output, source, output_split_sizes=take, input_split_sizes=give)
    assert got.equal(torch.cat([torch.full((r + 1,), float(r)) for r in range(ranks)]))
    dist.barrier()


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_every_collective(ranks, way):
    run_gpu_ranks(ranks, check_every_collective, way)


def check_types(gpu):
    Op = dist.ReduceOp
    for dtype in [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64]:
        for op, wanted in [(Op.SUM, total(2)), (Op.MAX, values(1)), (Op.MIN, values(0)), (Op.PRODUCT, values(0) * values(1))]:
            tensor = gpu.put(values(gpu.rank, dtype=dtype))
            dist.all_reduce(tensor, op=op)
            assert gpu.get(tensor).equal(wanted.to(dtype)), (dtype, op)
    for dtype in [torch.float32, torch.float16, torch.bfloat16]:
        tensor = gpu.put(values(gpu.rank, dtype=dtype))
        dist.all_reduce(tensor, op=Op.AVG)
        assert gpu.get(tensor).equal((total(2) / 2).to(dtype)), dtype
    tensor = gpu.put(values(gpu.rank))
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
    assert gpu.get(tensor).equal(total(2) / 2)
    output = gpu.put(torch.zeros(3))
    dist.reduce_scatter_tensor(output, gpu.put(values(gpu.rank, 6)), op=dist._make_nccl_premul_sum(2.0))
    assert gpu.get(output).equal(2 * total(2, count=6)[3 * gpu.rank : 3 * gpu.rank + 3])
    tensor = gpu.put(torch.complex(values(gpu.rank), -values(gpu.rank)))
    dist.all_reduce(tensor)
    assert gpu.get(tensor).equal(torch.complex(total(2), -total(2)))
    tensor = gpu.put(torch.tensor([True, False, gpu.rank == 0]))
    dist.all_reduce(tensor, op=Op.MAX)
    assert gpu.get(tensor).tolist() == [True, False, True]
    # What is only moved may be of any type.
    for dtype in [torch.float8_e4m3fn, torch.int16, torch.complex128, torch.bool]:
        tensor = gpu.put(values(gpu.rank, dtype=dtype))
        dist.broadcast(tensor, src=1)
        assert gpu.get(tensor).view(torch.uint8).equal(values(1, dtype=dtype).view(torch.uint8)), dtype
    for dtype, op in [(torch.int16, Op.SUM), (torch.int32, Op.BAND)]:
        with pytest.raises(NotImplementedError, match="all_reduce.*cuda"):
            dist.all_reduce(gpu.put(values(gpu.rank, dtype=dtype)), op=op)


@weft_only
def test_types_and_operators():
    run_gpu_ranks(2, check_types)


def check_list_order(gpu):
    ranks = dist.get_world_size()
    base = gpu.put(torch.zeros(2, 4))
    inputs = [base[:, 2 * r : 2 * r + 2] for r in range(ranks)]  # with gaps, so they are copied
    outputs = [gpu.put(torch.zeros(2, 2)) for _ in range(ranks)]
    added = gpu.put(values(gpu.rank, 8).view(2, 4))
    waits = gpu.fake and gpu.fake.host_waits_here()
    gate = gpu.gate()
    base.add_(added)
    work = dist.all_to_all(outputs, inputs, async_op=True)
    del inputs, base
    work.wait()
    outputs[0].mul_(1)
    assert not gpu.fake or gpu.fake.host_waits_here() == waits
    gate.open()
    for r, output in enumerate(outputs):
        assert gpu.get(output).equal(values(r, 8).view(2, 4)[:, 2 * gpu.rank : 2 * gpu.rank + 2])


@weft_only  # torch's own back end takes none with gaps
def test_lists_are_packed_and_unpacked_in_the_order_of_streams():
    run_gpu_ranks(2, check_list_order)


def check_order_of_streams(gpu):
    tensor, added = gpu.put(torch.zeros(5)), gpu.put(values(gpu.rank))
    waits = gpu.fake and gpu.fake.host_waits_here()
    gate = gpu.gate()
    tensor.add_(added)  # has not run when the collective is called
    work = dist.all_reduce(tensor, async_op=True)
    assert not work.is_completed()
    other = gpu.stream()
    gpu.use(other)
    work.wait()
    tensor.mul_(2)  # on a stream that waits for the collective
    assert not gpu.fake or gpu.fake.host_waits_here() - waits <= 1  # is_completed() asked
    gate.open()
    assert gpu.get(tensor).equal(2 * total(2))
    assert work.is_completed() and (BACKEND != "weft" or work.is_success())  # torch's own back end has dropped it
    assert work.result()[0].data_ptr() == tensor.data_ptr()


def test_a_collective_comes_between_what_was_enqueued_before_and_what_waits_for_it():
    run_gpu_ranks(2, check_order_of_streams)


def check_lives(gpu):
    """Tensors that the program forgets while the collective has not run."""
    source = gpu.put(values(gpu.rank, 1000))
    output = gpu.put(torch.zeros(2000))
    keeper = gpu.stream()
    gpu.use(keeper)
    temporary = gpu.put(values(gpu.rank, 1000))
    gate = gpu.gate()  # of the stream that the collective waits for
    work = dist.all_gather_into_tensor(output, temporary, async_op=True)
    gpu.use(gpu.stream())
    uses = gpu.fake and gpu.fake.recorded_uses()
    del temporary
    if gpu.rank == 0:
        work.wait()
    del work  # on rank 1 nobody has waited
    assert not gpu.fake or gpu.fake.recorded_uses() > uses  # neither did the stream that the call came from
    gate.open()
    dist.barrier(device_ids=[gpu.device.index])
    assert gpu.get(output).equal(torch.cat([values(0, 1000), values(1, 1000)]))
    del source


def test_tensors_live_until_the_gpu_is_through_with_them():
    run_gpu_ranks(2, check_lives)


def check_future(gpu):
    tensor = gpu.put(values(gpu.rank))
    gate = gpu.gate()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    halved = future.then(lambda done: done.value()[0].mul_(0.5))  # as DDP's hooks do; the GPU has done nothing yet
    gate.open()
    halved.wait()
    assert gpu.get(halved.value()).equal(total(2) / 2)
    return halved.done()


def test_what_is_chained_to_a_future_runs_behind_the_collective():
    assert all(run_gpu_ranks(2, check_future))


def check_waiting_on_the_host(gpu):
    dist.all_reduce(gpu.put(torch.ones(1)))  # connects, which can take longer than a real GPU's gate is closed
    tensor = gpu.put(values(gpu.rank))
    gate = gpu.gate()
    work = dist.all_reduce(tensor, async_op=True)
    with pytest.raises(RuntimeError, match="all_reduce: not complete after waiting for 50 ms"):
        work.wait(datetime.timedelta(milliseconds=50))
    gate.open()
    assert work.wait(datetime.timedelta(seconds=20)) and work.is_completed()
    other = gpu.put(values(gpu.rank))
    late = gpu.gate()
    other.mul_(3)
    if gpu.rank == 0:
        late.open()
    handle = dist.barrier(async_op=True, device_ids=[gpu.device.index])
    assert gpu.rank == 0 or not handle.is_completed()
    late.open()
    handle.wait()
    assert handle.is_completed()


@weft_only  # torch's own back end stops the group
def test_a_time_limit_and_a_barrier_wait_on_the_host():
    run_gpu_ranks(2, check_waiting_on_the_host)


def check_messages(gpu, first):
    if first:
        dist.all_reduce(gpu.put(torch.ones(1)))
    ranks, rank = dist.get_world_size(), gpu.rank
    tensor = gpu.put(values(rank))
    if rank == 0:
        dist.send(tensor, dst=1)
        dist.recv(tensor, src=1)
        assert gpu.get(tensor).equal(values(0) * 2)
    elif rank == 1:
        dist.recv(tensor, src=0)
        tensor.mul_(2)
        work = dist.isend(tensor, dst=0)
        work.wait()
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    source, target = gpu.put(values(rank, 3)), gpu.put(torch.zeros(3))
    calls = gpu.fake and gpu.fake.calls("ncclGroupEnd")
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, source, right), dist.P2POp(dist.irecv, target, left)])
    for work in works:
        work.wait()
    assert len(works) == 1 and (not gpu.fake or gpu.fake.calls("ncclGroupEnd") > calls)
    assert gpu.get(target).equal(values(left, 3))
    # Pairs that have met keep their line, the others use the group's.
    if rank in (0, 1):
        other = 1 - rank
        (dist.send if rank == 0 else dist.recv)(target, other)
    with pytest.raises(NotImplementedError, match="no messages from any rank" if BACKEND == "weft" else None):
        dist.recv(tensor)


@pytest.mark.parametrize("first", [False, True], ids=["messages first", "after a collective"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_messages(ranks, first):
    run_gpu_ranks(ranks, check_messages, first)


def check_coalesced(gpu):
    group = dist.group.WORLD
    tensors = [gpu.put(values(gpu.rank, count)) for count in (3, 5, 8)]
    with dist._coalescing_manager(group, gpu.device, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor, count in zip(tensors, (3, 5, 8)):
        assert gpu.get(tensor).equal(total(2, count=count))
    inputs = [gpu.put(values(gpu.rank, count)) for count in (2, 4)]
    outputs = [gpu.put(torch.zeros(2 * count)) for count in (2, 4)]
    with dist._coalescing_manager(group):
        for output, source in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, source)
    for output, count in zip(outputs, (2, 4)):
        assert gpu.get(output).equal(torch.cat([values(0, count), values(1, count)]))
    shares = [gpu.put(torch.zeros(count)) for count in (2, 4)]
    with dist._coalescing_manager(group):
        for share, output in zip(shares, outputs):
            dist.reduce_scatter_tensor(share, output)
    for share, count in zip(shares, (2, 4)):
        assert gpu.get(share).equal(2 * values(gpu.rank, count))
    if BACKEND != "weft":
        return
    # Lists within a group are unpacked behind it.
    lists = [gpu.put(torch.zeros(2, 2)).t() for _ in range(2)]
    with dist._coalescing_manager(group, gpu.device):
        dist.all_gather(lists, gpu.put(values(gpu.rank, 4).view(2, 2)))
    assert gpu.get(lists[1]).equal(values(1, 4).view(2, 2))


def test_coalesced_calls_are_one_group():
    run_gpu_ranks(2, check_coalesced)


def check_allocation(gpu):
    backend = dist.group.WORLD._get_backend(gpu.device)
    assert backend.supports_tensor_alloc(gpu.device)
    before = gpu.fake and gpu.fake.calls("ncclMemAlloc")
    tensor = backend.allocate_tensor(1000, dtype=torch.float32, device=gpu.device)
    dist.barrier()
    assert tensor.device == gpu.device and (not gpu.fake or gpu.fake.calls("ncclMemAlloc") > before)
    tensor.fill_(gpu.rank + 1)
    dist.all_reduce(tensor)
    assert gpu.get(tensor).equal(torch.full((1000,), 3.0))
    # A block that is freed while its stream is busy is given out again behind what is there.
    gate = gpu.gate()
    tensor.fill_(7)
    address = tensor.data_ptr()
    others = [backend.allocate_tensor(1000, dtype=torch.float32, device=gpu.device) for _ in range(2)]
    del tensor
    gpu.use(gpu.stream())
    again = backend.allocate_tensor(1000, dtype=torch.float32, device=gpu.device)
    assert again.data_ptr() == address
    again.fill_(9)
    gate.open()
    assert gpu.get(again).equal(torch.full((1000,), 9.0))
    del others


@weft_only
def test_tensors_in_memory_of_nccl():
    run_gpu_ranks(2, check_allocation)


def check_allocation_in_use(gpu, begun):
    """What is allocated is freed while a collective uses it on the group's stream, and nobody has waited."""
    backend = dist.group.WORLD._get_backend(gpu.device)
    tensors = [backend.allocate_tensor(1000, dtype=torch.float32, device=gpu.device) for _ in range(3)]
    ones = gpu.put(torch.ones(1000))
    dist.all_reduce(gpu.put(torch.ones(1)))
    if gpu.rank == 0:
        tensor = tensors.pop()
        tensor.fill_(1)
        address = tensor.data_ptr()
        work = dist.all_reduce(tensor, async_op=True)
        del tensor, work
        gpu.use(gpu.stream())
        again = backend.allocate_tensor(1000, dtype=torch.float32, device=gpu.device)
        assert again.data_ptr() == address
        again.fill_(9)
        written = torch.Event(device="cuda")
        written.record(gpu.current())
        through = written.query()
        begun.set()  # the other rank has not come yet
        assert not through
        assert gpu.get(again).eq(9).all()
    else:
        begun.wait()
        dist.all_reduce(ones)
        assert gpu.get(ones).eq(2).all()


@fake_only
def test_tensors_of_nccls_memory_live_until_calls_are_through():
    run_gpu_ranks(2, check_allocation_in_use, threading.Event())


def check_groups(gpu):
    pair = dist.new_group([0, 1])
    tensor = gpu.put(values(gpu.rank))
    if gpu.rank < 2:
        dist.all_reduce(tensor, group=pair)
        assert gpu.get(tensor).equal(total(2))
    dist.all_reduce(tensor)
    objects = [None] * 3
    dist.all_gather_object(objects, {"rank": gpu.rank})
    assert [one["rank"] for one in objects] == [0, 1, 2]
    things = [[gpu.rank]]
    dist.broadcast_object_list(things, src=2)
    assert things == [[2]]


@weft_only
def test_subgroups_and_objects():
    run_gpu_ranks(3, check_groups)


def check_groups_of_a_bound_device(gpu):
    """As after init_process_group(device_id=…): torch tells ranks of groups that they are not in."""
    dist.group.WORLD.bound_device_id = gpu.device
    for members in ([0, 1], [1, 2]):
        group = dist.new_group(members)
        tensor = gpu.put(values(gpu.rank))
        if gpu.rank in members:
            dist.all_reduce(tensor, group=group)
            assert gpu.get(tensor).equal(values(members[0]) + values(members[1]))


@fake_only  # on a real one torch itself binds it
def test_groups_of_some_ranks_of_a_bound_device():
    run_gpu_ranks(3, check_groups_of_a_bound_device)


def check_mistakes(gpu):
    backend = dist.group.WORLD._get_backend(gpu.device)
    with pytest.raises(ValueError, match="has gaps or overlaps"):
        dist.all_reduce(gpu.put(torch.zeros(4, 4))[:, :2])
    dist.all_reduce(gpu.put(torch.ones(1)))
    gpu.fake.set_device(1 - gpu.rank)
    elsewhere = torch.empty(3, device=torch.device("cuda", 1 - gpu.rank))
    gpu.fake.set_device(gpu.rank)
    with pytest.raises(ValueError, match=f"on cuda:{1 - gpu.rank}, but this group serves cuda:{gpu.rank}"):
        dist.all_reduce(elsewhere)
    with pytest.raises(ValueError, match="on one device|is on cuda.*and on cpu"):
        dist.all_gather([gpu.put(torch.zeros(1)), torch.zeros(1)], gpu.put(torch.zeros(1)))
    assert backend.name() == "weft"


@fake_only
def test_mistakes_are_refused_by_name():
    run_gpu_ranks(2, check_mistakes)


def check_failure(gpu, seen):
    dist.all_reduce(gpu.put(torch.ones(1)))
    if gpu.rank == 1:
        assert seen.wait(30)
        return
    backend = dist.group.WORLD._get_backend(gpu.device)
    tensor = gpu.put(values(gpu.rank))
    work = dist.all_reduce(tensor, async_op=True)
    with pytest.raises(RuntimeError, match="Timed out waiting.*rank 1"):
        work.wait(datetime.timedelta(seconds=30))
    assert not work.is_success()
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(tensor)
    assert backend.get_error().name == "TIMEOUT"
    seen.set()


@fake_only
def test_a_rank_that_does_not_come_is_named():
    run_gpu_ranks(2, check_failure, threading.Event(), timeout=datetime.timedelta(seconds=5), ends_well=False)


def check_abort(gpu):
    dist.all_reduce(gpu.put(torch.ones(1)))
    tensor = gpu.put(values(gpu.rank))
    gate = gpu.gate()
    with pytest.raises(RuntimeError, match="rank 0 aborted its process group"):
        work = dist.all_reduce(tensor, async_op=True)  # where the other was faster, this fails
        if gpu.rank == 0:
            dist.group.WORLD._get_backend(gpu.device).abort()
        gate.open()
        work.wait(datetime.timedelta(seconds=30))
        dist.all_reduce(tensor)
    gate.open()


@fake_only
def test_abort():
    run_gpu_ranks(2, check_abort, ends_well=False)
