"""weft.auto_checkpoint: the budget holds in real steps, recomputation is no more than torch's per-layer policy, results stay."""

import copy
import functools

import pytest
import torch
import weft
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.utils.flop_counter import FlopCounterMode
from weft.recompute.rehearsal import ActivationLedger, backward

LAYERS = 3
X = torch.randn(4, 32, 64)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(weft.recompute.auto, "_TRIES", 2)
    monkeypatch.setattr(weft.recompute.auto, "_SHARES", (0.0, 1.0))


def encoder(layers=LAYERS, dropout=0.0):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=dropout, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).train()


class Block(nn.Module):
    """Whose attention is dear and saves little, whose feed-forward is cheap beside what it saves."""

    def __init__(self, width=64):
        super().__init__()
        self.wide = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.LayerNorm(2 * width), nn.Tanh(), nn.Linear(2 * width, width))
        self.deep = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(12)))

    def forward(self, x):
        return x + self.deep(x) + self.wide(x)


def blocks(layers=LAYERS):
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(layers)))


def measured(model, x=X):
    """(peak of activations, flops) of real steps."""
    with ActivationLedger([*model.parameters(), *model.buffers(), x]) as ledger:
        backward(model(x))
    with FlopCounterMode(display=False) as counter:  # keeps tensors, so that it has a step of its own
        backward(model(x))
    return ledger.peak, counter.get_total_flops()


def per_layer(model, kind, count):
    """torch's policy: the first `count` layers."""
    chosen = [one for one in model.modules() if isinstance(one, kind)][:count]
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda one: one in chosen)
    return model


@functools.cache
def policies(make, kind):
    return [measured(per_layer(make(), kind, count)) for count in range(LAYERS + 1)]


@pytest.mark.parametrize(("make", "kind"), [(encoder, nn.TransformerEncoderLayer), (blocks, Block)], ids=["encoder", "blocks"])
@pytest.mark.parametrize("count", [1, 3])
def test_no_more_is_computed_again_than_by_torchs_layers_at_the_same_peak(make, kind, count):
    peak, flops = policies(make, kind)[count]
    model = make()
    report = weft.auto_checkpoint(model, peak, example=X)
    ours, our_flops = measured(model)
    assert ours <= 1.02 * peak
    assert ours == pytest.approx(report.peak_bytes, rel=0.02)
    assert our_flops <= flops
    assert report.flops == pytest.approx(our_flops - policies(make, kind)[0][1], rel=1e-6)


def test_parts_of_blocks_are_chosen_where_that_is_cheaper():
    policy = blocks()
    parts = [policy[0].wide, policy[1].wide]
    apply_activation_checkpointing(policy, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda one: one in parts)
    peak, flops = measured(policy)
    model = blocks()
    report = weft.auto_checkpoint(model, peak, example=X)
    ours, our_flops = measured(model)
    assert ours <= 1.02 * peak and our_flops <= flops
    assert report.modules and all(name.endswith(".wide") for name in report.modules)


def test_gradients_stay_as_they_are():
    plain, model = encoder(2, dropout=0.3), encoder(2, dropout=0.3)
    budget = measured(per_layer(encoder(2, dropout=0.3), nn.TransformerEncoderLayer, 1))[0]
    report = weft.auto_checkpoint(model, budget, example=X)
    assert report.modules
    for one in (plain, model):
        torch.manual_seed(5)
        one(X).square().sum().backward()
    for (name, one), other in zip(plain.named_parameters(), model.parameters()):
        assert torch.equal(one.grad, other.grad), name
    assert plain.state_dict().keys() == model.state_dict().keys()


def test_a_budget_that_cannot_be_met_names_the_least_that_can():
    with pytest.raises(ValueError, match=r"are too few for TransformerEncoder: \d+ are the least") as failure:
        weft.auto_checkpoint(encoder(2), 1000, example=X)
    least = int(str(failure.value).split("Encoder: ")[1].split()[0])
    model = encoder(2)
    assert weft.auto_checkpoint(model, least, example=X).peak_bytes <= least
    assert measured(model)[0] <= 1.02 * least


def test_nothing_is_checkpointed_where_all_fits():
    model = encoder()
    report = weft.auto_checkpoint(model, "1G", example=X)
    assert report.modules == () and report.flops == 0
    assert not [one for one in model.modules() if isinstance(one, CheckpointWrapper)]
    assert report.peak_bytes == report.peak_before == measured(model)[0]


def test_without_an_example_the_first_call_that_trains_is_it():
    model, twin = encoder(2), encoder(2)
    budget = measured(per_layer(encoder(2), nn.TransformerEncoderLayer, 1))[0]
    assert weft.auto_checkpoint(model, budget) is None
    with torch.no_grad():
        model(X)
    assert not hasattr(model, "checkpoint_report")
    assert torch.equal(model(X), twin(X))
    assert model.checkpoint_report.modules
    assert measured(model)[0] <= 1.02 * budget


def test_rehearsing_leaves_model_and_random_numbers_alone():
    model = encoder(2, dropout=0.3)
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(7)
    weft.auto_checkpoint(model, "1G", example=X)
    drawn = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(3))
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())


def test_wrong_use():
    with pytest.raises(ValueError, match="no ModuleList or Sequential"):
        weft.auto_checkpoint(nn.Linear(4, 4), 1000, example=torch.ones(1, 4))
    with pytest.raises(ValueError, match="memory is 'lots'"):
        weft.auto_checkpoint(encoder(1), "lots", example=X)
    model = per_layer(encoder(2), nn.TransformerEncoderLayer, 1)
    with pytest.raises(ValueError, match="checkpointed already"):
        weft.auto_checkpoint(model, 1000, example=X)
    frozen = encoder(2).requires_grad_(False)
    with pytest.raises(ValueError, match="requires a gradient"):
        weft.auto_checkpoint(frozen, 1000, example=X)
