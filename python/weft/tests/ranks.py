"""Runs a function on several ranks that are forked from the test, under a watchdog."""

import faulthandler
import multiprocessing
import os
import pathlib
import pickle
import tempfile
import time
import traceback
from multiprocessing.connection import wait

import torch
import torch.distributed as dist

_GRACE_SECONDS = 30  # what the others get to end by themselves once a rank has failed


def run_ranks(ranks: int, backend: str, body, *arguments, timeout: float = 60) -> list:
    """Calls body(rank, *arguments) on each rank of a default process group and returns what each returned, in rank order.

    Fails with every rank's traceback where a rank raises or ends without a word. A rank that is still at work after
    `timeout` seconds prints where each of its threads is and ends. What the ranks return is
    pickled, tensors by value.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="weft-ranks-") as folder:
        processes, pipes = [], []
        for rank in range(ranks):
            receiver, sender = context.Pipe(duplex=False)
            store = pathlib.Path(folder) / "store"
            process = context.Process(
                target=_run_rank, args=(rank, ranks, backend, store, sender, timeout, body, arguments)
            )
            process.start()
            sender.close()
            processes.append(process)
            pipes.append(receiver)
        return _collect(processes, pipes, timeout)


def _run_rank(rank, ranks, backend, store, sender, timeout, body, arguments) -> None:
    faulthandler.dump_traceback_later(timeout, exit=True)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks)
        result = body(rank, *arguments)
        dist.barrier()
        dist.destroy_process_group()
        sender.send_bytes(pickle.dumps((True, result)))
    except BaseException:
        sender.send_bytes(pickle.dumps((False, traceback.format_exc())))


def _collect(processes, pipes, timeout) -> list:
    answers = {}
    deadline = time.monotonic() + timeout + _GRACE_SECONDS
    open_pipes = dict(zip(pipes, range(len(pipes))))
    while open_pipes and time.monotonic() < deadline:
        for pipe in wait(list(open_pipes), timeout=max(0, deadline - time.monotonic())):
            rank = open_pipes.pop(pipe)
            try:
                answers[rank] = pickle.loads(pipe.recv_bytes())
            except EOFError:
                processes[rank].join()
                answers[rank] = (False, f"ended without a word, exit code {processes[rank].exitcode}")
            if not answers[rank][0]:
                deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
    for process in processes:
        process.join(max(0, deadline - time.monotonic()) if len(answers) == len(processes) else 0)
        if process.is_alive():
            process.kill()
            process.join()
    for rank in range(len(processes)):
        answers.setdefault(rank, (False, "still at work when another rank had failed, or at the end of its time"))
    failures = [f"rank {rank}: {text}" for rank, (good, text) in sorted(answers.items()) if not good]
    assert not failures, "\n".join(failures)
    return [answers[rank][1] for rank in range(len(processes))]
