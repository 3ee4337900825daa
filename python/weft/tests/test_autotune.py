"""A wrapper's first steps settle its buckets, or what it gathers ahead, on all ranks alike and without a bit changing."""

import pytest
import torch
import weft
from models import FEATURES, batch, loss_of, rows_of
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, ROWS, WIDTH = 64, 8, 256


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("WEFT_AUTOTUNE_CACHE", "0")
    monkeypatch.delenv("WEFT_AUTOTUNE", raising=False)


def model_of(seed=0):
    """1.3 MiB, in which buckets of 256 KiB and of 1 MiB end in different places."""
    torch.manual_seed(seed)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(5)]
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), *blocks, nn.Linear(WIDTH, 4))


def train(model, optimizer, rank, ranks, steps=STEPS):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, rows_of(rank, ranks, batch(step, ROWS)))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained_by_torch(rank, ranks):
    model = DistributedDataParallel(model_of())
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)
    return train(model, optimizer, rank, ranks), [p.detach() for p in model.parameters()], optimizer.state_dict()


def prefers(tuning, rank, best):
    """Has the tuner see a setting that is a third faster, and ranks that do not measure quite the same."""
    tuning.seconds = lambda setting: (2 if setting == best else 3) + 0.01 * rank


def check_ddp(rank, ranks, which):
    losses, parameters, _ = trained_by_torch(rank, ranks)
    model = weft.DistributedDataParallel(model_of(), autotune=STEPS, bucket_cap_mb=0.5, first_bucket_mb=0.2)
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)
    best = model.tuning.candidates[which]
    prefers(model.tuning, rank, best)
    first = next(model.parameters())
    places, seen, held = set(), set(), []

    def note(*_):
        held[:] = held or [first.grad.view(-1)]  # a view of the first step's, which follows where gradients go
        places.add(first.grad.data_ptr())
        seen.add(model.tuning.setting)
        assert torch.equal(held[0], first.grad.view(-1))

    optimizer.register_step_pre_hook(note)
    assert train(model, optimizer, rank, ranks) == losses
    for mine, theirs in zip(model.parameters(), parameters, strict=True):
        torch.testing.assert_close(mine.detach(), theirs, rtol=0, atol=0)
    assert len(places) > 1 and len(seen) > 4
    return model.tuning.outcome, best


@pytest.mark.parametrize("which", [2, -1])
def test_replicas_take_what_is_fastest(which, capfd):
    answers = run_ranks(2, "weft", check_ddp, 2, which)
    for outcome, best in answers:
        assert outcome == answers[0][0]
        assert outcome["setting"] == best != outcome["standard"]
        assert outcome["seconds"] == pytest.approx(2.005) and outcome["standard_seconds"] == pytest.approx(3.005)
    lines = [line for line in capfd.readouterr().err.splitlines() if "[autotune]" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"weft: [autotune] {answers[0][1]}: 2005.00 ms a step, 33.3 % less than the 3005.00 ms with")


def check_sharded(rank, ranks, stage, norm):
    model = model_of()
    options = {"bucket_cap_mb": 0.5} if stage < 3 else {}
    optimizer = weft.ZeroOptimizer(model, weft.optim.AdamW, lr=1e-3, stage=stage, max_norm=norm, autotune=STEPS, **options)
    best = optimizer.tuning.candidates[-1]
    prefers(optimizer.tuning, rank, best)
    losses = train(model, optimizer, rank, ranks)
    states = optimizer.state_dict()["state"]
    with optimizer.whole_parameters():
        parameters = [p.detach().clone() for p in model.parameters()]
    if norm is None:
        expected = trained_by_torch(rank, ranks)
    else:
        other = model_of()
        plain = weft.ZeroOptimizer(other, weft.optim.AdamW, lr=1e-3, stage=stage, max_norm=norm, **options)
        expected = train(other, plain, rank, ranks), [p.detach() for p in other.parameters()], plain.state_dict()
        plain.wait()
    assert losses == expected[0]
    for mine, theirs in zip(parameters, expected[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    for index, state in states.items():
        for name, value in state.items():
            torch.testing.assert_close(value, expected[2]["state"][index][name], rtol=0, atol=0)
    return optimizer.tuning.outcome, best


@pytest.mark.parametrize(("stage", "norm"), [(1, None), (2, None), (3, None), (2, 0.1)])
def test_shards_take_what_is_fastest(stage, norm):
    for outcome, best in run_ranks(2, "weft", check_sharded, 2, stage, norm):
        assert outcome["setting"] == best != outcome["standard"]


def check_measured(rank):
    """By the clock: whatever is chosen, it has settled, and bits are torch's."""
    model, optimizer, _ = weft.compose(model_of(), weft.optim.AdamW, lr=1e-3, strategy="zero2", autotune=STEPS)
    losses = []
    for step in range(STEPS):
        loss = loss_of(model, rows_of(rank, 2, batch(step, ROWS)))
        optimizer.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert losses == trained_by_torch(rank, 2)[0]
    return optimizer.tuning.outcome["setting"], optimizer.tuning.outcome["seconds"] > 0


def test_compose_settles():
    answers = run_ranks(2, "weft", check_measured)
    assert answers[0] == answers[1] and answers[0][1]


def check_wanted(rank, variable):
    import os

    if variable is not None and (rank == 0 or variable == "many"):
        os.environ["WEFT_AUTOTUNE"] = variable  # of rank 0: it counts for all
    wrapped = [
        weft.DistributedDataParallel(model_of()),
        weft.DistributedDataParallel(model_of(), bucket_cap_mb=1),
        weft.DistributedDataParallel(model_of(), autotune=False),
        weft.ZeroOptimizer(model_of(), weft.optim.AdamW, stage=3),
        weft.compose(model_of())[1],
        weft.compose(model_of(), strategy="zero1", autotune=0)[1],
        weft.DistributedDataParallel(model_of(), bucket_cap_mb=1, autotune=True),
    ]
    return [one.tuning is not None for one in wrapped]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [False, False, False, False, True, False, True]),
        ("200", [True, False, False, True, True, False, True]),
        ("0", [False, False, False, False, False, False, True]),
    ],
)
def test_is_on_where_it_is_asked_for(variable, expected):
    assert run_ranks(2, "weft", check_wanted, variable) == [expected, expected]


@pytest.mark.parametrize(("asked", "variable", "said"), [(None, "many", "WEFT_AUTOTUNE=many"), (-1, None, "autotune=-1"), (0.5, None, "autotune=0.5")])
def test_what_is_no_number_of_steps_is_refused(asked, variable, said):
    for text in run_ranks(2, "weft", refused, asked, variable):
        assert text == f"weft: {said} on rank 0: expected a number of steps up to 1000000, in which settings are tried, or 0"


def refused(rank, asked, variable):
    import os

    if variable is not None and rank == 0:
        os.environ["WEFT_AUTOTUNE"] = variable
    with pytest.raises(ValueError) as raised:
        weft.DistributedDataParallel(model_of(), autotune=asked if rank == 0 else 0 if asked is not None else None)
    return str(raised.value)
