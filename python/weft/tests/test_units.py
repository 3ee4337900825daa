"""weft.ZeroOptimizer's stage 3 trains to the bits of weft.DistributedDataParallel, whatever the model does in its forward."""

import pytest
import torch
import torch.distributed as dist
import weft
from models import FailsInBackward, batch, loss_of, rows_of, small_model
from ranks import run_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

ROWS, STEPS = 8, 4


class Block(nn.Module):
    def __init__(self, width, twice=False):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)  # reads out_proj without calling it
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.gate = nn.Parameter(torch.ones(width))
        self.twice = twice

    def forward(self, x, side):
        for _ in range(1 + self.twice):
            h = self.norm(x)
            x = x + self.gate * self.attention(h, h, h, need_weights=False)[0] + side[0]
            x = x + self.mlp(x)
        return {"x": x, "side": [2 * side[0]]}


class Model(nn.Module):
    """Embedding and head share a weight, a block is used twice, one is recomputed, one of each step is left out."""

    def __init__(self, seed=0, how="plain"):
        super().__init__()
        torch.manual_seed(seed)
        self.how = how
        self.embedding = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8, twice=True), Block(8), Block(8)])
        self.wide = nn.Linear(8, 24)
        self.narrow = nn.Linear(24, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor(0.5))
        nn.init.normal_(self.embedding.weight, std=0.1)

    def block(self, index, x, side):
        if self.how == "recomputed" and index != 1:
            out = checkpoint(self.blocks[index], x, side, use_reentrant=False)
        else:
            out = self.blocks[index](x, side)
        return out["x"], out["side"]

    def forward(self, tokens, step=0):
        x = self.embedding(tokens) * self.scale
        side = [x.mean(1, keepdim=True)]
        x, side = self.block(0, x, side)
        x, side = self.block(1, x, side)
        if step % 2 == 0 or self.how != "skipping":
            x, side = self.block(2, x, side)
        x, side = self.block(0, x, side)
        x, side = self.block(3, x, side)
        return self.head(x + self.narrow(torch.relu(self.wide(x))))


def tokens_of(rank, ranks, step):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(11, (ROWS, 6), generator=generator).chunk(ranks)[rank]


def gpt_loss(model, rank, ranks, step):
    tokens = tokens_of(rank, ranks, step)
    return nn.functional.cross_entropy(model(tokens, step=step).flatten(0, 1), tokens.flatten())


def train(wrapper, module, optimizer, rank, accumulate=1, scaler=None, steps=range(STEPS)):
    ranks, losses = dist.get_world_size(), []
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    for step in steps:
        optimizer.zero_grad()
        for part in range(accumulate):
            with wrapper.no_sync() if part + 1 < accumulate else torch.enable_grad():
                loss = gpt_loss(wrapper if wrapper is not optimizer else module, rank, ranks, accumulate * step + part)
                (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def two_groups(module):
    decayed = [p for p in module.parameters() if p.dim() > 1]
    return [{"params": decayed}, {"params": [p for p in module.parameters() if p.dim() <= 1], "weight_decay": 0.0}]


def check_equals_ddp(rank, kind, options, how, dtype, accumulate, sharded):
    kind = getattr(weft.optim, kind)
    find = {"find_unused_parameters": how == "skipping"}
    one, other = Model(rank, how).to(dtype), Model(rank, how).to(dtype)
    if sharded.pop("marked", False):
        for part in (one.embedding, *one.blocks, one.blocks[1].mlp):
            weft.fully_shard(part)
    zero = weft.ZeroOptimizer(one, kind, stage=3, groups=two_groups(one), poison=True, **find, **sharded, **options)
    losses = train(zero, one, zero, rank, accumulate)
    ddp = weft.DistributedDataParallel(other, **find)
    reference = kind(two_groups(other), **options)
    assert losses == train(ddp, ddp, reference, rank, accumulate)
    values, expected = one.state_dict(), other.state_dict()
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(values[name], value, rtol=0, atol=0, msg=lambda text: f"{name}: {text}")
    states, expected = zero.state_dict(), reference.state_dict()
    assert states["state"].keys() == expected["state"].keys()
    for key, state in expected["state"].items():
        for name, value in state.items():
            torch.testing.assert_close(states["state"][key][name], value, rtol=0, atol=0)
    assert all(p.grad is None for p in one.parameters())


@pytest.mark.parametrize(
    ("ranks", "kind", "options", "how", "dtype", "accumulate", "sharded"),
    [
        (2, "AdamW", {"lr": 0.01}, "plain", torch.float32, 1, {}),
        (3, "AdamW", {"lr": 0.01}, "recomputed", torch.float32, 1, {"marked": True}),
        (2, "AdamW", {"lr": 0.01}, "recomputed", torch.bfloat16, 2, {"prefetch": 0}),
        (2, "SGD", {"lr": 0.1, "momentum": 0.9}, "skipping", torch.float32, 1, {"reshard_after_forward": False}),
        (4, "Adam", {"lr": 0.01}, "plain", torch.float32, 3, {"shard_size": 2}),
        (2, "Adagrad", {"lr": 0.1}, "plain", torch.float32, 1, {"shard_size": 1, "prefetch": 3}),
    ],
)
def test_equals_ddp(ranks, kind, options, how, dtype, accumulate, sharded):
    run_ranks(ranks, "weft", check_equals_ddp, kind, options, how, dtype, accumulate, sharded)


def error_of(call):
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


def check_whole_and_freed(rank):
    """Parameters have memory only in their units' turns, and whole_parameters() reads and writes them."""
    model, seen = Model(rank), []
    sizes = {name: p.shape for name, p in model.named_parameters()}
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=3, lr=0.1)
    other = Model()
    weight = model.blocks[0].norm.weight
    absent = "parameter blocks.0.norm.weight is sharded, and only there while its unit's module is called"
    hook = model.blocks[1].register_forward_hook(lambda *_: seen.append(error_of(lambda: weight + 1)))
    assert torch.equal(model(tokens_of(0, 1, 0)), other(tokens_of(0, 1, 0)))
    hook.remove()
    assert absent in seen[0] and absent in error_of(lambda: repr(weight))
    assert weight.shape == sizes["blocks.0.norm.weight"]
    with zero.whole_parameters():
        assert torch.equal(model(tokens_of(0, 1, 0)), other(tokens_of(0, 1, 0)))
        for mine, expected in zip(model.parameters(), other.parameters()):
            assert torch.equal(mine, expected)
        with pytest.raises(RuntimeError, match="within whole_parameters"):
            model(tokens_of(0, 1, 0)).sum().backward()
        with torch.no_grad():
            weight.fill_(2.0)
            other.blocks[0].norm.weight.fill_(2.0)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    assert torch.equal(model(tokens_of(0, 1, 0)), other(tokens_of(0, 1, 0)))
    changed = {name: value + 1 for name, value in other.state_dict().items() if name != "scale"}
    model.load_state_dict(changed, strict=False)
    other.load_state_dict(changed, strict=False)
    with torch.no_grad():
        assert torch.equal(model(tokens_of(0, 1, 0)), other(tokens_of(0, 1, 0)))
    with pytest.raises(ValueError, match="assign=True"):
        model.load_state_dict(changed, assign=True)


def test_parameters_are_whole_only_when_asked_for():
    run_ranks(2, "weft", check_whole_and_freed)


def check_written_unnoticed(rank, dtype):
    """Writes by way of .data have no version, and count all the same; what was not written keeps its float32 original."""
    model, other = Model().to(dtype), Model().to(dtype)
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=3, lr=0.1)
    ddp = weft.DistributedDataParallel(other)
    reference = weft.optim.SGD(other.parameters(), lr=0.1)
    train(zero, model, zero, rank, steps=range(2))
    train(ddp, ddp, reference, rank, steps=range(2))
    with zero.whole_parameters():
        for one in (model, other):
            one.narrow.weight.data.clamp_(-0.05, 0.05)
            one.wide.bias.data = torch.full_like(one.wide.bias, 0.25)
            one.blocks[0].gate.data[3] = 2.0
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=0, atol=0)
    if dtype == torch.bfloat16:
        master = zero._core.state(zero._sharding._number_of[model.head.weight], "master")
        assert not torch.equal(master, master.bfloat16().float())
    assert torch.equal(model(tokens_of(0, 1, 0)), other(tokens_of(0, 1, 0)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_writes_without_a_version_count(dtype):
    run_ranks(2, "weft", check_written_unnoticed, dtype)


def check_step_within_no_sync(rank):
    model = small_model()
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=3, lr=0.1)
    data = rows_of(rank, 2, batch(0, ROWS))
    with zero.no_sync():
        loss_of(model, data).backward()
        assert "outside of no_sync()" in error_of(zero.step)
    assert "outside of no_sync()" in error_of(zero.step)
    loss_of(model, data).backward()
    with zero.no_sync():
        assert "outside of no_sync()" in error_of(zero.step)
    zero.step()


def test_no_step_within_no_sync():
    run_ranks(2, "weft", check_step_within_no_sync)


def check_compiled(rank, what):
    losses = []
    for compiled in (False, True):
        model = called = Model()
        zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=3, lr=0.1)
        if compiled and what == "model":
            called = torch.compile(model, backend="eager")
        elif compiled:
            for block in model.blocks:
                block.compile(backend="eager")
        losses.append([])
        for step in range(STEPS):
            loss = gpt_loss(called, rank, 2, step)
            loss.backward()
            zero.step()
            losses[-1].append(loss.item())
    assert losses[0] == losses[1]


@pytest.mark.parametrize("what", ["model", "blocks"])
def test_compiled_models(what):
    run_ranks(2, "weft", check_compiled, what)


def check_odd_passes(rank):
    """Several losses of a step, gradients of inputs alone, evaluation in between, and a graph of the step before."""
    one, other = Model(), Model()
    zero = weft.ZeroOptimizer(one, weft.optim.SGD, stage=3, lr=0.1, poison=True)
    ddp = weft.DistributedDataParallel(other)
    reference = weft.optim.SGD(other.parameters(), lr=0.1)
    tokens = tokens_of(rank, 2, 0)
    for model, optimizer in ((one, zero), (ddp, reference)):
        for _ in range(2):
            optimizer.zero_grad()
            losses = [model(tokens).square().mean(), model(tokens.flip(1)).mean()]
            with torch.no_grad():
                model(tokens)
            with optimizer.no_sync() if model is one else model.no_sync():
                losses[0].backward()
            losses[1].backward()
            optimizer.step()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-6, atol=1e-7)
    stale = one(tokens).sum()
    one(tokens).mean().backward()
    zero.step()
    with pytest.raises(ValueError, match="had no forward since the last step"):
        stale.backward()


def test_odd_passes():
    run_ranks(2, "weft", check_odd_passes)


def check_schedule(rank):
    """Of plain blocks, one is gathered ahead, and what forward ends with stays for backward."""
    model = nn.Sequential(*[nn.Linear(32, 32, bias=False) for _ in range(6)])
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=3, lr=0.1)
    counts = []
    for _ in range(3):
        model(torch.ones(2, 32)).sum().backward()
        zero.step()
        counts.append(zero._core.gather_count())
    assert counts[1:] == [6 + 4, 6 + 4]
    assert zero._core.peak_gathered_bytes() == 2 * 32 * 32 * 4


def test_gathers_ahead():
    run_ranks(2, "weft", check_schedule)


def fails_in_backward(rank):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=3, lr=0.1)
    assert "no backward since the last step" in error_of(zero.step)
    first, second = model[0], model[1]
    hook = second.register_forward_hook(lambda module, args, output: FailsInBackward.apply(output))
    second._forward_hooks.move_to_end(hook.id, last=False)
    assert "of the user's" in error_of(model(torch.ones(1, 8)).sum().backward)
    assert "backward was left by an exception while unit 1" in error_of(lambda: model(torch.ones(1, 8)))


def check_wrong_use(rank):
    assert "ModuleList has no forward" in error_of(lambda: weft.fully_shard(nn.ModuleList()))
    assert "is no torch.nn.Module" in error_of(lambda: weft.fully_shard(3))
    wider = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4 + rank))
    assert "parameter 2 is 1.weight of shape (4, 4)" in error_of(lambda: weft.ZeroOptimizer(wider, stage=3))
    assert "shard_size" in error_of(lambda: weft.ZeroOptimizer(small_model(), stage=3, shard_size=3))
    model = small_model()
    assert "unit '0' is 640 bytes gathered" in error_of(lambda: weft.ZeroOptimizer(model, stage=3, gather_cap_mb=0.0006))
    zero = weft.ZeroOptimizer(model, stage=3)
    data = rows_of(rank, 2, batch(0, ROWS))
    kept = model[0].weight
    model[0].weight = nn.Parameter(torch.zeros(16, 8))
    assert "parameter 0.weight was replaced" in error_of(lambda: model(data[0]))
    model[0].weight = kept
    memory, kept.data = kept.data, torch.zeros(16, 8)
    assert "parameter 0.weight was replaced" in error_of(lambda: model(data[0]))
    kept.data = memory
    model[0].add_module("more", nn.Linear(2, 2))
    assert "parameter 0.more.weight came after" in error_of(lambda: model(data[0]))
    del model[0].more
    model[2].register_forward_pre_hook(lambda *_: 1 / 0)
    assert "division by zero" in error_of(lambda: model(data[0]))
    model[2]._forward_pre_hooks.popitem()
    loss_of(model, data).backward()  # and goes on
    zero.step()


def test_wrong_use_is_named():
    run_ranks(2, "weft", check_wrong_use)
    run_ranks(2, "weft", fails_in_backward)
