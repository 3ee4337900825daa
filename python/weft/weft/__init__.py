"""Weft for PyTorch: ``torch.distributed.init_process_group("weft")``.

torch finds the back end by itself (entry point ``torch.backends``); importing this package is only needed for the
functions below.
"""

from __future__ import annotations

import os


def _autoload() -> None:
    """Called by ``import torch``."""
    import torch

    if not torch.distributed.is_available():
        return
    from weft import backend, launcher

    backend.register()
    if launcher.is_starter():
        launcher.keep_starter()
    else:
        launcher.fill_environment()
    # Tensors and steps count from the start: these two load the extension now.
    if "WEFT_TORCH_HEAP" in os.environ:
        backend.extension().install_heap_from_environment()
    if "WEFT_REPORT" in os.environ:
        from weft import overlap

        overlap.start_from_environment()


def set_default(device: str = "cpu") -> None:
    """Makes weft what torch picks for ``device`` where no back end is named, e.g. by ``init_device_mesh``."""
    from weft import backend

    backend.register()
    backend.set_default(device)


def shared_heap(size: int | str | None = None) -> dict:
    """From now on CPU tensors of 64 KB and more lie in memory that all ranks of the machine can reach, so that
    collectives need not copy them.

    ``size`` is the most the heap may take, in bytes or as "4G"; absent: half of the machine's memory, but once a heap or
    the default process group is there nothing is installed and the call only tells. Memory is taken as it is used. A
    full heap says so once; further tensors are ordinary ones. Every rank calls it, before it makes the process groups
    that are to profit: gradients, buckets and parameters made earlier stay where they are. WEFT_TORCH_HEAP=4G does the
    same without a change to the program (0: no heap). Returns what the heap holds, in bytes; zeros: there is none.
    """
    from weft import heap

    return heap.install(size)


def emulate_link(link: str | None) -> None:
    """Groups made from now on, and the wrappers on them, take as long over CPU tensors as over a link such as
    "50us:1GB/s" (latency, bandwidth) by the ring formulas, while their threads sleep: what a program would hide or not
    between hosts, seen on one. None: no further. Every rank calls it. GPUs and ``send``/``recv`` are not slowed down."""
    from weft import backend

    backend.extension().emulate_link(link)


def overlap_report():
    """What has been recorded of this rank's communication since ``record_overlap()``, or the start under
    WEFT_REPORT=1: a ``weft.overlap.Report``."""
    from weft import overlap

    return overlap.report()


def record_overlap() -> None:
    """Records collectives and training steps from now on, for ``overlap_report()``; what was recorded before is
    forgotten, so that a second call leaves out a warm-up."""
    from weft import overlap

    overlap.start()


def dump_flight_recorders() -> list[str]:
    """Writes this rank's last calls to WEFT_FLIGHT_DIR, or else the current directory, and returns the files: for
    ``weft-doctor``, which names the rank that the others wait for, and with ``--paths`` says why calls were copied."""
    from weft import backend

    return backend.extension().dump_flight_recorders()


def memory_report():
    """Bytes that the library has allocated for this rank's wrappers and optimizers, live and at their peak, by what they
    are for: a ``weft.memory.Report``."""
    from weft import memory

    return memory.report()


# Imported when they are first asked for: `import torch` imports this package.
_LAZY = {
    "optim": "weft.optim",
    "amp": "weft.amp",
    "clip_grad_norm_": "weft.clip",
    "DistributedDataParallel": "weft.ddp",
    "ZeroOptimizer": "weft.zero",
    "fully_shard": "weft.units",
    "memory": "weft.memory",
    "compose": "weft.composing",
    "strategies": "weft.strategies",
    "TrainingState": "weft.training_state",
    "CheckpointSaver": "weft.training_state",
    "load_checkpoint": "weft.training_state",
    "Prefetcher": "weft.prefetch",
    "pack": "weft.packing",
    "multi_apply": "weft.streams",
    "layers": "weft.layers",
    "patch": "weft.patching",
    "unpatch": "weft.patching",
    "graph": "weft.graph",
    "memory_plan": "weft.graph",
    "auto_checkpoint": "weft.recompute",
}


def __getattr__(name: str):
    if name in _LAZY:
        import importlib

        module = importlib.import_module(_LAZY[name])
        return module if _LAZY[name] == f"weft.{name}" else getattr(module, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("weft")
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
