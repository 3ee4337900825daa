"""Registers the back end "weft" with torch.distributed."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

NAME = "weft"
DEVICES = ["cpu", "cuda"]

_torchs_monitored_barrier = dist.monitored_barrier if dist.is_available() else None
_torchs_coalescing_manager = dist._coalescing_manager if dist.is_available() else None
_torchs_batch_isend_irecv = dist.batch_isend_irecv if dist.is_available() else None


def register() -> None:
    """Makes ``init_process_group("weft")`` known. Loads nothing: the extension comes with the first group."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=DEVICES)
    atexit.register(_begin_exit)  # the first that is registered runs last: programs' own may still use groups
    dist.monitored_barrier = distributed_c10d.monitored_barrier = _monitored_barrier
    dist._coalescing_manager = distributed_c10d._coalescing_manager = _coalescing_manager
    dist.batch_isend_irecv = distributed_c10d.batch_isend_irecv = _batch_isend_irecv


def _begin_exit() -> None:
    if "weft._C" in sys.modules:
        extension().begin_exit()


def set_default(device: str) -> None:
    if device not in DEVICES:
        raise ValueError(f"weft: set_default({device!r}): weft serves {' and '.join(DEVICES)}")
    dist.Backend.default_device_backend_map[device] = NAME


def weft_of(group, device: torch.device):
    """A process group's back end for tensors on `device` where that is weft, also behind the checks that
    TORCH_DISTRIBUTED_DEBUG=DETAIL puts in front of it; else None."""
    try:
        found = group._get_backend(torch.device(device))
    except RuntimeError:  # it has none
        return None
    return getattr(found, "wrapped_pg", found) if found.name() == NAME else None


def _has_monitored_barrier(group) -> bool:
    try:
        return group._get_backend(torch.device("cpu")).name() in (NAME, "gloo")
    except RuntimeError:  # the group has no back end for the CPU
        return False


@functools.wraps(_torchs_monitored_barrier)
def _monitored_barrier(group=dist.group.WORLD, timeout=None, wait_all_ranks=False):
    # torch's refuses every name but gloo's, also those of mixtures like "cpu:gloo,cuda:weft".
    if distributed_c10d._rank_not_in_group(group):
        return distributed_c10d._warn_not_in_group("monitored_barrier")
    pg = distributed_c10d._get_default_group() if group is None else group
    if not _has_monitored_barrier(pg):
        return _torchs_monitored_barrier(group, timeout, wait_all_ranks)
    if timeout is None:
        timeout = distributed_c10d.default_pg_timeout
    elif isinstance(timeout, float):
        warnings.warn(f"Please specify timeout arg as a timedelta. Taking {timeout} as seconds.", stacklevel=2)
        timeout = timedelta(seconds=timeout)
    distributed_c10d._check_valid_timeout(timeout)
    return pg.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


@contextlib.contextmanager
def _coalescing_manager(group=None, device=None, async_ops=False):
    """torch's, after which the group calls as before also where an exception leaves the block: torch's own would go on
    keeping what is called."""
    pg = distributed_c10d._get_default_group() if group is None else group
    kept = distributed_c10d._world.pg_coalesce_state
    outermost = pg not in kept
    try:
        with _torchs_coalescing_manager(pg, device, async_ops) as works:
            yield works
    except BaseException:
        if outermost:
            kept.pop(pg, None)
            if device is not None and (found := weft_of(pg, device)) is not None:
                found._drop_coalesced()
        raise


@functools.wraps(_torchs_batch_isend_irecv)
def _batch_isend_irecv(p2p_op_list):
    distributed_c10d._check_p2p_op_list(p2p_op_list)
    on_cpu = all(op.tensor.device.type == "cpu" for op in p2p_op_list)
    if not on_cpu or weft_of(p2p_op_list[0].group, torch.device("cpu")) is None:
        return _torchs_batch_isend_irecv(p2p_op_list)
    # Of CPU tensors each message leaves at once. torch's would have the group coalesce meanwhile, and lose what other threads
    # call on it.
    works = []
    for op in p2p_op_list:
        peer = {"group_dst" if op.op is dist.isend else "group_src": op.group_peer}
        works.append(op.op(op.tensor, group=op.group, tag=op.tag, **peer))
    return works


def _create(group, options):
    _finish_mpi_at_exit()
    _dump_on_signal(os.getpid())
    return extension().create(group)


@functools.cache
def _finish_mpi_at_exit() -> None:
    atexit.register(_finish_mpi, os.getpid())


def _finish_mpi(process: int) -> None:
    # MPI waits for all ranks to finalise it. One that ends by an exception leaves it alone, and mpirun ends the others;
    # so does a forked child.
    if getattr(sys, "last_value", None) is None and os.getpid() == process:
        extension().finish_mpi()


@functools.cache
def _dump_on_signal(process: int):
    # For good, not as long as the group: the signal, which unhandled ends a process, is sent to all ranks of a job that
    # hangs, also to one that has left its groups. A forked child that makes groups needs one of its own.
    return extension().FlightDumpSignal()


def _release(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def extension():
    """The compiled part. It only runs with the torch that it was built for: c10d's classes change with every release."""
    try:
        from weft import _C
    except ImportError as error:
        raise ImportError(
            f"weft: the extension does not load with torch {torch.__version__}: {error}. Build it for this torch: "
            "pip install --no-build-isolation ./python/weft"
        ) from error
    if _release(_C.torch_version) != _release(torch.__version__):
        raise ImportError(
            f"weft: built for torch {_C.torch_version}, but this is torch {torch.__version__}. Build it again: "
            "pip install --no-build-isolation ./python/weft"
        )
    return _C
