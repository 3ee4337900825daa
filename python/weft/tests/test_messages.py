"""Messages and objects between ranks, on gloo and on weft."""

import gc
import threading
import time
import weakref

import numpy
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

CPU = torch.device("cpu")


def check_messages(rank):
    size = dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (1, 1000, 1 << 20):
        sent, got = torch.full((count,), float(rank)), torch.empty(count)
        for order in ((dist.isend, dist.irecv), (dist.irecv, dist.isend)):
            works = [op(sent, right) if op is dist.isend else op(got, left) for op in order]
            for work in works:
                work.wait()
            assert got.eq(left).all()
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, got.zero_(), left)]
        )
        for work in works:
            work.wait()
        assert got.eq(left).all()


def check_tags(rank):
    if rank == 0:
        sent = [torch.full((5000,), float(tag)) for tag in range(4)]
        for work in [dist.isend(sent[tag], 1, tag=tag) for tag in (3, 1, 2)]:
            work.wait()
    elif rank == 1:
        for tag in (1, 2, 3):
            got = torch.empty(5000)
            dist.recv(got, 0, tag=tag)
            assert got.eq(tag).all()


def check_any_source(rank):
    size = dist.get_world_size()
    if rank != 0:
        dist.send(torch.tensor([float(rank)]), 0, tag=4)
        return
    seen = []
    for _ in range(size - 1):
        got = torch.empty(1)
        source = dist.recv(got, tag=4)
        assert got[0] == source
        seen.append(source)
    assert sorted(seen) == list(range(1, size))


def check_objects(rank):
    size = dist.get_world_size()
    got = [None] * size
    dist.all_gather_object(got, {"rank": rank, "words": "ab" * rank})
    assert got == [{"rank": r, "words": "ab" * r} for r in range(size)]
    objects = [f"from {rank}", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects, 0)
    assert objects == ["from 0", 0]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)], 0)
    assert mine == [f"for {rank}"]


def wait_for_the_first_of_two(rank):
    """Waiting for a call must not run later ones: here the other rank makes its second only after a message."""
    first, second = torch.full((64,), rank + 1.0), torch.full((64,), 10.0 * (rank + 1))
    message = torch.zeros(1)
    for _ in range(20):
        first.fill_(rank + 1.0), second.fill_(10.0 * (rank + 1))
        work = dist.all_reduce(first, async_op=True)
        if rank == 0:
            later = dist.all_reduce(second, async_op=True)
            work.wait()
            dist.send(message, 1)
        else:
            work.wait()
            dist.recv(message, 0)
            later = dist.all_reduce(second, async_op=True)
        later.wait()
        assert first.eq(3.0).all() and second.eq(30.0).all()


def fail_beside_a_collective(rank):
    """A message's failure is told as that of a message alone."""
    with dist._coalescing_manager(device=CPU, async_ops=True) as together:
        dist.all_reduce(tensor := torch.ones(3))
        _ = dist.isend(torch.ones(2), 1) if rank == 0 else dist.irecv(torch.ones(1), 0)
    if rank == 0:
        together.wait()
    else:
        with pytest.raises(dist.DistBackendError, match="^weft: rank 1: a message from rank 0"):
            together.wait()
        assert dist.group.WORLD._get_backend(CPU).get_error().name == "COMM_ERROR"
    assert tensor.eq(2).all()


def keep_what_is_sent_together(rank):
    """Inputs of coalesced collectives stay until these are through, also where nobody else keeps them."""
    store = dist.distributed_c10d._get_default_store()
    outputs = [torch.zeros(5000) for _ in range(2)]
    memory = numpy.full(5000, rank + 1, numpy.float32)
    alive = weakref.ref(memory)
    mine = torch.from_numpy(memory)
    if rank == 1:
        store.wait(["looked"])
    with dist._coalescing_manager(device=CPU, async_ops=True) as together:
        dist.all_gather(outputs, mine)
    del memory, mine
    if rank == 0:  # the other rank has not come yet
        gc.collect()
        assert alive() is not None
        store.set("looked", "")
    together.wait()
    assert outputs[0].eq(1).all() and outputs[1].eq(2).all()


def send_beside_a_thread_that_coalesces(rank):
    """Messages of other threads are sent and waited for by themselves."""
    peer, begun, got = 1 - rank, threading.Event(), [torch.zeros(5000) for _ in range(2)]

    def exchange():
        begun.wait()
        sent = dist.isend(torch.full((5000,), rank + 1.0), peer, tag=7)
        assert dist.recv(got[0], peer, tag=7) == peer
        sent.wait()
        done.append(got[0].eq(peer + 1).all().item())

    done = []
    thread = threading.Thread(target=exchange)
    thread.start()
    with dist._coalescing_manager(device=CPU, async_ops=True) as together:
        dist.isend(torch.full((5000,), rank + 3.0), peer)
        begun.set()
        thread.join()
        dist.irecv(got[1], peer)
    assert done == [True]
    together.wait()
    assert got[1].eq(peer + 3).all()


def reduce_beside_a_thread_that_sends(rank):
    """A batch of messages of one thread's is no matter of what others call."""
    peer, begun, reduced, got = 1 - rank, threading.Event(), threading.Event(), torch.zeros(3)

    def receive(*arguments, **options):
        begun.set()
        reduced.wait()
        return dist.irecv(*arguments, **options)

    def exchange():
        ops = [dist.P2POp(dist.isend, torch.full((3,), rank + 1.0), peer), dist.P2POp(dist.irecv, got, peer)]
        ops[1].op = receive
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    thread = threading.Thread(target=exchange)
    thread.start()
    begun.wait()
    dist.all_reduce(tensor := torch.ones(3))
    total = tensor.tolist()  # as soon as that has returned
    reduced.set()
    thread.join()
    assert total == [2] * 3 and got.eq(peer + 1).all()


def leave_by_an_exception(rank):
    """An exception within the block: nothing of it is coalesced any more, and the group goes on."""
    peer, ones = 1 - rank, torch.ones(3)
    for device in (None, CPU):
        with pytest.raises(ZeroDivisionError):
            with dist._coalescing_manager(device=device, async_ops=True):
                dist.all_reduce(ones)
                dist.all_gather_into_tensor(torch.zeros(6), ones)
                raise ZeroDivisionError
        dist.all_reduce(tensor := torch.ones(3))
        assert ones.eq(1).all() and tensor.eq(2).all()
    got = [torch.zeros(3) for _ in range(2)]
    bad = [dist.P2POp(dist.isend, torch.full((3,), rank + 1.0), peer), dist.P2POp(dist.irecv, torch.zeros(2, 3).t(), peer)]
    with pytest.raises(ValueError, match="not in row-major order"):
        dist.batch_isend_irecv(bad)
    dist.recv(got[0], peer)  # what had been sent by then
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, got[0], peer), dist.P2POp(dist.irecv, got[1], peer)]):
        work.wait()
    assert got[0].eq(peer + 1).all() and got[1].eq(rank + 1).all()


def fail_before_the_message(rank):
    """Where the collective fails beside which a message is received, that goes on, into memory that stays as long."""
    pair = dist.new_group([0, 1])
    if rank == 1:
        memory = numpy.zeros(5000, numpy.float32)
        alive = weakref.ref(memory)
        received = torch.from_numpy(memory)
    with dist._coalescing_manager(pair, CPU, async_ops=True) as together:
        if rank == 1:
            dist.irecv(received, 0, pair)
        dist.all_reduce(torch.zeros(rank + 1), group=pair)
    with pytest.raises(dist.DistBackendError, match="differs between ranks"):
        together.wait()
    if rank == 1:
        del memory, received, together
        gc.collect()
        assert alive() is not None
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(5000), 1, pair)
    elif rank == 1:
        while alive() is not None:  # the watchdog ends it
            time.sleep(0.01)


CHECKS = [check_messages, check_tags, check_any_source, check_objects]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("check", CHECKS)
def test_message(check, ranks, backend):
    run_ranks(ranks, backend, check)


def test_waiting_runs_no_later_call(backend):
    run_ranks(2, backend, wait_for_the_first_of_two)


@pytest.mark.parametrize("body", [fail_beside_a_collective, fail_before_the_message])
def test_failures_among_coalesced_calls(body):
    run_ranks(2, "weft", body)


@pytest.mark.parametrize("body", [send_beside_a_thread_that_coalesces, reduce_beside_a_thread_that_sends])
def test_threads_beside_one_another(body):
    run_ranks(2, "weft", body)


def test_coalescing_ends_with_an_exception():
    run_ranks(2, "weft", leave_by_an_exception)


def test_inputs_of_coalesced_calls_stay():
    run_ranks(2, "weft", keep_what_is_sent_together)
