"""The shared heap: CPU tensors where every rank can reach them."""

from __future__ import annotations

import os

import torch.distributed as dist

from weft import sizes
from weft.backend import extension


def install(size: int | str | None) -> dict:
    loaded = extension()
    if size is None:
        usage = loaded.heap_usage()
        if usage is not None:
            return usage
        if dist.is_available() and dist.is_initialized():
            # Too late for the group that is there: a question, and no heap is the answer.
            return dict.fromkeys(("capacity", "committed", "in_use", "withheld"), 0)
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    loaded.install_heap(sizes.of(size, "weft.shared_heap: size"))
    return loaded.heap_usage()
