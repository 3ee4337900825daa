"""weft.layers' fused ops against torch in double precision, and weft.patch()."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
import weft
from torch import nn

# Relative to the largest value: one rounding of the type, and some for the order of sums.
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
SHAPES = [(3, 1), (2, 3, 33), (70, 1025), (0, 8)]


def near(mine, exact, factor=1.0):
    assert mine.shape == exact.shape
    if exact.numel():
        off = (mine.cpu().double() - exact).abs().max().item()
        assert off <= factor * TOLERANCE[mine.dtype] * max(1.0, exact.abs().max().item())


def leaves(dtype, *shapes, seed=0, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for shape in shapes]


def compare(fused, exact, inputs, seed=1):
    """Values and gradients of `fused`, beside those of `exact` in double, on the CPU."""
    doubles = [one.detach().cpu().double().requires_grad_() for one in inputs]
    mine, theirs = fused(*inputs), exact(*doubles)
    assert mine.dtype == inputs[0].dtype
    near(mine, theirs)
    dy = torch.randn(mine.shape, generator=torch.Generator().manual_seed(seed)).to(mine.dtype)
    mine.backward(dy.to(mine.device))
    theirs.backward(dy.double())
    for one, double in zip(inputs, doubles):
        assert one.grad.dtype == one.dtype
        near(one.grad, double.grad, 4.0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm(dtype, shape):
    x, w, b = leaves(dtype, shape, shape[-1:], shape[-1:])
    compare(
        lambda x, w, b: weft.layers.layer_norm(x, w, b, 1e-3), lambda x, w, b: F.layer_norm(x, shape[-1:], w, b, 1e-3), [x, w, b]
    )
    (x,) = leaves(dtype, shape, seed=2)
    compare(weft.layers.layer_norm, lambda x: F.layer_norm(x, shape[-1:]), [x])


# weft.layers only within tests: it loads the extension, which those of gpu_ranks.py must not find loaded.
gelus = pytest.mark.parametrize(
    "fused, exact",
    [
        (lambda x, bias=None: weft.layers.bias_gelu(x, bias), lambda x: F.gelu(x, approximate="tanh")),
        (lambda x, bias=None: weft.layers.bias_gelu(x, bias, "none"), F.gelu),
        (lambda x, bias=None: weft.layers.bias_quick_gelu(x, bias), lambda x: x * torch.sigmoid(1.702 * x)),
    ],
    ids=["tanh", "erf", "quick"],
)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
@gelus
def test_gelus(dtype, shape, fused, exact):
    compare(fused, lambda x, b: exact(x + b), leaves(dtype, shape, shape[-1:]))
    compare(fused, exact, leaves(dtype, shape, seed=3))


def test_a_form_of_gelu_that_there_is_not():
    with pytest.raises(ValueError, match="approximate is 'erf'; it must be 'none' or 'tanh'"):
        weft.layers.bias_gelu(torch.ones(2, 2), approximate="erf")


def test_gelus_of_extreme_values():
    x = torch.tensor([[0.0, -0.0, 40.0, -40.0, 1e4, -1e4, 1e30, -1e30, float("inf"), float("nan"), 200.0, -200.0]])
    erf = weft.layers.bias_gelu(x, None, "none"), (x.double() / 2 * torch.erfc(-x.double() / 2**0.5)).float()  # F.gelu(inf) is NaN
    tanh = weft.layers.bias_gelu(x), F.gelu(x, approximate="tanh")
    quick = weft.layers.bias_quick_gelu(x), x * torch.sigmoid(1.702 * x)
    for mine, exact in (erf, tanh, quick):
        torch.testing.assert_close(mine, exact, equal_nan=True)


def philox_words(group, seed):
    """Four random words, by the paper."""
    counter = [group & 0xFFFFFFFF, group >> 32, 0, 0]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ keys[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ keys[1], a & 0xFFFFFFFF]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_bias_dropout_add(dtype, shape):
    p, seed = 0.3, torch.tensor([0x1234567890ABCDE])
    count = torch.Size(shape).numel()
    words = [word for group in range((count + 3) // 4) for word in philox_words(group, seed.item())] if count < 2000 else None
    if words is None:  # any mask, as long as backward has the same
        ones = torch.ones(shape, dtype=dtype)
        kept = torch.ops.weft.bias_dropout_add(ones, None, torch.zeros_like(ones), seed, p) != 0
    else:
        kept = torch.tensor([word >= p * 2**32 for word in words[:count]], dtype=torch.bool).reshape(shape)
    compare(
        lambda x, b, r: torch.ops.weft.bias_dropout_add(x, b, r, seed, p),
        lambda x, b, r: r + (x + b) * kept / (1 - p),
        leaves(dtype, shape, shape[-1:], shape),
    )


def test_what_is_dropped():
    x, residual = torch.ones(64, 1000), torch.zeros(64, 1000)
    torch.manual_seed(4)
    one, other = (weft.layers.bias_dropout_add(x, None, residual, 0.1) for _ in range(2))
    torch.manual_seed(4)
    assert torch.equal(weft.layers.bias_dropout_add(x, None, residual, 0.1), one)
    assert not torch.equal(one, other)
    assert set(one.unique().tolist()) == {0.0, torch.tensor(1 / 0.9).item()}
    assert abs((one == 0).double().mean().item() - 0.1) < 0.005  # 4 standard deviations
    # Not at the ends, nor in evaluation.
    assert torch.equal(weft.layers.bias_dropout_add(x, None, residual, 0.0), x)
    assert torch.equal(weft.layers.bias_dropout_add(x, None, residual, 1.0), residual)
    assert torch.equal(weft.layers.bias_dropout_add(x, x[0], residual, 0.9, training=False), 2 * x)


def test_autocast_mixes_types():
    x, r = leaves(torch.bfloat16, (4, 8))[0], leaves(torch.float32, (4, 8), seed=1)[0]
    b = leaves(torch.float32, (8,), seed=2)[0]
    y = weft.layers.bias_dropout_add(x, b, r, 0.5)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert (x.grad.dtype, b.grad.dtype, r.grad.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert weft.layers.layer_norm(x, b, b).dtype == torch.bfloat16


def test_strides_and_threads_do_not_matter():
    torch.manual_seed(0)
    wide = torch.randn(300, 40, 2)
    x, w = wide[..., 0].t(), torch.randn(600)[::2]
    assert not x.is_contiguous() and not w.is_contiguous()
    results = []
    for count in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            for one, scale in ((x, w), (x.contiguous(), w.contiguous())):
                one, scale = one.detach().requires_grad_(), scale.detach().requires_grad_()
                y = weft.layers.layer_norm(one, scale, scale) + weft.layers.bias_gelu(one, scale)
                y.backward(wide[..., 1].t())
                results.append([y.detach(), one.grad, scale.grad])
        finally:
            torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_ops_are_whole():
    x, w = torch.randn(6, 9, requires_grad=True), torch.randn(9, requires_grad=True)
    ops, seed = torch.ops.weft, torch.tensor([5])
    _, mean, rstd = ops.layer_norm(x.detach(), None, None, 1e-5)
    dy = torch.randn(6, 9)
    for op, arguments in [
        (ops.layer_norm, (x, w, w, 1e-5)),
        (ops.layer_norm_gradient, (dy, x.detach(), mean, rstd, w.detach())),
        (ops.bias_gelu, (x, w, "quick")),
        (ops.bias_gelu, (x.t(), None, "tanh")),
        (ops.bias_gelu_gradient, (dy, x.detach(), None, "none")),
        (ops.bias_dropout_add, (x, w, dy, seed, 0.25)),
        (ops.bias_dropout_gradient, (dy, seed, 0.25)),
    ]:
        # The compiled program is test_compiles_as_one_graph()'s.
        torch.library.opcheck(op.default, arguments, test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))


def test_a_call_is_one_op_forward_and_one_backward():
    x, w = leaves(torch.float32, (6, 9), (9,))
    dy = torch.randn(6, 9)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        weft.layers.layer_norm(x, w).backward(dy, retain_graph=True)
    events = {event.key: event.count for event in profile.key_averages()}
    assert events["weft::layer_norm"] == events["weft::layer_norm_gradient"] == 1
    assert not {"aten::to", "aten::clone", "aten::empty_like"} & set(events)
    first, x.grad = x.grad, None
    weft.layers.layer_norm(x, w).backward(dy)
    assert torch.equal(x.grad, first)


def test_compiles_as_one_graph():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.dense = nn.LayerNorm(12), nn.Linear(12, 12)

        def forward(self, x):
            y = weft.layers.bias_gelu(F.linear(self.norm(x), self.dense.weight), self.dense.bias)
            return weft.layers.bias_dropout_add(y, None, x, 0.5, self.training)

    torch.manual_seed(0)
    block, x = Block(), torch.randn(5, 12)
    weft.patch(block)
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    results = []
    for one in (block, compiled):
        torch.manual_seed(1)
        block.zero_grad()
        y = one(x)
        y.sum().backward()
        results.append([y.detach()] + [p.grad.clone() for p in block.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_wrong_use_of_layers():
    x = torch.randn(4, 6)
    with pytest.raises(ValueError, match=r"layer_norm: weight has shape \[5\].*must have 6 elements"):
        weft.layers.layer_norm(x, torch.ones(5))
    with pytest.raises(TypeError, match="bias_gelu: x is Double"):
        weft.layers.bias_gelu(x.double())
    with pytest.raises(ValueError, match="has no columns"):
        weft.layers.layer_norm(torch.empty(3, 0))
    with pytest.raises(ValueError, match="p is 1.5"):
        weft.layers.bias_dropout_add(x, None, x, 1.5)
    with pytest.raises(ValueError, match=r"x has shape \(4, 6\), the residual \(6,\)"):
        weft.layers.bias_dropout_add(x, None, x[0], 0.5)
    y = weft.layers.bias_gelu(x.requires_grad_()).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        gradient.sum().backward()


# --- patch ---


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.flat, self.erf, self.tanh = nn.LayerNorm(8), nn.LayerNorm((2, 8)), nn.GELU(), nn.GELU(approximate="tanh")

    def forward(self, x):
        return self.tanh(self.erf(self.flat(self.norm(x))))


def test_patch_says_what_it_did_and_unpatch_undoes_it():
    torch.manual_seed(0)
    model, x = Mixed(), torch.randn(3, 2, 8)
    before, names, modules = model(x), list(model.state_dict()), list(model.modules())
    done = weft.patch(model)
    assert done.swapped == {"norm": "LayerNorm", "erf": "GELU", "tanh": "GELU"}
    assert set(done.skipped) == {"flat"}
    assert str(done).splitlines()[0] == "weft.patch: 3 modules fused, 2 GELU, 1 LayerNorm"
    assert isinstance(model.norm, nn.LayerNorm) and list(model.state_dict()) == names and list(model.modules()) == modules
    after = model(x)
    assert after.grad_fn is not None and not torch.equal(after, before)
    torch.testing.assert_close(after, before)
    assert weft.patch(model).swapped == done.swapped  # again: nothing more
    assert torch.equal(model.double()(x.double()), model(x.double()))  # torch's own, for what is not taken
    model.float()
    weft.unpatch(model)
    assert [type(one) for one in model.modules()] == [Mixed, nn.LayerNorm, nn.LayerNorm, nn.GELU, nn.GELU]
    assert torch.equal(model(x), before)


def test_patched_modules_are_copied_and_saved():
    model, x = Mixed(), torch.randn(3, 2, 8)
    weft.patch(model)
    model.norm.weight.data.uniform_()
    again = copy.deepcopy(model)
    assert type(again.norm) is type(model.norm) and again.norm.weight is not model.norm.weight
    file = io.BytesIO()
    torch.save(model.norm, file)
    file.seek(0)
    norm = torch.load(file, weights_only=False)
    assert torch.equal(norm(x), model.norm(x)) and torch.equal(again(x), model(x))


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True, norm_first=norm_first)
    x, mask = torch.randn(3, 5, 16), torch.tensor([[False] * 4 + [True]] * 3)
    own = copy.deepcopy(layer)
    assert weft.patch(layer).swapped[""] == "TransformerEncoderLayer"
    layer.eval(), own.eval()
    torch.testing.assert_close(layer(x, src_key_padding_mask=mask), own(x, src_key_padding_mask=mask))
    # In training without chance: every rate but the fused ones is 0, and those drop next to nothing.
    layer.train(), own.train()
    for one in (layer, own):
        one.dropout.p = one.self_attn.dropout = 0.0
        one.dropout1.p = one.dropout2.p = 1e-9
    for one in (layer, own):
        one(x, src_key_padding_mask=mask).square().sum().backward()
    for mine, exact in zip(layer.parameters(), own.parameters()):
        torch.testing.assert_close(mine.grad, exact.grad, rtol=1e-4, atol=1e-4)
    # And with it: another result each time, and a hook turns it off.
    layer.dropout1.p = layer.dropout2.p = 0.5
    assert not torch.equal(layer(x), layer(x))
    called = []
    layer.linear2.register_forward_hook(lambda *_: called.append(1))
    layer(x)
    assert called == [1]


@pytest.mark.parametrize("name", ["linear2", "dropout1", "dropout2"])
@pytest.mark.parametrize("by", ["class", "forward"])
def test_replaced_parts_of_a_layer_are_called(name, by):
    """Adapters and quantised layers are of classes of their own, or have another forward."""
    layer, called = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True), []
    weft.patch(layer)
    part = getattr(layer, name)

    class Own(type(part)):
        def forward(self, x):
            called.append(1)
            return super().forward(x)

    if by == "class":
        part.__class__ = Own
    else:
        part.forward = lambda x: called.append(1) or x[..., :8]
    layer(torch.randn(3, 5, 8))
    assert called == [1]


def test_a_dropout_that_is_off_drops_nothing():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    layer.dropout.p = layer.self_attn.dropout = 0.0
    layer.dropout1.p = 1e-9
    weft.patch(layer)
    layer.dropout2.eval()
    x = torch.randn(3, 5, 8)
    assert torch.equal(layer(x), layer(x))


def test_blocks_and_activations_of_transformers():
    """Stand-ins with the shape of transformers' classes; tests/examples has the real ones."""

    class BertOutput(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense, self.LayerNorm, self.dropout = nn.Linear(24, 12), nn.LayerNorm(12), nn.Dropout(0.1)

        def forward(self, hidden_states, input_tensor):
            return self.LayerNorm(self.dropout(self.dense(hidden_states)) + input_tensor)

    class QuickGELUActivation(nn.Module):
        def forward(self, input):
            return input * torch.sigmoid(1.702 * input)

    class GELUActivation(nn.Module):
        def forward(self, input):
            return F.gelu(input)

    BertOutput.__module__ = "transformers.models.bert.modeling_bert"
    QuickGELUActivation.__module__ = GELUActivation.__module__ = "transformers.activations"
    torch.manual_seed(0)
    model = nn.ModuleDict({"out": BertOutput(), "act": QuickGELUActivation(), "erf": GELUActivation()})
    hidden, inputs = torch.randn(3, 24), torch.randn(3, 12)
    exact = [model[act](model["out"].eval()(hidden, inputs)) for act in ("act", "erf")]
    swapped = weft.patch(model).swapped
    assert swapped == {"out": "BertOutput", "out.LayerNorm": "LayerNorm", "act": "QuickGELUActivation", "erf": "GELUActivation"}
    torch.testing.assert_close([model[act](model["out"](hidden, inputs)) for act in ("act", "erf")], exact)
    model.train()
    torch.manual_seed(2)
    one = model["out"](hidden, inputs)
    torch.manual_seed(2)
    seed = torch.randint(2**63 - 1, (1,))
    h = torch.ops.weft.bias_dropout_add(F.linear(hidden, model["out"].dense.weight), model["out"].dense.bias, inputs, seed, 0.1)
    assert torch.equal(one, model["out"].LayerNorm(h))
