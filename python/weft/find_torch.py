"""Prints what CMake needs to know about the installed torch: version;folder;C++ ABI."""

import os
import sys

import torch

SUPPORTED = (2, 11)  # the first release whose c10d::Backend the extension is written for

version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
if version < SUPPORTED:
    sys.exit(f"torch {torch.__version__} is too old: weft needs {SUPPORTED[0]}.{SUPPORTED[1]} or newer.")
if not torch.distributed.is_available():
    sys.exit(f"torch {torch.__version__} was built without torch.distributed.")
print(torch.__version__, os.path.dirname(torch.__file__), int(torch.compiled_with_cxx11_abi()), sep=";")
