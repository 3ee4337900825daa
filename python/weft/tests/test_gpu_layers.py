"""weft.layers and weft.patch() on a real GPU, in this process: values and gradients beside torch's in double on the CPU."""

import copy

import pytest
import torch
import torch.nn.functional as F
import weft
from gpu_ranks import ON_A_GPU
from test_layers import TOLERANCE, compare, gelus, leaves
from torch import nn
from weft import backend

CPU = torch.profiler.ProfilerActivity.CPU
pytestmark = pytest.mark.skipif(not ON_A_GPU, reason="needs a GPU, and WEFT_TEST_GPU=1")
# Beyond what fits into a thread's registers, and into one of a sum's slabs of rows.
SHAPES = [(3, 1), (5, 7), (2, 3, 129), (70, 1000), (33, 64), (2, 4103), (0, 8)]


@pytest.fixture(autouse=True)
def kernels():
    if not hasattr(backend.extension(), "device_layers"):
        pytest.skip("this weft was built without nvcc")


def on_gpu(dtype, *shapes, **how):
    return leaves(dtype, *shapes, device="cuda", **how)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm(dtype, shape):
    wide = shape[-1:]
    x, w, b = on_gpu(dtype, shape, wide, wide)
    compare(lambda x, w, b: weft.layers.layer_norm(x, w, b, 1e-3), lambda x, w, b: F.layer_norm(x, wide, w, b, 1e-3), [x, w, b])
    x, w = on_gpu(dtype, shape, wide, seed=1)
    compare(weft.layers.layer_norm, lambda x, w: F.layer_norm(x, wide, w), [x, w])
    x, b = on_gpu(dtype, shape, wide, seed=2)
    compare(lambda x, b: weft.layers.layer_norm(x, None, b), lambda x, b: F.layer_norm(x, wide, None, b), [x, b])
    compare(weft.layers.layer_norm, lambda x: F.layer_norm(x, wide), on_gpu(dtype, shape, seed=3))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
@gelus
def test_gelus(dtype, shape, fused, exact):
    compare(fused, lambda x, b: exact(x + b), on_gpu(dtype, shape, shape[-1:]))
    compare(fused, exact, on_gpu(dtype, shape, seed=3))


def drops(shape, dtype, device, seed, p):
    """What is kept is 1."""
    ones = torch.ones(shape, dtype=dtype, device=device)
    return torch.ops.weft.bias_dropout_add(ones, None, torch.zeros_like(ones), torch.tensor([seed], device=device), p).cpu() != 0


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_is_that_of_the_cpu(dtype, shape):
    seed, p = 0x1234567890ABCDE, 0.3
    kept = drops(shape, dtype, "cpu", seed, p)
    assert torch.equal(drops(shape, dtype, "cuda", seed, p), kept)
    there = torch.tensor([seed], device="cuda")
    compare(
        lambda x, b, r: torch.ops.weft.bias_dropout_add(x, b, r, there, p),
        lambda x, b, r: r + (x + b) * kept / (1 - p),
        on_gpu(dtype, shape, shape[-1:], shape),
    )
    compare(
        lambda x, r: torch.ops.weft.bias_dropout_add(x, None, r, there, p),
        lambda x, r: r + x * kept / (1 - p),
        on_gpu(dtype, shape, shape),
    )


def test_what_is_dropped():
    x, residual = torch.ones(64, 1000, device="cuda", requires_grad=True), torch.zeros(64, 1000, device="cuda")
    torch.manual_seed(4)
    one, other = (weft.layers.bias_dropout_add(x, None, residual, 0.1) for _ in range(2))
    torch.manual_seed(4)
    assert torch.equal(weft.layers.bias_dropout_add(x, None, residual, 0.1), one)
    assert not torch.equal(one, other)
    assert set(one.unique().tolist()) == {0.0, torch.tensor(1 / 0.9).item()}
    assert abs((one == 0).double().mean().item() - 0.1) < 0.005  # 4 standard deviations
    assert abs(one.double().mean().item() - 1) < 0.006
    one.sum().backward()
    assert torch.equal(x.grad, one)
    assert torch.equal(weft.layers.bias_dropout_add(x, None, residual, 0.0), x)
    assert torch.equal(weft.layers.bias_dropout_add(x, None, residual, 0.5, training=False), x)


def test_types_strides_and_streams_do_not_matter():
    torch.manual_seed(0)
    wide = torch.randn(300, 40, 2, device="cuda")
    x, w = wide[..., 0].t(), torch.randn(600, device="cuda")[::2]
    assert not x.is_contiguous() and not w.is_contiguous()

    def run(x, w, b):
        x, w, b = (one.detach().requires_grad_() for one in (x, w, b))
        y = weft.layers.layer_norm(x, w, b) + weft.layers.bias_gelu(x, b)
        y.backward(wide[..., 1].t())
        return [y.detach(), x.grad, w.grad, b.grad]

    expected = run(x, w, w)
    assert all(map(torch.equal, run(x.contiguous(), w.contiguous(), w), expected))  # bit by bit
    # A bias that is no aligned address, and what is enqueued before on a stream of its own.
    apart = torch.randn(301, device="cuda")[1:].copy_(w)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        late = torch.zeros_like(x).copy_(x)
        results = run(late, w, apart)
    stream.synchronize()
    assert all(map(torch.equal, results, expected))
    # Activations in 16 bits, parameters in f32.
    y = weft.layers.layer_norm(x.bfloat16(), w, w)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), weft.layers.layer_norm(x.bfloat16().float(), w, w), rtol=1e-2, atol=1e-2)


def test_cuda_graphs():
    x, w, b = on_gpu(torch.float32, (70, 1000), (1000,), (1000,))
    ones, zeros = torch.ones(70, 1000, device="cuda", requires_grad=True), torch.zeros(70, 1000, device="cuda")

    def step():
        y = weft.layers.bias_gelu(weft.layers.layer_norm(x, w, b), b)
        dropped = weft.layers.bias_dropout_add(ones, None, zeros, 0.5)
        return [y, *torch.autograd.grad(y.sum(), (x, w, b)), dropped, *torch.autograd.grad(dropped.sum(), ones)]

    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        expected = [one.detach().clone() for one in step()]
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    seen = []
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert all(map(torch.equal, results[:4], expected[:4]))
        assert torch.equal(results[4], results[5])  # backward drops what forward has
        assert abs((results[4] == 0).double().mean().item() - 0.5) < 0.01
        seen.append(results[4].detach().clone())
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])


class Model(nn.Module):
    """What patch() looks for, with dropout that drops next to nothing, so that it can be compared."""

    def __init__(self):
        super().__init__()
        blocks = [nn.TransformerEncoderLayer(48, 4, 96, 1e-9, nn.GELU(), batch_first=True, norm_first=first) for first in (False, True)]
        self.blocks, self.norm, self.act, self.head = nn.ModuleList(blocks), nn.LayerNorm(48), nn.GELU("tanh"), nn.Linear(48, 5)
        for block in blocks:
            block.dropout.p = block.self_attn.dropout = 0.0

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.act(self.norm(x))).square().mean()


@pytest.mark.parametrize("autocast", [False, True], ids=["f32", "autocast"])
def test_patch(autocast):
    torch.manual_seed(0)
    own = Model().cuda()
    model = copy.deepcopy(own)
    assert len(weft.patch(model).swapped) == 10  # blocks, their two norms and GELU each, and the ends
    x = torch.randn(6, 11, 48, device="cuda")
    assert weft.layers.takes(x, x.half()) and not weft.layers.takes(x, x.cpu()) and not weft.layers.takes(x.double())
    results = []
    for one in (own, model):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast), torch.profiler.profile(activities=[CPU], acc_events=True) as profile:
            loss = one(x)
        loss.backward()
        results.append([loss.detach()] + [p.grad for p in one.parameters()])
        fused = {event.key for event in profile.key_averages() if event.key.startswith("weft::")}
        assert fused == ({"weft::layer_norm", "weft::bias_gelu", "weft::bias_dropout_add"} if one is model else set())
    for mine, exact in zip(results[1], results[0]):
        scale = max(exact.abs().max().item(), 1e-3)
        torch.testing.assert_close(mine / scale, exact / scale, rtol=0, atol=5e-2 if autocast else 1e-4)
    weft.unpatch(model)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), own.eval()(x))


def test_patch_keeps_the_types_of_autocast():
    own = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).cuda()
    model = copy.deepcopy(own)
    weft.patch(model)
    x = torch.randn(3, 8, device="cuda")
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype):
            exact, mine = own(x), model(x)
        assert mine.dtype == exact.dtype
        torch.testing.assert_close(mine, exact)


def test_compiles_as_one_graph():
    torch.manual_seed(0)
    block, x = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12), nn.GELU()).cuda(), torch.randn(5, 12, device="cuda")
    weft.patch(block)
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    results = []
    for one in (block, compiled):
        block.zero_grad()
        y = one(x)
        y.sum().backward()
        results.append([y.detach()] + [p.grad.clone() for p in block.parameters()])
    assert all(map(torch.equal, *results))


def test_wrong_use():
    x, b = torch.randn(4, 6, device="cuda"), torch.randn(6)
    with pytest.raises(ValueError, match=r"layer_norm: weight has shape \[6\] on cpu; it must have 6 elements, on cuda:0"):
        weft.layers.layer_norm(x, b)
    with pytest.raises(ValueError, match=r"bias_gelu: the matrix is on cpu, others are on a GPU"):
        weft.layers.bias_gelu(x.cpu(), b.cuda())
    with pytest.raises(ValueError, match=r"bias has shape \[5\] on cuda:0; it must have 6 elements"):
        weft.layers.bias_gelu(x, torch.ones(5, device="cuda"))
    with pytest.raises(TypeError, match="bias_gelu: x is Double; weft's layers take float32, bfloat16 and float16"):
        weft.layers.bias_gelu(x.double())
    with pytest.raises(ValueError, match="has no columns"):
        weft.layers.layer_norm(torch.empty(3, 0, device="cuda"))
    with pytest.raises(ValueError, match=r"residual is on cpu"):
        weft.layers.bias_dropout_add(x, None, x.cpu(), 0.5)
    with pytest.raises(ValueError, match=r"the seed is 1 Long on cpu; it must be one int64 on cuda:0"):
        torch.ops.weft.bias_dropout_add(x, None, x, torch.tensor([1]), 0.5)
