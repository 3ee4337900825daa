"""DistributedDataParallel(wait_in_step=True): gradients that travel when backward returns are right for all who use them."""

import copy
import pickle

import pytest
import torch
import torch.distributed as dist
import weft
from models import batch, loss_of, rows_of, small_model
from ranks import run_ranks
from weft.travelling import TravellingGradient

ROWS, STEPS = 8, 5
BUCKETS = {"bucket_cap_mb": 0.0005, "first_bucket_mb": 0.0001}


def wrapped(rank, wait_in_step, **options):
    return weft.DistributedDataParallel(small_model(seed=rank), wait_in_step=wait_in_step, **{**BUCKETS, **options})


def trained(rank, wait_in_step, optimizer_of, between=lambda *_: None, set_to_none=True, **options):
    """Losses and parameters; `between` has model, optimizer and step between backward and step()."""
    ranks, losses = dist.get_world_size(), []
    model = wrapped(rank, wait_in_step, **options)
    optimizer = optimizer_of(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = loss_of(model, rows_of(rank, ranks, batch(step, ROWS)))
        loss.backward()
        travels = wait_in_step and (model.tuning is None or model.tuning.outcome is not None)
        assert all((type(p.grad) is TravellingGradient) == travels for p in model.parameters())
        between(model, optimizer, step)
        optimizer.step()
        assert not any(type(p.grad) is TravellingGradient for p in model.parameters())
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


def assert_same(one, other):
    assert one[0] == other[0]
    for mine, theirs in zip(one[1], other[1]):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


OPTIMIZERS = {
    "weft": lambda parameters: weft.optim.AdamW(parameters, lr=0.01),
    "weft zeroes": lambda parameters: weft.optim.AdamW(parameters, lr=0.01, zero_gradients=True),
    "weft clips": lambda parameters: weft.optim.AdamW(parameters, lr=0.01, max_norm=0.1),
    "weft lamb": lambda parameters: weft.optim.Lamb(parameters, lr=0.01),
    "torch": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "torch one by one": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=False),
    "torch fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
}


def check_optimizer(rank, name, set_to_none):
    assert_same(*(trained(rank, late, OPTIMIZERS[name], set_to_none=set_to_none) for late in (True, False)))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_every_optimizer_takes_averages(name, set_to_none):
    run_ranks(2, "weft", check_optimizer, name, set_to_none)


def norm(model, _optimizer, _step):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def wefts_norm(model, _optimizer, _step):
    weft.clip_grad_norm_(model.parameters(), 0.1)


def one_is_read(model, _optimizer, step):
    gradient = [*model.parameters()][step].grad
    everybodys = [torch.zeros_like(gradient) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, gradient.detach().clone())
    assert all(torch.equal(one, everybodys[0]) for one in everybodys)


def all_are_changed(model, _optimizer, _step):
    for p in model.parameters():
        p.grad.mul_(0.5)


def some_are_replaced(model, _optimizer, _step):
    for p in [*model.parameters()][::2]:
        p.grad = torch.ones_like(p)


def some_are_dropped(model, _optimizer, step):
    for p in [*model.parameters()][step % 2 :: 2]:
        p.grad = None


def all_are_awaited(model, _optimizer, _step):
    model.wait()
    assert not any(type(p.grad) is TravellingGradient for p in model.parameters())


def one_is_printed(model, _optimizer, _step):
    text = repr(next(model.parameters()).grad)
    assert text == repr(next(model.parameters()).grad), text


def all_are_scaled_in_place(model, _optimizer, _step):
    for p in model.parameters():
        p.grad *= 0.5


def all_are_held_and_put_back(model, _optimizer, _step):
    held = [p.grad for p in model.parameters()]
    model.wait()
    for p, gradient in zip(model.parameters(), held):
        p.grad = gradient


def all_are_swapped(model, _optimizer, _step):
    """As wrong as without travelling: every parameter of a shape has another one's gradient."""
    by_shape = {}
    for p in model.parameters():
        by_shape.setdefault(p.shape, []).append(p)
    for mine in by_shape.values():
        held = [p.grad for p in mine]
        for p, gradient in zip(mine, held[1:] + held[:1]):
            p.grad = gradient


def one_is_copied(model, _optimizer, _step):
    gradient = next(model.parameters()).grad
    copies = [copy.deepcopy(gradient), pickle.loads(pickle.dumps(gradient)), torch.tensor(gradient.tolist())]
    copies += [torch.from_numpy(gradient.numpy()), gradient.cpu(), gradient.detach(), gradient.data, gradient.view(-1).view(gradient.shape)]
    model.wait()
    assert all(torch.equal(one, next(model.parameters()).grad) for one in copies)


def addresses_are_right(model, _optimizer, _step):
    assert [p.grad.data_ptr() for p in model.parameters()] == [view.data_ptr() for view in model._gradients.views]


def shapes_are_asked_for(model, _optimizer, _step):
    """Which nobody waits for."""
    waits = bool(model._stand_ins)
    for p in model.parameters():
        gradient = p.grad
        assert (gradient.shape, gradient.dtype, gradient.device, gradient.layout) == (p.shape, p.dtype, p.device, p.layout)
        assert gradient.numel() == p.numel() and gradient.size() == p.size() and not gradient.is_sparse and gradient.grad_fn is None
    assert waits == all(type(p.grad) is TravellingGradient for p in model.parameters())


def the_module_is_converted_in_place(model, _optimizer, _step):
    """Which asks each gradient for another of the same type."""
    model.module.to(torch.float32)
    model.module.share_memory()


def data_are_exchanged(model, _optimizer, _step):
    for p in model.parameters():
        p.grad.data.mul_(2)


BETWEEN = [
    norm, wefts_norm, one_is_read, all_are_changed, some_are_replaced, some_are_dropped, all_are_awaited, one_is_printed,
    all_are_scaled_in_place, all_are_held_and_put_back, all_are_swapped, one_is_copied, addresses_are_right, shapes_are_asked_for,
    the_module_is_converted_in_place, data_are_exchanged,
]  # fmt: skip


def check_between(rank, between):
    assert_same(*(trained(rank, late, OPTIMIZERS["weft"], between) for late in (True, False)))


@pytest.mark.parametrize("between", BETWEEN, ids=lambda one: one.__name__)
def test_whoever_uses_a_gradient_has_the_average(between):
    run_ranks(3, "weft", check_between, between)


def check_closures(rank):
    """LBFGS runs backward several times in a step."""
    results = []
    for late in (True, False):
        model = wrapped(rank, late)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, rows_of(rank, dist.get_world_size(), batch(0, ROWS)))
            loss.backward()
            return loss

        results.append(([optimizer.step(closure).item() for _ in range(2)], [p.detach().clone() for p in model.parameters()]))
    assert_same(*results)


def test_steps_with_several_backwards():
    run_ranks(2, "weft", check_closures)


def check_passes(rank):
    """Steps that are left out, sums over passes, and a second backward of the same forward."""
    results = []
    for late in (True, False):
        ranks, model = dist.get_world_size(), wrapped(rank, late)
        optimizer = OPTIMIZERS["weft"](model.parameters())
        data = [rows_of(rank, ranks, batch(step, ROWS)) for step in range(4)]
        loss_of(model, data[0]).backward()  # stays
        with model.no_sync():
            loss_of(model, data[1]).backward()
            assert not any(type(p.grad) is TravellingGradient for p in model.parameters())
        loss_of(model, data[2]).backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss_of(model, data[3])
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss_of(model, data[0]).backward()
        optimizer.zero_grad()  # while they travel
        loss_of(model, data[1]).backward()
        optimizer.step()
        results.append(([], [p.detach().clone() for p in model.parameters()]))
    assert_same(*results)


def test_passes_that_do_not_step():
    run_ranks(2, "weft", check_passes)


def check_scaler(rank, unscale):
    results = []
    for late in (True, False):
        scaler = weft.amp.GradScaler(init_scale=8.0)
        ranks, model = dist.get_world_size(), wrapped(rank, late)
        optimizer = OPTIMIZERS["weft"](model.parameters())
        for step in range(STEPS):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, rows_of(rank, ranks, batch(step, ROWS)))).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        results.append(([], [p.detach().clone() for p in model.parameters()]))
    assert_same(*results)


@pytest.mark.parametrize("unscale", [False, True])
def test_a_scaler_looks_at_averages(unscale):
    run_ranks(2, "weft", check_scaler, unscale)


def check_arrival(rank):
    """A step asks for one bucket after the other, and for all only when the last has come."""
    model = wrapped(rank, True)
    optimizer = OPTIMIZERS["weft"](model.parameters())
    asked, wait_for = [], model.wait_for
    model.wait_for = lambda indices: (asked.append(indices), wait_for(indices))
    loss_of(model, rows_of(rank, dist.get_world_size(), batch(0, ROWS))).backward()
    model.wait = lambda: pytest.fail("waits for all")
    optimizer.step()
    assert asked == model.travelling_together() and len(asked) > 2, asked


def test_a_step_takes_what_has_come():
    run_ranks(2, "weft", check_arrival)


def check_moving(rank):
    """While buckets of several sizes are tried, which moves gradients at the end of a step."""
    outcomes = []
    for late in (True, False):
        outcomes.append(trained(rank, late, OPTIMIZERS["weft"], bucket_cap_mb=None, autotune=STEPS - 1))
    assert_same(*outcomes)


def test_buckets_move_between_steps():
    run_ranks(2, "weft", check_moving)


def check_one_reads(rank):
    model, optimizer, _ = weft.compose(small_model(), weft.optim.AdamW, strategy="ddp", lr=0.01, autotune=6)
    travelled = []
    for step in range(12):
        loss = loss_of(model, rows_of(rank, dist.get_world_size(), batch(step, ROWS)))
        optimizer.backward(loss)
        travelled.append(type(next(model.parameters()).grad) is TravellingGradient)
        if rank == 0:
            next(model.parameters()).grad.norm()
        dist.all_reduce(loss.detach())
        optimizer.step()
    assert not travelled[0] and travelled[-1], travelled


def test_one_rank_alone_may_look_while_settings_are_tried(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_AUTOTUNE_CACHE", str(tmp_path / "autotune.json"))
    run_ranks(2, "weft", check_one_reads)


def check_composed(rank):
    model, optimizer, _ = weft.compose(small_model(), weft.optim.AdamW, strategy="ddp", lr=0.01, autotune=0)
    for step in range(STEPS):
        optimizer.backward(loss_of(model, rows_of(rank, dist.get_world_size(), batch(step, ROWS))))
        assert all(type(p.grad) is TravellingGradient for p in model.parameters())
        optimizer.step()
    mine = trained(rank, False, OPTIMIZERS["weft"])
    assert_same((mine[0], [p.detach() for p in model.parameters()]), mine)


def test_composed_models_wait_in_their_step():
    run_ranks(1, "weft", check_composed)
    run_ranks(2, "weft", check_composed)


def check_refused(_rank):
    with pytest.raises(ValueError, match="wait_in_step.*find_unused_parameters"):
        weft.DistributedDataParallel(small_model(), wait_in_step=True, find_unused_parameters=True)


def test_not_with_unused_parameters():
    run_ranks(1, "weft", check_refused)


def check_lost(rank):
    model = wrapped(rank, True)
    optimizer = OPTIMIZERS["weft"](model.parameters())
    loss_of(model, rows_of(rank, dist.get_world_size(), batch(0, ROWS))).backward()
    optimizer.step()
    if rank == 1:
        return  # its model goes
    loss_of(model, rows_of(rank, dist.get_world_size(), batch(1, ROWS))).backward()
    with pytest.raises(RuntimeError, match="rank 1 left"):
        optimizer.step()
    with pytest.raises(RuntimeError, match="rank 1 left"):
        next(model.parameters()).grad.sum()


def test_a_lost_rank_is_named_by_the_step():
    run_ranks(2, "weft", check_lost)
