"""Every test that asks for `backend` runs once on gloo, which says what torch promises, and once on weft."""

import os

import pytest

# Imported here once, so that forked ranks need not: each would take a second or two.
import torch._dynamo  # noqa: F401
import torch.distributed.checkpoint  # noqa: F401
import torch.distributed.fsdp  # noqa: F401
import torch.distributed.pipelining  # noqa: F401
import torch.distributed.tensor.parallel  # noqa: F401

BACKENDS = os.environ.get("WEFT_TEST_BACKENDS", "gloo weft").split()


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: over half a minute; `make torch-compat` runs it, `make test` does not")


def pytest_collection_modifyitems(items):
    # Those on a fake GPU fork before anything loads the extension (gpu_ranks.py): first, whatever their files are called.
    # test_gpu_layers.py last among those: on a real GPU it uses CUDA in this process, whose forks then cannot.
    items.sort(key=lambda item: (not item.path.name.startswith("test_gpu"), item.path.name == "test_gpu_layers.py"))


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """The tests are about the CPU, whatever the machine has; but for those of gpu_ranks.py where they are asked for."""
    if os.environ.get("WEFT_TEST_GPU") != "1":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
