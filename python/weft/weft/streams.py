"""The same function for many arguments, on several CUDA streams."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_leaves


def multi_apply(fn, *args, streams: int = 4) -> list:
    """``[fn(*each) for each in zip(*args)]``; with CUDA tensors among the arguments the calls take turns on ``streams``
    streams, so that kernels too small for the whole GPU run side by side.

    The streams begin with what the current stream has been given so far, which then waits for all of them: around the call
    nothing needs to be synchronised. Results keep the arguments' order. On the CPU the calls run one after another, each on
    all of torch's threads. An exception of fn's is raised after the calls before it were started; no further one is.
    """
    if streams < 1:
        raise ValueError(f"weft.multi_apply: streams is {streams}; it must be at least 1")
    lists = [list(one) for one in args]
    counts = [len(one) for one in lists]
    if not lists or len(set(counts)) > 1:
        raise ValueError(f"weft.multi_apply: the arguments are lists of {counts or 'no'} elements; give at least one, all equally long")
    device = _device_of(lists)
    if device is None:
        return [fn(*each) for each in zip(*lists)]
    current = torch.cuda.current_stream(device)
    side = [torch.cuda.Stream(device) for _ in range(min(streams, counts[0]))]
    for stream in side:
        stream.wait_stream(current)
    results = []
    try:
        for index, each in enumerate(zip(*lists)):
            with torch.cuda.stream(side[index % len(side)]):
                results.append(fn(*each))
    finally:
        for stream in side:
            current.wait_stream(stream)
    for leaf in tree_leaves(results):
        if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
            leaf.record_stream(current)  # it is of another stream's memory
    return results


def _device_of(lists):
    """The GPU that the tensors among the arguments are on, None: there is none."""
    devices = {leaf.device for leaf in tree_leaves(lists) if isinstance(leaf, torch.Tensor) and leaf.is_cuda}
    if len(devices) > 1:
        raise ValueError(f"weft.multi_apply: tensors on {' and '.join(sorted(map(str, devices)))}; streams are of one GPU")
    return devices.pop() if devices else None
