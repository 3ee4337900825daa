"""Sizes that programs give."""

from __future__ import annotations

import operator

from weft import backend


def of(size: int | str, name: str) -> int:
    """Bytes, of a number or of text such as "64M", with powers of 1024 as in WEFT_ settings; "64Mi" and "64MiB" are the
    same. `name` is what errors call it."""
    if isinstance(size, str):
        try:
            return backend.extension().parse_bytes(size)
        except ValueError as error:
            raise ValueError(f"{name}: {str(error).removeprefix('weft: ')}") from error
    try:
        bytes_ = operator.index(size)
    except TypeError:
        bytes_ = -1
    if bytes_ < 0:
        raise ValueError(f"{name} is {size!r}; give a whole number of bytes, or a text such as '4G'")
    return bytes_
