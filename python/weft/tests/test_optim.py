"""weft.optim beside torch.optim: the same values over several steps, the same state_dicts, the same protocol."""

import copy
import io
import pickle

import pytest
import torch
import weft
from torch import nn

SHAPES = [(), (1,), (17,), (33, 7), (3, 1, 5), (1000, 301)]

# weft's name, torch's or None, arguments
KINDS = [
    ("Adam", torch.optim.Adam, {"lr": 3e-3, "weight_decay": 0.1}),
    ("Adam", torch.optim.Adam, {"lr": 3e-3, "betas": (0.8, 0.9), "amsgrad": True, "maximize": True}),
    ("Adam", torch.optim.Adam, {"lr": 3e-3, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", torch.optim.AdamW, {"lr": 3e-3, "weight_decay": 0.1}),
    ("AdamW", torch.optim.AdamW, {"lr": 3e-3, "amsgrad": True}),
    ("SGD", torch.optim.SGD, {"lr": 0.1}),
    ("SGD", torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.01}),
    ("SGD", torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adagrad", torch.optim.Adagrad, {"lr": 0.05, "lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    ("Adagrad", torch.optim.Adagrad, {"lr": 0.05, "weight_decay": 0.1}),
]
NAMES = [f"{name}-{'-'.join(map(str, arguments))}" for name, _, arguments in KINDS]
each_kind = pytest.mark.parametrize(("name", "torchs", "arguments"), KINDS, ids=NAMES)


def parameters(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]


def set_gradients(*lists, step, without=()):
    generator = torch.Generator().manual_seed(100 + step)
    for index in range(len(lists[0])):
        gradient = torch.randn(lists[0][index].shape, generator=generator)
        for each in lists:
            each[index].grad = None if index in without else gradient.to(each[index].dtype).clone()


def make(name, params, **arguments):
    return getattr(weft.optim, name)(params, **arguments)


def assert_equal(mine, theirs, rtol=2e-5, atol=2e-6):
    for index, (one, other) in enumerate(zip(mine, theirs)):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, msg=lambda text: f"parameter {index}: {text}")


def assert_equal_states(mine, theirs):
    assert mine["state"].keys() == theirs["state"].keys()
    for key, expected in theirs["state"].items():
        got = mine["state"][key]
        for name, value in expected.items():
            if value is not None:
                torch.testing.assert_close(got[name], value, rtol=2e-5, atol=1e-6)
        assert set(got) == {name for name, value in expected.items() if value is not None}


@each_kind
def test_follows_torch(name, torchs, arguments):
    mine, theirs = parameters(), parameters()
    ours, reference = make(name, mine, **arguments), torchs(theirs, **arguments)
    assert isinstance(ours, torchs)
    for step in range(8):
        # Parameter 2 has no gradient at first, parameter 3 none now and then: their steps are counted by themselves.
        without = ([2] if step < 3 else []) + ([3] if step % 3 == 1 else [])
        set_gradients(mine, theirs, step=step, without=without)
        ours.step()
        reference.step()
        assert_equal(mine, theirs)
    assert_equal_states(ours.state_dict(), reference.state_dict())


@each_kind
def test_state_dicts_are_interchangeable(name, torchs, arguments):
    mine, theirs = parameters(), parameters()
    ours, reference = make(name, mine, **arguments), torchs(theirs, **arguments)
    assert_equal_states(ours.state_dict(), reference.state_dict())  # before the first step
    for step in range(3):
        set_gradients(mine, theirs, step=step)
        ours.step()
        reference.step()
    # Each goes on with the other's, through a file.
    swapped_mine, swapped_theirs = copy.deepcopy(theirs), copy.deepcopy(mine)
    swapped, swapped_reference = make(name, swapped_mine, lr=9.0), torchs(swapped_theirs, lr=9.0)
    for taker, giver in ((swapped, reference), (swapped_reference, ours)):
        file = io.BytesIO()
        torch.save(giver.state_dict(), file)
        file.seek(0)
        taker.load_state_dict(torch.load(file))
    for step in range(3, 6):
        set_gradients(mine, theirs, swapped_mine, swapped_theirs, step=step)
        for optimizer in (ours, reference, swapped, swapped_reference):
            optimizer.step()
    assert_equal(swapped_mine, theirs)
    assert_equal(swapped_theirs, theirs)
    assert_equal_states(swapped.state_dict(), reference.state_dict())
    assert_equal_states(swapped_reference.state_dict(), reference.state_dict())


def lamb(p, g, state, step, lr, betas, eps, decay):
    m, v = state
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    u = m / (1 - betas[0] ** step) / ((v / (1 - betas[1] ** step)).sqrt() + eps) + decay * p
    ratio = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1.0
    p -= lr * ratio * u


def lion(p, g, state, step, lr, betas, eps, decay):
    (m,) = state
    p.mul_(1 - lr * decay).sub_(lr * torch.sign(betas[0] * m + (1 - betas[0]) * g))
    m.lerp_(g, 1 - betas[1])


@pytest.mark.parametrize(
    ("name", "formula", "states", "arguments"),
    [
        ("Lamb", lamb, 2, {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.05}),
        ("Lion", lion, 1, {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}),
    ],
)
def test_lamb_and_lion_follow_their_formulas(name, formula, states, arguments):
    mine = parameters()
    exact = [p.detach().double() for p in mine]
    kept = [[torch.zeros_like(p) for _ in range(states)] for p in exact]
    optimizer = make(name, mine, **arguments)
    for step in range(1, 7):
        set_gradients(mine, step=step)
        optimizer.step()
        for p, g, state in zip(exact, mine, kept):
            formula(p, g.grad.double(), state, step, arguments["lr"], arguments["betas"], arguments.get("eps"), arguments["weight_decay"])
    assert_equal([p.double() for p in mine], exact, rtol=1e-4, atol=1e-5)
    again = make(name, mine, **arguments)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    others = copy.deepcopy(mine)
    third = make(name, others, **arguments)
    third.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for step in range(7, 9):
        set_gradients(mine, others, step=step)
        again.step()
        third.step()
    assert_equal(mine, others, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_parameters_have_float32_originals(dtype):
    mine, wide = parameters(dtype), [nn.Parameter(p.detach().float()) for p in parameters(dtype)]
    ours, reference = weft.optim.AdamW(mine, lr=1e-3), torch.optim.AdamW(wide, lr=1e-3)
    for step in range(10):
        set_gradients(mine, step=step)
        for one, other in zip(mine, wide):
            other.grad = one.grad.float()
        ours.step()
        reference.step()
    assert_equal([ours.state[p]["master"] for p in mine], wide)
    assert all(torch.equal(p, ours.state[p]["master"].to(dtype)) for p in mine)

    # Nothing is lost on the way through a state_dict.
    copies = copy.deepcopy(mine)
    other = weft.optim.AdamW(copies, lr=1e-3)
    other.load_state_dict(pickle.loads(pickle.dumps(ours.state_dict())))
    for step in range(10, 13):
        set_gradients(mine, copies, step=step)
        ours.step()
        other.step()
    assert_equal([other.state[p]["master"] for p in copies], [ours.state[p]["master"] for p in mine], rtol=0, atol=0)

    # What is written to a parameter from elsewhere counts.
    with torch.no_grad():
        mine[3].fill_(2)
    set_gradients(mine, step=20)
    ours.step()
    assert (mine[3].float() - 2).abs().max() < 0.02


def test_copies_hold_the_rounded_parameters():
    mine, theirs = parameters(), parameters()
    copies = [p.detach().bfloat16() for p in mine]
    ours, reference = weft.optim.AdamW(mine, copies=copies), torch.optim.AdamW(theirs)
    for step in range(4):
        set_gradients(mine, theirs, step=step)
        ours.step()
        reference.step()
    assert_equal(mine, theirs)
    assert all(torch.equal(narrow, p.detach().bfloat16()) for narrow, p in zip(copies, mine))
    with pytest.raises(ValueError, match=r"parameter 0 of group 0.*copies are bfloat16"):
        weft.optim.AdamW(parameters(), copies=[p.detach() for p in mine])
    with pytest.raises(ValueError, match="1 copies for 6 parameters"):
        weft.optim.AdamW(parameters(), copies=copies[:1])


def test_groups_schedulers_and_options_that_change():
    def build(kind):
        params = parameters()
        groups = [{"params": params[:3], "lr": 1e-2}, {"params": params[3:5], "weight_decay": 0.3, "betas": (0.5, 0.9)}]
        optimizer = kind(groups, lr=1e-3)
        optimizer.add_param_group({"params": params[5:], "amsgrad": True})
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[0.1, 0.01, 0.02], total_steps=10)
        return params, optimizer, schedule  # it changes learning rates and betas

    (mine, ours, my_schedule), (theirs, reference, schedule) = build(weft.optim.AdamW), build(torch.optim.AdamW)
    for step in range(8):
        set_gradients(mine, theirs, step=step)
        ours.step()
        reference.step()
        my_schedule.step()
        schedule.step()
    assert_equal(mine, theirs)
    assert_equal_states(ours.state_dict(), reference.state_dict())


def test_closures_hooks_and_zero_grad():
    target = torch.arange(17.0)
    results = []
    for kind in (weft.optim.SGD, torch.optim.SGD):
        parameter, seen = nn.Parameter(torch.zeros(17)), []
        optimizer = kind([parameter], lr=0.1, momentum=0.5)
        optimizer.register_step_post_hook(lambda *_, seen=seen: seen.append(1))

        def closure(optimizer=optimizer, parameter=parameter):
            optimizer.zero_grad()
            loss = ((parameter - target) ** 2).sum()
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(5)]
        assert len(seen) == 5
        optimizer.zero_grad()
        assert parameter.grad is None
        results.append((parameter.detach(), losses))
    torch.testing.assert_close(results[0], results[1])


def strided(count):
    """Every other column: elements with gaps between them."""
    return nn.Parameter(torch.randn(count, 8, generator=torch.Generator().manual_seed(1))[:, ::2])


def test_strides_of_every_kind():
    def build():
        turned = nn.Parameter(torch.randn(7, 5, generator=torch.Generator().manual_seed(1)).t())
        channels = nn.Parameter(torch.randn(2, 3, 4, 5).fill_(0.5).contiguous(memory_format=torch.channels_last))
        return [turned, channels, strided(6)]

    mine, theirs = build(), build()
    ours, reference = weft.optim.Adam(mine, lr=0.1), torch.optim.Adam(theirs, lr=0.1)
    for step in range(4):
        set_gradients(mine, theirs, step=step)  # row by row, as the parameters are not
        if step == 2:
            mine[0].grad = mine[0].grad.t().contiguous().t()
            mine[1].grad = mine[1].grad.repeat_interleave(2, dim=3)[..., ::2]
        ours.step()
        reference.step()
        assert_equal(mine, theirs)
    assert ours.state[mine[0]]["exp_avg"].stride() == mine[0].stride()
    assert_equal_states(ours.state_dict(), reference.state_dict())


def test_zeroed_gradients():
    mine, theirs = parameters() + [strided(6)], parameters() + [strided(6)]
    ours = weft.optim.AdamW(mine, zero_gradients=True)
    reference = torch.optim.AdamW(theirs)
    for step in range(3):
        set_gradients(mine, theirs, step=step)
        ours.step()
        reference.step()
        assert all(not p.grad.any() for p in mine)
        kept = [p.grad for p in mine]
        ours.zero_grad()
        assert all(p.grad is gradient for p, gradient in zip(mine, kept))
    assert_equal(mine, theirs)
    mine[0].grad.add_(1)
    ours.zero_grad()
    assert not mine[0].grad.any()


def test_max_norm_is_clip_grad_norm():
    mine, theirs = parameters(), parameters()
    ours = weft.optim.AdamW([{"params": mine[:4]}, {"params": mine[4:]}], max_norm=0.7)
    reference = torch.optim.AdamW(theirs)
    for step in range(4):
        set_gradients(mine, theirs, step=step)
        norm = nn.utils.clip_grad_norm_(theirs, 0.7)
        ours.step()
        reference.step()
        torch.testing.assert_close(ours.grad_norm, norm, rtol=1e-5, atol=0)
    assert_equal(mine, theirs)


def test_moved_and_reassigned_memory():
    """.data and entries of state may be replaced between steps, and optimizers copied and pickled."""
    mine, theirs = parameters(), parameters()
    ours, reference = weft.optim.Adam(mine), torch.optim.Adam(theirs)
    for step in range(6):
        set_gradients(mine, theirs, step=step)
        if step == 2:
            for p in mine:
                p.data = p.data.clone()
        if step == 4:
            for each, params in ((ours, mine), (reference, theirs)):
                each.state[params[3]]["exp_avg"] = torch.ones_like(params[3])
                each.state[params[4]]["exp_avg_sq"].mul_(2)
        ours.step()
        reference.step()
    assert_equal(mine, theirs)
    again = pickle.loads(pickle.dumps(ours))
    copied = copy.deepcopy(ours)
    for other in (again, copied):
        params = [p for group in other.param_groups for p in group["params"]]
        before = [p.detach().clone() for p in params]
        set_gradients(params, step=7)
        other.step()
        assert all(not torch.equal(a, b) for a, b in zip(params, before))
    set_gradients(mine, step=7)
    ours.step()
    assert_equal(again.param_groups[0]["params"], mine, rtol=0, atol=0)


def test_a_first_step_that_fails_leaves_all_as_it_was():
    mine, theirs = parameters(), parameters()
    ours, reference = weft.optim.AdamW(mine, lr=1e-2), torch.optim.AdamW(theirs, lr=1e-2)
    for step in range(4):
        set_gradients(mine, theirs, step=step, without=[5])
        ours.step()
        reference.step()
    weft.memory.set_budget(1000)
    try:
        set_gradients(mine, step=4)  # the last one's states do not fit
        with pytest.raises(torch.OutOfMemoryError):
            ours.step()
    finally:
        weft.memory.set_budget(None)
    assert {state["step"].item() for state in ours.state.values()} == {4.0}
    for step in range(4, 6):
        set_gradients(mine, theirs, step=step, without=[5] if step == 4 else [])
        ours.step()
        reference.step()
    assert_equal(mine, theirs)
    assert_equal_states(ours.state_dict(), reference.state_dict())


def test_gradients_that_torch_shows_negated():
    """As autograd leaves them in parameters of one element that become part of complex numbers."""
    for count in ((), (1,), (5,)):
        mine, theirs = nn.Parameter(torch.ones(count)), nn.Parameter(torch.ones(count))
        ours = weft.optim.SGD([mine], lr=0.1, max_norm=100.0, zero_gradients=True)
        reference = torch.optim.SGD([theirs], lr=0.1)
        for p, optimizer in ((mine, ours), (theirs, reference)):
            p.grad = torch._neg_view(torch.full(count, 2.0))
            optimizer.step()
        assert theirs.item() > 1 if theirs.numel() == 1 else theirs.gt(1).all()
        torch.testing.assert_close(mine, theirs)
        assert mine.grad.eq(0).all()


def test_torchs_threads_take_part():
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert weft.backend.extension().threads_that_take_parts() == threads
    finally:
        torch.set_num_threads(before)


def test_results_do_not_depend_on_threads():
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            params = [nn.Parameter(torch.linspace(-1, 1, 1_000_003)), nn.Parameter(torch.ones(5))]
            optimizer = weft.optim.Lamb(params, max_norm=0.5)
            for step in range(2):
                set_gradients(params, step=step)
                optimizer.step()
            results.append([p.detach() for p in params])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert_equal(other, results[0], rtol=0, atol=0)


def test_refuses_what_it_cannot_do():
    with pytest.raises(TypeError, match=r"AdamW: parameter 1 of group 0.*float64 on cpu"):
        weft.optim.AdamW([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=torch.float64))])
    with pytest.raises(ValueError, match="Invalid learning rate"):
        weft.optim.SGD(parameters(), lr=-1.0)
    with pytest.raises(TypeError, match="unexpected argument 'beta3'"):
        weft.optim.Lion(parameters(), beta3=1)
    with pytest.raises(ValueError, match="max_norm is 0"):
        weft.optim.Adam(parameters(), max_norm=0)

    table = nn.Embedding(10, 4, sparse=True)
    dense = nn.Parameter(torch.ones(3))
    optimizer = weft.optim.Adam([dense, table.weight])
    dense.grad = torch.ones(3)
    table(torch.tensor([1, 3])).sum().backward()
    with pytest.raises(RuntimeError, match=r"gradient of parameter 1 of group 0.*is sparse.*SparseAdam"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(3)), "nothing is updated where one gradient is refused"

    shared = nn.Parameter(torch.ones(4))
    part = nn.Parameter(shared.data[:2])
    optimizer = weft.optim.SGD([shared, part], lr=1.0)
    shared.grad, part.grad = torch.ones(4), torch.ones(2)
    with pytest.raises(RuntimeError, match="share memory"):
        optimizer.step()
