"""The shared heap: CPU tensors where every rank can reach them."""

from __future__ import annotations

import os

from weft.backend import extension


def install(size: int | str | None) -> dict:
    loaded = extension()
    if size is None:
        usage = loaded.heap_usage()
        if usage is not None:
            return usage
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    loaded.install_heap(loaded.parse_bytes(size) if isinstance(size, str) else size)
    return loaded.heap_usage()
