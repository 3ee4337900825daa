"""weft.ZeroOptimizer trains to the bits of weft.DistributedDataParallel with weft.optim, in every stage."""

import copy
import pickle
import re

import pytest
import torch
import torch.distributed as dist
import weft
from models import batch, loss_of, rows_of, small_model
from ranks import run_ranks
from torch import nn

ROWS, STEPS = 8, 5
BUCKETS = {"bucket_cap_mb": 0.0005, "first_bucket_mb": 0.0002}


def falling(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def one_cycle(optimizer):
    """Changes betas, or momentum, as well."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=STEPS + 1)


class GrowingDecay:
    def __init__(self, optimizer):
        self._groups = optimizer.param_groups

    def step(self):
        for group in self._groups:
            group["weight_decay"] += 0.25


def run(model, module, optimizer, rank, scaler=None, accumulate=1, steps=range(STEPS), scheduler=falling):
    ranks, losses = dist.get_world_size(), []
    schedule = scheduler(optimizer)
    for step in steps:
        optimizer.zero_grad()
        for part in range(accumulate):
            data = [one.to(next(module.parameters()).dtype) for one in rows_of(rank, ranks, batch(10 * step + part, ROWS))]
            with model.no_sync() if part + 1 < accumulate else torch.enable_grad():
                loss = loss_of(module, data)
                (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def check_equals_ddp(rank, stage, kind, options, dtype, accumulate, scheduler=falling):
    kind = getattr(weft.optim, kind)
    one, other = small_model(seed=rank).to(dtype), small_model(seed=rank).to(dtype)
    zero = weft.ZeroOptimizer(one, kind, stage=stage, **BUCKETS, **options)
    losses = run(zero, one, zero, rank, accumulate=accumulate, scheduler=scheduler)
    ddp = weft.DistributedDataParallel(other)
    reference = kind(ddp.parameters(), **options)
    assert losses == run(ddp, ddp, reference, rank, accumulate=accumulate, scheduler=scheduler)
    zero.wait()
    for mine, theirs in zip(one.state_dict().values(), other.parameters()):
        torch.testing.assert_close(mine, theirs.detach(), rtol=0, atol=0)
    states, expected = zero.state_dict(), reference.state_dict()
    assert states["param_groups"][0]["lr"] == expected["param_groups"][0]["lr"]
    assert states["state"].keys() == expected["state"].keys()
    for key, state in expected["state"].items():
        for name, value in state.items():
            torch.testing.assert_close(states["state"][key][name], value, rtol=0, atol=0)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "options", "dtype", "accumulate"),
    [
        ("AdamW", {"lr": 0.01}, torch.float32, 1),
        ("AdamW", {"lr": 0.01}, torch.bfloat16, 1),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, torch.float32, 3),
        ("Adagrad", {"lr": 0.1}, torch.float32, 1),
    ],
)
def test_equals_ddp(stage, kind, options, dtype, accumulate):
    for ranks in (2, 3):
        run_ranks(ranks, "weft", check_equals_ddp, stage, kind, options, dtype, accumulate)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "options", "scheduler"),
    [
        ("AdamW", {"lr": 0.01}, one_cycle),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, one_cycle),
        ("AdamW", {"lr": 0.01}, GrowingDecay),
    ],
)
def test_follows_schedules_of_other_options(stage, kind, options, scheduler):
    run_ranks(2, "weft", check_equals_ddp, stage, kind, options, torch.float32, 1, scheduler)


def check_options_of_one_rank(rank, stage):
    model = small_model()
    zero = weft.ZeroOptimizer(model, stage=stage, **BUCKETS)
    for step in range(2):
        loss_of(model, rows_of(rank, 2, batch(step, ROWS))).backward()
        if step == 1:
            zero.param_groups[0]["weight_decay"] = 0.5 if rank == 1 else 0.01
            return error_of(lambda: (zero.step(), zero.wait()))
        zero.step()
    return None


@pytest.mark.parametrize("stage", [1, 3])
def test_options_that_one_rank_alone_changes_are_told(stage):
    for said in run_ranks(2, "weft", check_options_of_one_rank, stage):
        assert "the options of group 0" in said and "weight_decay 0.01" in said and "weight_decay 0.5" in said


def check_scaler_and_norm(rank, stage):
    scaler = weft.amp.GradScaler(init_scale=2.0**8, growth_interval=2)
    one, other = small_model(), small_model()
    zero = weft.ZeroOptimizer(one, weft.optim.AdamW, stage=stage, max_norm=0.1, scaler=scaler, lr=0.01, **BUCKETS)
    losses = run(zero, one, zero, rank, scaler)
    assert scaler.get_scale() == 2.0**10
    ddp = weft.DistributedDataParallel(other)
    reference = weft.optim.AdamW(ddp.parameters(), lr=0.01, max_norm=0.1)
    torch.testing.assert_close(losses, run(ddp, ddp, reference, rank), rtol=1e-5, atol=0)
    torch.testing.assert_close(zero.grad_norm, reference.grad_norm, rtol=1e-4, atol=0)

    zero.wait()
    before = one.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    scaler.scale(loss_of(one, rows_of(rank, 2, batch(0, ROWS))) * (float("inf") if rank == 1 else 1)).backward()
    scaler.step(zero)
    scaler.update()
    zero.wait()
    assert scaler.get_scale() == 2.0**9, "what one rank alone finds stops all"
    assert all(torch.equal(value, before[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("stage", [2, 3])
def test_scaler_and_norm(stage):
    run_ranks(2, "weft", check_scaler_and_norm, stage)


def check_scaler_resumes(rank, stage):
    """The optimizer scales by what the scaler has loaded or been set to, not by what it began with."""
    scaler = weft.amp.GradScaler(init_scale=2.0**8)
    model = small_model()
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=stage, scaler=scaler, max_norm=1e9, lr=0.0)
    norms = []
    changes = [
        lambda: None,
        lambda: scaler.load_state_dict({**scaler.state_dict(), "scale": 4.0, "growth_factor": 4.0, "growth_interval": 1}),
        lambda: scaler.set_backoff_factor(0.25),
        lambda: scaler.__setstate__(scaler.__getstate__()),
    ]
    for change, scale in zip(changes, (2.0**8, 16.0, 64.0, 256.0)):
        change()
        scaler.scale(loss_of(model, rows_of(rank, 2, batch(0, ROWS)))).backward()
        scaler.step(zero)
        scaler.update()
        assert scaler.get_scale() == scale
        norms.append(zero.grad_norm.item())
    assert norms == pytest.approx([norms[0]] * 4, rel=1e-6)
    scaler.scale(loss_of(model, rows_of(rank, 2, batch(0, ROWS))) * float("inf")).backward()
    scaler.step(zero)
    scaler.update(128.0)
    assert scaler.get_scale() == 128.0
    scaler.scale(loss_of(model, rows_of(rank, 2, batch(0, ROWS))) * float("inf")).backward()
    scaler.step(zero)
    scaler.update()
    assert scaler.get_scale() == 32.0


@pytest.mark.parametrize("stage", [2, 3])
def test_scaler_changes_in_place(stage):
    run_ranks(2, "weft", check_scaler_resumes, stage)


def save_halfway(rank, folder, stage):
    model = small_model()
    zero = weft.ZeroOptimizer(model, weft.optim.Adam, stage=stage, lr=0.01, **BUCKETS)
    run(zero, model, zero, 0, steps=range(3))  # every rank has the same data, whatever their number
    weights, states = model.state_dict(), zero.state_dict()
    if rank == 0:
        with open(folder / "saved", "wb") as file:
            pickle.dump((weights, states), file)


def resume(rank, folder, stage):
    with open(folder / "saved", "rb") as file:
        weights, states = pickle.load(file)
    results = []
    for kind in ("zero", "zero, loaded after", "weft", "torch"):
        model = small_model(seed=5)
        if kind != "zero, loaded after":
            model.load_state_dict(weights)
        if kind.startswith("zero"):
            optimizer = weft.ZeroOptimizer(model, weft.optim.Adam, lr=9.0, stage=stage, **BUCKETS)
        else:
            optimizer = (weft.optim if kind == "weft" else torch.optim).Adam(model.parameters(), lr=9.0)
        model.load_state_dict(weights)
        optimizer.load_state_dict(states)
        for step in range(3, 5):
            optimizer.zero_grad()
            loss_of(model, rows_of(0, 2, batch(10 * step, ROWS))).backward()
            optimizer.step()
        if kind.startswith("zero"):
            optimizer.wait()
        results.append([value.clone() for value in model.state_dict().values()])
    for zeros, loaded, wefts, torchs in zip(*results):
        torch.testing.assert_close(zeros, loaded, rtol=0, atol=0)
        torch.testing.assert_close(zeros, wefts, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(zeros, torchs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (3, 2), (3, 3)])
def test_goes_on_at_another_number_of_ranks(tmp_path, before, after):
    run_ranks(2, "weft", save_halfway, tmp_path, before)
    run_ranks(3, "weft", resume, tmp_path, after)


def check_goes_back_to_the_start(rank, stage, kind, options):
    """What was saved before the first step leaves nothing of the steps since."""
    model = small_model()
    zero = weft.ZeroOptimizer(model, getattr(weft.optim, kind), stage=stage, **BUCKETS, **options)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    states = zero.state_dict()
    first = run(zero, model, zero, rank)
    zero.wait()
    model.load_state_dict(weights)
    zero.load_state_dict(states)
    assert run(zero, model, zero, rank) == first


@pytest.mark.parametrize(
    ("stage", "kind", "options"),
    [
        (1, "Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.5}),
        (2, "SGD", {"lr": 0.1, "momentum": 0.9}),
        (3, "Adam", {"lr": 0.01}),
    ],
)
def test_goes_back_to_the_start(stage, kind, options):
    run_ranks(2, "weft", check_goes_back_to_the_start, stage, kind, options)


def check_memory(rank):
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(4)]).bfloat16()
    zero = weft.ZeroOptimizer(model, weft.optim.AdamW, bucket_cap_mb=0.2)
    model(torch.ones(1, 256, dtype=torch.bfloat16)).sum().backward()
    zero.step()
    zero.wait()
    return zero.bytes()["optimizer"]


def test_states_are_shared_out():
    elements = 4 * 256 * 256
    for each in run_ranks(4, "weft", check_memory):
        assert each == pytest.approx(elements * 12 / 4, rel=0.01)  # two states and the original


def error_of(call):
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


def check_wrong_use(rank):
    model, other = small_model(), nn.Linear(2, 2)
    foreign = [{"params": list(model.parameters()) + [other.weight]}]
    assert "parameter 6 of its groups, of shape (2, 2), is none of" in error_of(lambda: weft.ZeroOptimizer(model, groups=foreign))
    some = [{"params": list(model.parameters())[1:]}]
    assert "parameter 0.weight is in none" in error_of(lambda: weft.ZeroOptimizer(model, groups=some))
    assert "stage is 4" in error_of(lambda: weft.ZeroOptimizer(model, stage=4))
    assert "shard_size is of stage 3" in error_of(lambda: weft.ZeroOptimizer(model, shard_size=2))
    assert "wait_by_unit is of stages 1 and 2" in error_of(lambda: weft.ZeroOptimizer(model, stage=3, wait_by_unit=True))
    assert "Lamb cannot be sharded" in error_of(lambda: weft.ZeroOptimizer(model, weft.optim.Lamb))
    assert "Adam cannot be sharded" in error_of(lambda: weft.ZeroOptimizer(model, torch.optim.Adam))
    given = weft.optim.AdamW(model.parameters())
    for kind, said in ((given, "is of type AdamW"), (lambda parameters: given, "is of type function"), (None, "is of type NoneType")):
        assert f"optimizer {said}; give a class" in error_of(lambda kind=kind: weft.ZeroOptimizer(model, kind))
    zero = weft.ZeroOptimizer(model)
    assert "no parameters can be added" in error_of(lambda: zero.add_param_group({"params": [other.weight]}))
    assert len(zero.param_groups) == 1
    assert "no backward since the last step, of a loss that depends on the Sequential's" in error_of(zero.step)
    assert "such as 0.weight" in error_of(zero.step)
    loss_of(model, rows_of(rank, 2, batch(0, ROWS))).backward()
    zero.param_groups[0]["amsgrad"] = True
    said = error_of(zero.step)
    assert "group 0 of param_groups was changed" in said and "set_options: group 0 is AdamW with 2 states" in said
    zero.param_groups[0]["amsgrad"] = False
    zero.param_groups[0]["weight_decay"] = -1.0
    assert "weight_decay is -1" in error_of(zero.step)
    zero.param_groups[0]["weight_decay"] = 0.01
    zero.step()
    assert "does not know" in error_of(lambda: weft.amp.GradScaler().step(zero))
    model[0].weight = nn.Parameter(torch.zeros(16, 8))
    assert "parameter 0.weight was replaced" in error_of(lambda: model(torch.zeros(1, 8)))


def test_wrong_use_is_named():
    run_ranks(2, "weft", check_wrong_use)


def replace(parameter):
    parameter.grad = parameter.grad.clone()


CHANGES = [
    lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1e-3),
    lambda model: nn.utils.clip_grad_value_(model.parameters(), 1e-3),
    lambda model: model[0].weight.grad.mul_(0.5),
    lambda model: replace(model[0].weight),
    lambda model: model.zero_grad(),
]


def check_changed_gradients(rank, stage):
    data = rows_of(rank, 2, batch(0, ROWS))
    for change in CHANGES:
        model = small_model()
        zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=stage, **BUCKETS)
        loss_of(model, data).backward()
        said = error_of(lambda: (change(model), zero.step()))
        assert re.search("gradient of parameter 0.weight was (used|changed or replaced) after backward", said)


@pytest.mark.parametrize("stage", [1, 2])
def test_changed_gradients_are_refused(stage):
    run_ranks(2, "weft", check_changed_gradients, stage)


def check_waits_by_unit(rank, stage):
    """Equal to waiting for all, and nothing is used before it is there."""
    losses = []
    for by_unit in (False, True):
        model = small_model()
        zero = weft.ZeroOptimizer(model, weft.optim.AdamW, stage=stage, lr=0.01, wait_by_unit=by_unit, **BUCKETS)
        losses.append(run(zero, model, zero, rank, accumulate=2))
        zero.wait()
        losses[-1] += [parameter.detach().clone() for parameter in model.parameters()]
        zero.state_dict()
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=0)
    loss_of(model, rows_of(rank, 2, batch(0, ROWS))).backward()
    zero.step()
    assert "parameter 0.weight is on its way" in error_of(lambda: model[0].weight.sum())
    model[0](torch.zeros(1, model[0].in_features))
    model[0].weight.sum()
    last = list(model.named_parameters())[-1]
    assert f"parameter {last[0]} is on its way" in error_of(lambda: last[1] + 1)
    with zero.whole_parameters():
        assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


@pytest.mark.parametrize("stage", [1, 2])
def test_waits_by_unit(stage):
    run_ranks(2, "weft", check_waits_by_unit, stage)


def check_clipping(rank, stage):
    model = small_model()
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=stage)
    loss_of(model, rows_of(rank, 2, batch(0, ROWS))).backward()
    said = error_of(lambda: weft.clip_grad_norm_(model.parameters(), 0.5))
    assert "parameter 0.weight is a weft.ZeroOptimizer's" in said and "max_norm=0.5" in said
    zero.step()
    other = nn.Linear(2, 2)
    other(torch.ones(1, 2)).sum().backward()
    assert weft.clip_grad_norm_(other.parameters(), 0.5) > 0.5


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_clipping_says_max_norm(stage):
    run_ranks(2, "weft", check_clipping, stage)


def check_own_gradients(rank, stage):
    """What may be done with gradients: before backward, between passes that add up, in hooks, and between steps."""
    model = small_model()
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=stage, find_unused_parameters=True, **BUCKETS)
    data = rows_of(rank, 2, batch(0, ROWS))
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)
    for to_none in (True, False):
        with zero.no_sync():
            loss_of(model, data).backward()
        model[0].bias.square().sum().backward()  # of the others none
        zero.step()
        model.zero_grad(set_to_none=to_none)
        loss_of(model, data).backward()
        zero.step()


@pytest.mark.parametrize("stage", [1, 2])
def test_own_gradients_are_no_changes(stage):
    run_ranks(2, "weft", check_own_gradients, stage)


def check_copies(rank, stage):
    """A copy of a module, as of an average of its parameters, is nobody's: a rank may use it alone."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    zero = weft.ZeroOptimizer(model, weft.optim.SGD, stage=stage, lr=0.1)
    copied = copy.deepcopy(model)
    if rank == 0:
        copied(torch.ones(4, 8))
    model(torch.full((4, 8), rank + 1.0)).sum().backward()
    zero.step()
    dist.all_reduce(torch.ones(1))  # the ranks have made the same calls
    assert "cannot be copied or pickled" in error_of(lambda: copy.deepcopy(zero))
    assert "copy its module" in error_of(lambda: copy.deepcopy(weft.DistributedDataParallel(small_model())))


@pytest.mark.parametrize("stage", [1, 2])
def test_copies_are_nobodys(stage):
    run_ranks(2, "weft", check_copies, stage)


def check_wrapped_twice(rank):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel as TorchDdp

    def refused(make, model):
        return error_of(lambda: make(model))

    for make in (weft.ZeroOptimizer, weft.DistributedDataParallel, weft.compose):
        assert "the model is a torch DistributedDataParallel already" in refused(make, TorchDdp(small_model()))
        inside = nn.Sequential(nn.Linear(2, 2), weft.DistributedDataParallel(small_model()))
        assert "the model's module 1 is a weft.DistributedDataParallel already" in refused(make, inside)
        assert "the model is sharded by torch's FSDP already" in refused(make, fully_shard(small_model()))
        model = small_model()
        wrapper = weft.DistributedDataParallel(model)
        assert "parameters of the Sequential are in a weft.DistributedDataParallel already" in refused(make, model)
        del wrapper
        make(model)

    mesh = dist.init_device_mesh("cpu", (2,))
    model = small_model()
    model[0].weight = nn.Parameter(dist.tensor.distribute_tensor(model[0].weight.detach(), mesh))
    assert "parameter 0.weight is a DTensor" in refused(weft.ZeroOptimizer, model)

    data = rows_of(rank, 2, batch(0, ROWS))[0]
    around = TorchDdp(weft.DistributedDataParallel(small_model()))
    assert "torch's DistributedDataParallel is around the same parameters" in refused(around, data)
    model = small_model()
    around = TorchDdp(model)
    zero = weft.ZeroOptimizer(model)
    assert "torch's DistributedDataParallel is around the same parameters" in refused(around, data)
    del zero


def test_models_are_wrapped_once():
    run_ranks(2, "weft", check_wrapped_twice)


def check_state_dicts_at_once(rank):
    """What is saved and loaded right after a step, over a link that is slow enough for parameters to be on their way then."""
    weft.emulate_link("100ms:1GB/s")
    slow = dist.new_group(backend="weft")
    weft.emulate_link(None)
    for stage in (1, 2):
        model = small_model()
        optimizer = weft.ZeroOptimizer(model, weft.optim.SGD, stage=stage, lr=0.1, process_group=slow)

        def step():
            model(torch.ones(4, model[0].in_features)).square().mean().backward()
            optimizer.step()

        step()
        saved = {name: value.clone() for name, value in model.state_dict().items()}
        optimizer.wait()
        for name, value in model.state_dict().items():
            assert torch.equal(value, saved[name]), name
        step()
        model.load_state_dict(saved)
        optimizer.wait()
        for name, value in model.state_dict().items():
            assert torch.equal(value, saved[name]), name


def test_state_dicts_wait_for_parameters():
    run_ranks(2, "weft", check_state_dicts_at_once)
