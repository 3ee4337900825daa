"""weft.memory_report(): each strategy keeps what theory says it does, and a budget holds."""

import pytest
import torch
import weft
from ranks import run_ranks
from torch import nn

WIDTH, LAYERS = 128, 6
UNIT = 4 * WIDTH * WIDTH  # bytes of a layer
P = UNIT * LAYERS


def layers():
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])


def wrapped(strategy, model):
    """The model to call, and its optimizer."""
    if strategy == "ddp":
        model = weft.DistributedDataParallel(model, bucket_cap_mb=0.07)
        return model, weft.optim.AdamW(model.parameters())
    stage = {"zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3}[strategy]
    more = {"shard_size": 2} if strategy == "hsdp" else {}
    return model, weft.ZeroOptimizer(model, weft.optim.AdamW, stage=stage, bucket_cap_mb=0.07, **more)


def report_of(rank, strategy):
    before = weft.memory_report()["communication"]["live"]
    model, optimizer = wrapped(strategy, layers())
    for _ in range(2):
        model(torch.ones(1, WIDTH)).sum().backward()
        optimizer.step()
    if strategy != "ddp":
        optimizer.wait()
    report = weft.memory_report()
    assert report["total"]["live"] == sum(one["live"] for kind, one in report.items() if kind != "total")
    assert str(report).splitlines()[1].split()[0] == "parameters"
    report["communication"]["live"] -= before
    return {kind: one["live"] for kind, one in report.items()}, report["gradients"]["peak"]


@pytest.mark.parametrize(
    ("strategy", "parameters", "gradients", "states"),
    [("ddp", 1, 1, 1), ("zero1", 1, 1, 1 / 4), ("zero2", 1, 1 / 4, 1 / 4), ("zero3", 1 / 4, 1 / 4, 1 / 4), ("hsdp", 1 / 2, 1 / 2, 1 / 2)],
)
def test_is_as_in_theory(strategy, parameters, gradients, states):
    for live, peak in run_ranks(4, "weft", report_of, strategy):
        assert live["parameters"] == pytest.approx(P * parameters, rel=0.02)
        assert live["gradients"] == pytest.approx(P * gradients, rel=0.02)
        assert live["optimizer"] == pytest.approx(2 * P * states, rel=0.02)
        if strategy in ("zero3", "hsdp"):  # gathered units and whole gradients, two each, beside staging memory
            staging = live["communication"] - 4 * UNIT
            assert 0 < staging < 8 * 2**20
        assert peak <= P * 1.02


def check_activations(rank, strategy):
    model = nn.Sequential(*[part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())])
    model, optimizer = wrapped(strategy, model)
    inputs = torch.ones(16, WIDTH)
    with weft.memory.counted_activations(model):
        loss = model(inputs).square().sum()
        live = weft.memory_report()["activations"]["live"]
        loss.backward()
    # Of each Linear its input, of each Tanh its output, which is the next one's input; square() has the last.
    assert live == (LAYERS + 1) * inputs.nbytes
    del loss
    assert weft.memory_report()["activations"] == {"live": 0, "peak": live}
    optimizer.step()


@pytest.mark.parametrize("strategy", ["ddp", "zero3"])
def test_counts_activations(strategy):
    run_ranks(2, "weft", check_activations, strategy)


def check_budget(rank):
    """Of 24 MiB of parameters; two ranks with AdamW keep 72 MiB under stage 1, 48 and a few units under stage 3."""
    weft.memory.set_budget(68 * 2**20)
    model = nn.Sequential(*[nn.Linear(512, 512, bias=False) for _ in range(24)])
    with pytest.raises(torch.OutOfMemoryError, match="memory budget of 68.0 MiB: .* MiB of optimizer states do not fit"):
        weft.ZeroOptimizer(model, stage=1)
    weft.memory.set_budget("68MiB")
    optimizer = weft.ZeroOptimizer(model, stage=3)
    model(torch.ones(1, 512)).sum().backward()
    optimizer.step()
    assert 48 * 2**20 < weft.memory_report()["total"]["peak"] <= 68 * 2**20


def test_a_budget_holds():
    run_ranks(2, "weft", check_budget)


@pytest.mark.parametrize(
    ("wrong", "said"), [("lots", "set_budget: budget: \"lots\" is no size"), ("64MB", "is no size"), (2e9, "budget is 2000000000.0"), (-1, "budget is -1")]
)
def test_wrong_budgets_are_named(wrong, said):
    with pytest.raises(ValueError, match=said):
        weft.memory.set_budget(wrong)
