"""Batches that are loaded while the previous ones are computed with."""

from __future__ import annotations

import queue
import threading
import warnings
import weakref
from collections.abc import Mapping

import torch
from torch.utils._pytree import tree_leaves, tree_map

_STOP_SECONDS = 10  # what a thread in the middle of a batch gets to end


class Prefetcher:
    """Iterates as ``loader`` does, with a thread that loads ahead: a step takes the longer of loading and computing, not
    their sum. Every iteration has a thread of its own, which ends with it, also where the loop is left early.

        for batch in weft.Prefetcher(loader, preprocess=augment): ...                 # prefetch_cpu()
        for batch in weft.Prefetcher(loader, device="cuda"): ...                      # prefetch_gpu()

    preprocess  what is called with each batch, on the thread; its result is the batch. For a GPU it gets the batch that
                is there already, on the copy stream.
    depth       batches that are ready beforehand, at most
    device      where iter() brings tensors; None: they stay where the loader leaves them

    An exception of the loader's or of preprocess comes out of the iteration whose batch it is, after all batches before it.
    Loading runs beside computing where it waits or releases the interpreter's lock, as files, decompression, numpy and torch
    do; Python code that does not needs a DataLoader with workers. A loader that draws from torch's global generator for
    each batch takes turns with the program's own draws: give it a generator. The batches' order is the loader's.
    """

    def __init__(self, loader, preprocess=None, *, depth: int = 2, device: torch.device | str | int | None = None):
        if not hasattr(loader, "__iter__"):
            raise TypeError(f"weft.Prefetcher: {type(loader).__name__} cannot be iterated; pass a DataLoader or an iterable")
        if preprocess is not None and not callable(preprocess):
            raise TypeError(f"weft.Prefetcher: preprocess is {type(preprocess).__name__}, which cannot be called")
        if depth < 1:
            raise ValueError(f"weft.Prefetcher: depth is {depth}; it must be at least 1")
        self.loader = loader
        self.preprocess = preprocess
        self.depth = depth
        self.device = None if device is None else torch.device(device)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self):
        if self.device is None or self.device.type == "cpu":
            return self.prefetch_cpu()
        return self.prefetch_gpu(self.device)

    def prefetch_cpu(self):
        """An iterator over batches that a thread has loaded and preprocessed."""
        # The loader's iterator is made here: it may draw a seed, whose place in the program stays the same.
        return _Iterator(_Source(iter(self.loader), self.preprocess), self.depth)

    def prefetch_gpu(self, device: torch.device | str | int | None = None):
        """An iterator over batches on a GPU (None: the current one). The thread pins tensors that are not yet and copies them
        on a stream of its own; the stream that takes a batch waits for its copy, the host does not."""
        if not torch.cuda.is_available():
            raise RuntimeError("weft.Prefetcher.prefetch_gpu(): torch has no CUDA device here; take prefetch_cpu()")
        device = torch.device("cuda" if device is None else device)
        if device.type != "cuda":
            raise ValueError(f"weft.Prefetcher.prefetch_gpu(): {device} is no CUDA device")
        index = torch.cuda.current_device() if device.index is None else device.index
        source = _GpuSource(iter(self.loader), self.preprocess, torch.device("cuda", index))
        return _Iterator(source, self.depth)


class _Source:
    """Where the thread has batches from; finish() is called where they are used."""

    def __init__(self, batches, preprocess):
        self.batches, self.preprocess = batches, preprocess

    def load(self):
        return self.preprocessed(next(self.batches))

    def preprocessed(self, batch):
        try:
            return batch if self.preprocess is None else self.preprocess(batch)
        except StopIteration as stop:  # which says that the loader is through, as in a generator
            raise RuntimeError("weft.Prefetcher: preprocess raised StopIteration") from stop

    def finish(self, loaded):
        return loaded


def _record_use(leaf, stream) -> None:
    """What of a batch's leaf is on a GPU is used by `stream`, also what an object holds that is no pytree."""
    if isinstance(leaf, torch.Tensor):
        if leaf.is_cuda:
            leaf.record_stream(stream)
    elif callable(getattr(leaf, "record_stream", None)):  # torch_geometric's and DGL's
        leaf.record_stream(stream)
    else:  # transformers' BatchEncoding, or an object of the program's
        held = leaf if isinstance(leaf, Mapping) else getattr(leaf, "__dict__", {})
        for one in tree_leaves(dict(held)):
            if isinstance(one, torch.Tensor):
                _record_use(one, stream)


class _GpuSource(_Source):
    def __init__(self, batches, preprocess, device):
        super().__init__(batches, preprocess)
        self.device, self.stream = device, torch.cuda.Stream(device)

    def load(self):
        batch = next(self.batches)
        with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
            batch = self.preprocessed(tree_map(self._copy, batch))
            copied = torch.cuda.Event()
            copied.record(self.stream)
        return batch, copied

    def _copy(self, leaf):
        if isinstance(leaf, torch.Tensor):
            # The pinned copy returns to torch's pool of pinned memory, which knows of the copy under way.
            return (leaf if leaf.is_cuda or leaf.is_pinned() else leaf.pin_memory()).to(self.device, non_blocking=True)
        return leaf.to(self.device) if callable(getattr(leaf, "to", None)) else leaf  # transformers' BatchEncoding

    def finish(self, loaded):
        batch, copied = loaded
        user = torch.cuda.current_stream(self.device)
        user.wait_event(copied)
        # Memory of the copy stream's, which must not have it back before the user's work is through.
        for leaf in tree_leaves(batch):
            _record_use(leaf, user)
        return batch


class _Failure:
    def __init__(self, error: BaseException):
        self.error = error


_END = object()


class _Iterator:
    """The side that takes. The thread does not know of it, so that it is collected when nobody iterates any longer."""

    def __init__(self, source, depth: int):
        self._source = source
        self._ready = queue.Queue(depth)
        stop = threading.Event()
        thread = threading.Thread(target=_load_all, args=(source, self._ready, stop), name="weft-prefetch", daemon=True)
        # Runs once: by close(), when this is collected, or when the interpreter exits.
        self.close = weakref.finalize(self, _stop, thread, self._ready, stop)
        thread.start()

    def __iter__(self):
        return self

    def __next__(self):
        if not self.close.alive:
            raise StopIteration
        loaded = self._ready.get()
        if loaded is _END:
            self.close()
            raise StopIteration
        if isinstance(loaded, _Failure):
            self.close()
            raise loaded.error
        return self._source.finish(loaded)


def _load_all(source, ready: queue.Queue, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            loaded = source.load()
        except StopIteration:
            loaded = _END
        except BaseException as error:  # also KeyboardInterrupt and SystemExit: they belong to the iteration
            loaded = _Failure(error)
        ready.put(loaded)  # _stop() makes room
        if loaded is _END or isinstance(loaded, _Failure):
            break
        del loaded
    # Here, as the thread's last act, since a DataLoader's workers are joined.
    source.batches = None


def _stop(thread: threading.Thread, ready: queue.Queue, stop: threading.Event) -> None:
    stop.set()
    try:
        while True:
            ready.get_nowait()
    except queue.Empty:
        pass
    if thread is threading.current_thread():
        return
    thread.join(_STOP_SECONDS)
    if thread.is_alive():
        warnings.warn(f"weft.Prefetcher: the loader has been at one batch for {_STOP_SECONDS} s; its thread is left behind")
