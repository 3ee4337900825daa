"""Runs a script on several ranks that are forked from the test, where torch is imported already: a launcher would import it once
for itself and once for each rank."""

import multiprocessing
import os
import pathlib
import runpy
import socket
import sys
import traceback

import torch


def run_script(path, arguments, ranks: int, folder: pathlib.Path, module: str | None = None, timeout: float = 150) -> str:
    """What rank 0 prints. `module` is run instead of the script where it is named, and gets its path as an argument. Fails with
    what each rank has printed where one ends otherwise than by 0, or is not through in time."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    argv = [str(path), *arguments] if module is None else [module, *arguments]
    logs = [folder / f"rank{rank}.txt" for rank in range(ranks)]
    processes = [context.Process(target=_rank, args=(path, module, argv, rank, ranks, port, logs[rank])) for rank in range(ranks)]
    for process in processes:
        process.start()
    codes = []
    for process in processes:
        process.join(timeout if all(code == 0 for code in codes) else 5)
        if process.is_alive():
            process.kill()
            process.join()
        codes.append(process.exitcode)
    texts = [log.read_text(encoding="utf-8") for log in logs]
    assert not any(codes), "\n".join(f"rank {rank}, exit code {code}:\n{text}" for rank, (code, text) in enumerate(zip(codes, texts)))
    return texts[0]


def _rank(path, module, argv, rank, ranks, port, log) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    sys.stdout, sys.stderr = (open(stream, "w", buffering=1, encoding="utf-8", closefd=False) for stream in (1, 2))  # not pytest's
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), GROUP_RANK="0")
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="none")
    torch.set_num_threads(1)
    torch.manual_seed(torch.initial_seed())
    sys.argv = argv
    code = 1
    try:
        if module is None:
            sys.path.insert(0, str(pathlib.Path(path).parent))
            runpy.run_path(str(path), run_name="__main__")
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
