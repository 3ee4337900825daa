"""Runs a function on ranks that are threads of a forked child, which has a GPU in host memory for each of them.

The extension is the one that wheels have, linked with tests/cuda/fake in the place of CUDA and NCCL and with fake_gpu/ in the
place of torch's CUDA: streams are queues, and what one stream does not wait for shows as wrong numbers.

With WEFT_TEST_GPU=1 ranks are processes instead, which share the machine's first GPU; NCCL takes each for a host of its own
(NCCL_HOSTID). WEFT_TEST_GPU_BACKEND=nccl then runs the same on torch's own back end.
"""

import contextlib
import faulthandler
import gc
import importlib.machinery
import importlib.util
import multiprocessing
import os
import pathlib
import pickle
import sys
import threading
import traceback

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.testing._internal.distributed import multi_threaded_pg

_FOLDERS = [pathlib.Path(__file__).parents[3] / "build" / "python-weft" / "tests" / "fake_gpu"]
if "WEFT_TEST_FAKE_GPU" in os.environ:
    _FOLDERS.insert(0, pathlib.Path(os.environ["WEFT_TEST_FAKE_GPU"]))


def _library() -> pathlib.Path | None:
    return next((path for folder in _FOLDERS for path in folder.glob("weft_on_fake_gpu*.so")), None)


ON_A_GPU = os.environ.get("WEFT_TEST_GPU") == "1"
BACKEND = os.environ.get("WEFT_TEST_GPU_BACKEND", "weft") if ON_A_GPU else "weft"

needs_gpu = pytest.mark.skipif(
    not ON_A_GPU and _library() is None,
    reason="built without CUDA's headers: ninja -C build/python-weft weft_on_fake_gpu",
)
fake_only = pytest.mark.skipif(ON_A_GPU, reason="is about what only the fake tells, or one GPU does not have")
weft_only = pytest.mark.skipif(BACKEND != "weft", reason="is about what weft promises beyond NCCL's back end")


def _load(name: str):
    loader = importlib.machinery.ExtensionFileLoader(name, str(_library()))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    sys.modules[name] = module
    return module


class _Gpu:
    """What both kinds have in common."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=self.device)
        return made.copy_(tensor)

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        """As the current stream sees it."""
        made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
        return made.copy_(tensor.detach())


class FakeGpu(_Gpu):
    """One rank's."""

    def __init__(self, fake, rank: int):
        self.fake, self.rank = fake, rank
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(rank)
        self.use(self.stream())

    def stream(self):
        return self.fake.new_stream(self.rank)

    def current(self):
        return self.fake.current_stream(self.rank)

    def use(self, stream) -> None:
        self.fake.set_stream(stream)

    def gate(self):
        """What comes on the current stream waits until open()."""
        return self.fake.Gate(self.current())


class RealGpu(_Gpu):
    """The first one, for every rank."""

    fake = None

    class Gate:
        """Time has to do."""

        def __init__(self):
            torch.cuda._sleep(300_000_000)  # cycles

        def open(self) -> None:
            pass

    def __init__(self, rank: int):
        self.rank, self.device = rank, torch.device("cuda", 0)
        torch.cuda.set_device(self.device)
        self.use(self.stream())

    def stream(self):
        return torch.cuda.Stream()

    def current(self):
        return torch.cuda.current_stream()

    def use(self, stream) -> None:
        torch.cuda.set_stream(stream)

    def gate(self):
        return self.Gate()


class _Event(torch.Event):
    def __new__(cls):
        return super().__new__(cls, device="cuda")

    def record(self, stream=None):
        super().record(stream)
        return self


def _pretend_cuda(fake, ranks: int) -> None:
    """What Python's torch.cuda is asked for without a GPU."""
    mine = threading.local()

    def set_device(device):
        mine.device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        fake.set_device(mine.device.index)

    @contextlib.contextmanager
    def on_stream(stream):
        before = torch.cuda.current_stream()
        fake.set_stream(stream)
        try:
            yield
        finally:
            fake.set_stream(before)

    cuda = torch.cuda
    cuda._lazy_init = lambda: None
    cuda.is_available = lambda: True
    cuda.is_current_stream_capturing = lambda: False
    cuda.device_count = lambda: ranks
    cuda.set_device = set_device
    cuda.current_device = lambda: mine.device.index
    cuda.current_stream = lambda device=None: fake.current_stream(mine.device.index)
    cuda.Stream = lambda priority=0: fake.new_stream(mine.device.index)
    cuda.stream = on_stream
    cuda.Event = _Event


def _run_thread(rank, ranks, store, fake, outcome, options, body, arguments) -> None:
    try:
        gpu = FakeGpu(fake, rank)
        dist.init_process_group(options.get("backend", BACKEND), rank=rank, world_size=ranks, store=store,
                                timeout=options.get("timeout"))
        outcome[rank] = (True, body(gpu, *arguments))
        if options.get("ends_well", True):
            dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        outcome[rank] = (False, traceback.format_exc())


def _run_child(ranks, sender, seconds, options, body, arguments) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)
    torch.set_num_threads(1)
    # Freeing waits for a GPU, and so for other ranks: no rank's thread may collect another's garbage.
    gc.disable()
    outcome: dict = {}
    try:
        fake = _load("_fake_gpu")
        _load("weft._C")
        fake.install(ranks)
        _pretend_cuda(fake, ranks)
        torch._C._distributed_c10d._set_thread_isolation_mode(True)
        multi_threaded_pg._install_threaded_pg()
        multi_threaded_pg.ThreadLocalWorld.comms = []  # which destroy_process_group looks at
        store = dist.HashStore()
        threads = [
            threading.Thread(target=_run_thread, args=(r, ranks, store, fake, outcome, options, body, arguments))
            for r in range(ranks)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if fake.violations():
            outcome["gpu"] = (False, "what no program may do on a GPU: " + "; ".join(fake.violations()))
    except BaseException:
        outcome["child"] = (False, traceback.format_exc())
    sender.send_bytes(pickle.dumps(outcome))
    sender.close()
    os._exit(0)  # the fake's threads need not end


def _on_real_gpu(rank, body, arguments):
    os.environ["NCCL_HOSTID"] = f"rank{rank}"  # NCCL refuses two ranks of one host on one GPU
    return body(RealGpu(rank), *arguments)


def run_gpu_ranks(ranks: int, body, *arguments, seconds: float = 60, **options) -> list:
    """Calls body(gpu, *arguments) on each rank of a default process group and returns what each returned, in rank order.

    Options: backend, and for tests that are fake_only timeout and ends_well (False where the group fails). Fails with
    what the ranks raised, and where a GPU was used wrongly.
    """
    if ON_A_GPU:
        return run_ranks(ranks, options.get("backend", BACKEND), _on_real_gpu, body, arguments, timeout=seconds)
    assert "weft._C" not in sys.modules, "a test before loaded the extension here, and a process has one: use run_ranks()"
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run_child, args=(ranks, sender, seconds, options, body, arguments))
    child.start()
    sender.close()
    try:
        outcome = pickle.loads(receiver.recv_bytes())
    except EOFError:
        outcome = {"child": (False, "ended without a word")}
    child.join()
    failures = [f"{who}: {text}" for who, (good, text) in outcome.items() if not good]
    assert not failures, f"exit code {child.exitcode}\n" + "\n".join(failures)
    return [outcome[rank][1] for rank in range(ranks)]
