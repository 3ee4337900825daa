"""Messages and objects between ranks, on gloo and on weft."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks


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


CHECKS = [check_messages, check_tags, check_any_source, check_objects]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("check", CHECKS)
def test_message(check, ranks, backend):
    run_ranks(ranks, backend, check)


def test_waiting_runs_no_later_call(backend):
    run_ranks(2, backend, wait_for_the_first_of_two)
