"""Weft for PyTorch: ``torch.distributed.init_process_group("weft")``.

torch finds the back end by itself (entry point ``torch.backends``); importing this package is only needed for the
functions below.
"""


def _autoload() -> None:
    """Called by ``import torch``."""
    import torch

    if not torch.distributed.is_available():
        return
    from weft import backend

    backend.register()


def set_default(device: str = "cpu") -> None:
    """Makes weft what torch picks for ``device`` where no back end is named, e.g. by ``init_device_mesh``."""
    from weft import backend

    backend.register()
    backend.set_default(device)


def __getattr__(name: str):
    if name == "__version__":
        from importlib.metadata import version

        return version("weft")
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
