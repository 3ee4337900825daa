"""Models on GPUs that wrappers do not take."""

import pytest
import torch
import weft
from gpu_models import FEATURES, loss_of, model, on_gpu, sharded, share
from gpu_ranks import fake_only, needs_gpu, run_gpu_ranks, weft_only
from weft import replicas

pytestmark = [needs_gpu, weft_only]


def error_of(call) -> str:
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        call()
    return str(caught.value)


def check_refusals(gpu):
    mixed = model()
    mixed[0] = on_gpu(gpu, mixed[0])
    for wrap in (weft.DistributedDataParallel, weft.ZeroOptimizer):
        text = error_of(lambda: wrap(mixed))
        assert "Sequential's parameter 0.weight is on cuda" in text and "2.weight on cpu" in text
        text = error_of(lambda: wrap(on_gpu(gpu, model(), torch.float64)))
        assert "Sequential's parameter 0.weight is torch.float64 on cuda" in text
        assert "autotune=5" in error_of(lambda: wrap(on_gpu(gpu, model()), autotune=5))
    net = on_gpu(gpu, model())
    assert "the scaler is on cpu" in error_of(lambda: weft.ZeroOptimizer(net, scaler=weft.amp.GradScaler()))
    assert "on the CPU only" in error_of(lambda: weft.ZeroOptimizer(net, stage=3, find_unused_parameters=True))
    _, zero = sharded(gpu, "stage 2")
    loss_of(zero.module, gpu.put(share(0, gpu.rank))).backward()
    zero.module[0].weight.grad = gpu.put(torch.zeros(16, FEATURES))
    assert "0.weight was changed" in error_of(zero.step)
    if gpu.fake is not None:
        check_other_builds(gpu)


def check_other_builds(gpu):
    """Without nvcc, and without CUDA."""
    whole, replicas.local.computes_on = replicas.local.computes_on, lambda device: device.type == "cpu"
    try:
        assert "built without nvcc" in error_of(lambda: weft.ZeroOptimizer(on_gpu(gpu, model())))
        weft.DistributedDataParallel(on_gpu(gpu, model()))
    finally:
        replicas.local.computes_on = whole
    extension = replicas.backend.extension()
    whole, extension.moves_gpu_tensors = extension.moves_gpu_tensors, lambda: False
    try:
        for wrap in (weft.DistributedDataParallel, weft.ZeroOptimizer):
            text = error_of(lambda: wrap(on_gpu(gpu, model())))
            assert "Sequential's parameter 0.weight is torch.float32 on cuda" in text and "built without CUDA" in text
    finally:
        extension.moves_gpu_tensors = whole


@fake_only
def test_refusals_name_what_is_wrong():
    run_gpu_ranks(1, check_refusals)
