"""Started by mpirun or torchrun: `mpirun_ranks.py HOSTS`, a letter for every rank; ranks of equal letters are on one host.

Runs every check of test_collectives, test_groups and test_messages, and what follows, on one default group; a rank that fails prints why.
"""

import os
import sys
import traceback

import test_collectives
import test_groups
import test_messages
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def check_every_subset(rank):
    """Groups are made by their members alone, others meanwhile by others."""
    size = dist.get_world_size()
    for members in range(1, 2**size):
        ranks = [r for r in range(size) if members >> r & 1]
        if rank not in ranks:
            continue
        group = dist.new_group(ranks, use_local_synchronization=True)
        tensor = torch.full((3000,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(sum(ranks)).all(), ranks
        gathered = [torch.empty(1) for _ in ranks]
        dist.all_gather(gathered, torch.tensor([float(rank)]), group=group)
        assert torch.cat(gathered).tolist() == ranks
        dist.destroy_process_group(group)


def check_ddp(rank):
    """The gradients of one step are those of the whole batch on one rank."""
    size = dist.get_world_size()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 5))
    alone = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 5))
    alone.load_state_dict(model.state_dict())
    batch, wanted = torch.randn(8 * size, 40), torch.randn(8 * size, 5)
    nn.functional.mse_loss(alone(batch), wanted).backward()
    replica = DistributedDataParallel(model, bucket_cap_mb=0.02)
    mine = slice(8 * rank, 8 * rank + 8)
    nn.functional.mse_loss(replica(batch[mine]), wanted[mine]).backward()
    for got, want in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(got.grad, want.grad)


def check_mixed_messages(rank):
    """Between all ranks and to oneself at once, with tags, in another order than sent."""
    size = dist.get_world_size()
    sizes = {1: 10, 2: 700, 3: 100_000}
    sent = {tag: torch.full((count,), 10.0 * rank + tag) for tag, count in sizes.items()}
    got = {(peer, tag): torch.empty(count) for tag, count in sizes.items() for peer in range(size) if peer != rank}
    works = [dist.isend(sent[tag], peer, tag=tag) for tag in (1, 2, 3) for peer in range(size) if peer != rank]
    works += [dist.irecv(tensor, peer, tag=tag) for (peer, tag), tensor in reversed(got.items())]
    for work in works:
        work.wait()
    for (peer, tag), tensor in got.items():
        assert tensor.eq(10.0 * peer + tag).all(), (peer, tag)


CHECKS = [
    *test_collectives.COMMON,
    *test_collectives.ONLY_WEFT,
    *test_groups.COMMON,
    *test_groups.ONLY_WEFT,
    *test_messages.CHECKS,
    check_every_subset,
    check_ddp,
    check_mixed_messages,
]


def main() -> int:
    rank = int(os.environ["RANK"])  # which weft has set under mpirun
    os.environ["WEFT_HOST_ID"] = sys.argv[1][rank]
    torch.set_num_threads(1)
    dist.init_process_group("weft")
    for check in CHECKS:
        try:
            check(rank)
            dist.barrier()
        except BaseException:
            print(f"rank {rank}: {check.__name__} failed\n{traceback.format_exc()}", flush=True)
            os._exit(1)  # what has started them ends the others
    if rank == 0:
        print(f"{len(CHECKS)} checks passed", flush=True)
    if sys.argv[2:] == ["destroy"]:
        dist.destroy_process_group()
        dist.init_process_group("weft")
        dist.barrier()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
