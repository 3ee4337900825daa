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
    launcher.fill_environment()
    launcher.keep_torchrun()
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

    ``size`` is the most the heap may take, in bytes or as "4G"; absent: half of the machine's memory. Memory is taken
    as it is used. A full heap says so once; further tensors are ordinary ones. Every rank calls it, before it makes the
    process groups that are to profit: gradients, buckets and parameters made earlier stay where they are.
    WEFT_TORCH_HEAP=4G does the same without a change to the program. Returns what the heap holds, in bytes.
    """
    from weft import heap

    return heap.install(size)


def overlap_report():
    """What has been recorded of this rank's communication since ``record_overlap()``, or the start under
    WEFT_REPORT=1: a ``weft.overlap.Report``."""
    from weft import overlap

    return overlap.report()


def record_overlap() -> None:
    """Records collectives and training steps from now on, for ``overlap_report()``."""
    from weft import overlap

    overlap.start()


def dump_flight_recorders() -> list[str]:
    """Writes this rank's last calls to WEFT_FLIGHT_DIR, or else the current directory, and returns the files: for
    ``weft-doctor``, which names the rank that the others wait for, and with ``--paths`` says why calls were copied."""
    from weft import backend

    return backend.extension().dump_flight_recorders()


def __getattr__(name: str):
    if name == "__version__":
        from importlib.metadata import version

        return version("weft")
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
