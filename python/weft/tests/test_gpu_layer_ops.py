"""The ops under weft.layers on a GPU, in host memory or real, beside the CPU's."""

import pytest
import torch
import weft
from gpu_ranks import needs_gpu, run_gpu_ranks, weft_only
from test_layers import TOLERANCE
from weft import backend

pytestmark = [needs_gpu, weft_only]
SHAPES = [(3, 1), (5, 7), (2, 3, 129), (70, 1000), (2, 4103), (0, 8)]


def near(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
    if mine.numel():
        off = (mine.double() - theirs.double()).abs().max().item()
        assert off <= 4 * TOLERANCE[mine.dtype] * max(1.0, theirs.abs().max().item())


def check_ops(gpu):
    if not hasattr(backend.extension(), "device_layers"):
        return "this weft was built without nvcc"
    generator = torch.Generator().manual_seed(1)

    def on_both(name, *arguments):
        op = getattr(torch.ops.weft, name)
        theirs = op(*arguments)
        mine = op(*(gpu.put(one) if isinstance(one, torch.Tensor) else one for one in arguments))
        for one, other in zip(*((result,) if isinstance(result, torch.Tensor) else result for result in (mine, theirs))):
            near(gpu.get(one), other)
        return theirs

    seed = torch.tensor([0x1234567890ABCDE])
    for dtype in TOLERANCE:
        for shape in SHAPES:
            x, dy, residual = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
            w, b = (torch.randn(shape[-1], generator=generator).to(dtype) for _ in range(2))
            for weight, bias in ((w, b), (w, None), (None, b), (None, None)):
                _, mean, rstd = on_both("layer_norm", x, weight, bias, 1e-3)
                on_both("layer_norm_gradient", dy, x, mean, rstd, weight)
            for bias in (b, b.float(), None):
                for form in ("none", "tanh", "quick"):
                    on_both("bias_gelu", x, bias, form)
                    on_both("bias_gelu_gradient", dy, x, bias, form)
                on_both("bias_dropout_add", x, bias, residual, seed, 0.3)
            on_both("bias_dropout_gradient", dy, seed, 0.3)
    x = gpu.put(torch.randn(4, 6))
    assert weft.layers.takes(x, gpu.put(torch.randn(6))) and not weft.layers.takes(x, torch.randn(6))
    with pytest.raises(ValueError, match=r"weight has shape \[6\] on cpu; it must have 6 elements, on cuda:0"):
        weft.layers.layer_norm(x, torch.randn(6))
    return None


def check_gradients(gpu):
    if not hasattr(backend.extension(), "device_layers"):
        return "this weft was built without nvcc"
    generator = torch.Generator().manual_seed(2)
    seed = torch.tensor([5])
    seeds = {"cpu": seed, "cuda": gpu.put(seed)}
    calls = [
        lambda x, w, b, r: torch.ops.weft.layer_norm(x, w, b, 1e-3)[0],
        lambda x, w, b, r: torch.ops.weft.layer_norm(x, None, b, 1e-3)[0],
        lambda x, w, b, r: torch.ops.weft.bias_gelu(x, b, "quick"),
        lambda x, w, b, r: torch.ops.weft.bias_dropout_add(x, b, r, seeds[x.device.type], 0.3),
    ]
    for dtype in TOLERANCE:
        x, r, dy = (torch.randn(20, 33, generator=generator).to(dtype) for _ in range(3))
        w, b = torch.randn(33, generator=generator), torch.randn(33, generator=generator).to(dtype)
        for call in calls:
            theirs, mine = ([put(one).requires_grad_() for one in (x, w, b, r)] for put in (torch.clone, gpu.put))
            call(*theirs).backward(dy)
            call(*mine).backward(gpu.put(dy))
            for one, other in zip(mine, theirs):
                assert (one.grad is None) == (other.grad is None)
                if one.grad is not None:
                    near(gpu.get(one.grad), other.grad)
    return None


@pytest.mark.parametrize("check", [check_ops, check_gradients])
def test_ops_are_those_of_the_cpu(check):
    (missing,) = run_gpu_ranks(1, check)
    if missing:
        pytest.skip(missing)
