"""Prints what CMake needs to know about the installed torch: version;folder;C++ ABI;CUDA version, or 0;folder of nccl.h, or -."""

import importlib.util
import os
import sys

import torch

# c10d's C++ classes change between releases: these are the ones that the extension has been built and tested with.
OLDEST, NEWEST = (2, 11), (2, 15)

version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
if not OLDEST <= version <= NEWEST:
    sys.exit(
        f"torch {torch.__version__} is not supported: weft works with torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}."
    )
if not torch.distributed.is_available():
    sys.exit(f"torch {torch.__version__} was built without torch.distributed.")


def nccl_headers():
    """Of the NCCL that pip has installed with torch."""
    nvidia = importlib.util.find_spec("nvidia")
    folders = [os.path.join(root, "nccl", "include") for root in (nvidia.submodule_search_locations if nvidia else [])]
    return next((folder for folder in folders if os.path.exists(os.path.join(folder, "nccl.h"))), "-")


print(
    torch.__version__,
    os.path.dirname(torch.__file__),
    int(torch.compiled_with_cxx11_abi()),
    torch.version.cuda or 0,
    nccl_headers(),
    sep=";",
)
