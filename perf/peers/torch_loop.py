#!/usr/bin/env python3
"""One rank of PyTorch's Gloo back end or of DeepSpeed's shared-memory all_reduce, timed by the same loop as all others.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=… torch_loop.py LOOP.so gloo|deepspeed OP ITERATIONS ROUNDS BYTES…

Times include the call from Python. An operation the library does not have is refused with exit code 3.
"""
import ctypes
import os
import sys

import torch
import torch.distributed as dist

BROADCAST = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t)
BARRIER = ctypes.CFUNCTYPE(None)
PREPARE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
CALL = ctypes.CFUNCTYPE(None, ctypes.c_int)


def tensor_at(address, count):
    """The loop's own memory as a tensor: nothing is copied."""
    if not address or count == 0:
        return torch.empty(0)
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


def copied(send, recv, operation):
    """torch.distributed reduces in place: the copy is part of what its users pay for an out-of-place call."""
    def call():
        recv.copy_(send)
        operation(recv)
    return call


def gloo_call(op, send, recv, rank, ranks):
    group = dist.group.WORLD
    if op == "all_reduce":
        return copied(send, recv, lambda t: dist.all_reduce(t))
    if op == "broadcast":
        mine = send if rank == 0 else recv
        return lambda: dist.broadcast(mine, 0)
    if op == "all_gather":
        parts = list(recv.chunk(ranks))
        return lambda: dist.all_gather(parts, send, group=group)
    if op == "gather":
        parts = list(recv.chunk(ranks)) if rank == 0 else None
        return lambda: dist.gather(send, parts, dst=0)
    if op == "scatter":
        parts = list(send.chunk(ranks)) if rank == 0 else None
        return lambda: dist.scatter(recv, parts, src=0)
    if op == "alltoall":
        return lambda: dist.all_to_all_single(recv, send)
    return None


def deepspeed_call(op, send, recv, rank, ranks):
    if op != "all_reduce":
        return None
    return copied(send, recv, torch.ops.deepspeed.inference_all_reduce_)


MAKERS = {"gloo": gloo_call, "deepspeed": deepspeed_call}


def main():
    loop, library, op, iterations, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    sizes = [int(size) for size in sys.argv[6:]]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    version = torch.__version__
    if library == "deepspeed":
        import deepspeed
        version = deepspeed.__version__
    make = MAKERS[library]
    if library == "deepspeed":
        from deepspeed.ops.op_builder import ShareMemCommBuilder
        os.environ.setdefault("LOCAL_SIZE", str(ranks))
        ShareMemCommBuilder().load().initialize(ranks, rank)
    if make(op, torch.zeros(ranks), torch.zeros(ranks), rank, ranks) is None:
        return 3

    calls = []

    def broadcast(values, count):
        tensor = torch.tensor([values[i] for i in range(count)])
        dist.broadcast(tensor, 0)
        for i in range(count):
            values[i] = int(tensor[i])

    def prepare(send, send_count, recv, recv_count):
        calls.append(make(op, tensor_at(send, send_count), tensor_at(recv, recv_count), rank, ranks))

    library_c = ctypes.CDLL(loop)
    library_c.weft_perf_run.argtypes = [ctypes.c_int, ctypes.c_int] + 3 * [ctypes.c_char_p] + 2 * [ctypes.c_int] + [
        ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t, BROADCAST, BARRIER, PREPARE, CALL]
    return library_c.weft_perf_run(
        rank, ranks, library.encode(), version.encode(), op.encode(), iterations, rounds,
        (ctypes.c_size_t * len(sizes))(*sizes), len(sizes), BROADCAST(broadcast), BARRIER(dist.barrier),
        PREPARE(prepare), CALL(lambda index: calls[index]()))


if __name__ == "__main__":
    sys.exit(main())
