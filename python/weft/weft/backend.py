"""Registers the back end "weft" with torch.distributed."""

from __future__ import annotations

import torch
import torch.distributed as dist

NAME = "weft"
DEVICES = ["cpu", "cuda"]


def register() -> None:
    """Makes ``init_process_group("weft")`` known. Loads nothing: the extension comes with the first group."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=DEVICES)


def set_default(device: str) -> None:
    if device not in DEVICES:
        raise ValueError(f"weft: set_default({device!r}): weft serves {' and '.join(DEVICES)}")
    dist.Backend.default_device_backend_map[device] = NAME


def _create(group, options):
    return _extension().create(group)


def _release(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _extension():
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
