"""Prints what CMake needs to know about the installed torch: version;folder;C++ ABI."""

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
print(torch.__version__, os.path.dirname(torch.__file__), int(torch.compiled_with_cxx11_abi()), sep=";")
