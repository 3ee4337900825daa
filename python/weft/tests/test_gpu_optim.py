"""weft.optim, weft.amp and clipping on a GPU beside torch's on the CPU, on the fake GPU and, with WEFT_TEST_GPU=1, on a real one."""

import copy
import math
import pickle

import pytest
import torch
import weft
from gpu_ranks import BACKEND, ON_A_GPU, needs_gpu, run_gpu_ranks
from test_optim import KINDS, NAMES, assert_equal, assert_equal_states, lamb, lion, parameters, set_gradients
from torch import nn

pytestmark = [needs_gpu, pytest.mark.skipif(BACKEND != "weft", reason="of weft's optimizers")]
real_only = pytest.mark.skipif(not ON_A_GPU, reason="the fake has no such thing")
each_kind = pytest.mark.parametrize("kind", range(len(KINDS)), ids=NAMES)


def on_gpu(gpu, params):
    return [nn.Parameter(gpu.put(p.detach())) for p in params]


def give(gpu, params, others):
    """The gradients that others on the CPU have, in these parameters' type."""
    for one, other in zip(params, others):
        one.grad = None if other.grad is None else gpu.put(other.grad.to(one.dtype))


def here(gpu, params):
    return [gpu.get(p) for p in params]


def state_on_host(gpu, state_dict):
    def move(value):
        return gpu.get(value) if isinstance(value, torch.Tensor) and value.is_cuda else value

    state = {key: {name: move(value) for name, value in one.items()} for key, one in state_dict["state"].items()}
    return {"state": state, "param_groups": copy.deepcopy(state_dict["param_groups"])}


def run(body, *arguments, **options):
    return run_gpu_ranks(1, body, *arguments, seconds=120, **options)[0]


def check_follows_torch(gpu, kind):
    name, torchs, arguments = KINDS[kind]
    theirs = parameters()
    mine = on_gpu(gpu, theirs)
    ours, reference = getattr(weft.optim, name)(mine, **arguments), torchs(theirs, **arguments)
    for step in range(8):
        without = ([2] if step < 3 else []) + ([3] if step % 3 == 1 else [])
        set_gradients(theirs, step=step, without=without)
        give(gpu, mine, theirs)
        ours.step()
        reference.step()
        assert_equal(here(gpu, mine), theirs)
    assert_equal_states(state_on_host(gpu, ours.state_dict()), reference.state_dict())
    assert all(value.is_cuda for one in ours.state.values() for value in one.values())

    # Each goes on with the other's state, from the other device.
    swapped_theirs = [nn.Parameter(p) for p in here(gpu, mine)]
    swapped_mine = on_gpu(gpu, theirs)
    swapped, swapped_reference = getattr(weft.optim, name)(swapped_mine, lr=9.0), torchs(swapped_theirs, lr=9.0)
    swapped.load_state_dict(pickle.loads(pickle.dumps(reference.state_dict())))
    swapped_reference.load_state_dict(state_on_host(gpu, ours.state_dict()))
    for step in range(8, 11):
        set_gradients(theirs, swapped_theirs, step=step)
        give(gpu, swapped_mine, theirs)
        swapped.step()
        swapped_reference.step()
        reference.step()
    assert_equal(here(gpu, swapped_mine), theirs)
    assert_equal(swapped_theirs, theirs)
    assert_equal_states(state_on_host(gpu, swapped.state_dict()), reference.state_dict())


@each_kind
def test_follows_torch(kind):
    run(check_follows_torch, kind)


def check_come_and_go(gpu):
    """Gradients that come and go at random: states stay where they are, and the core is divided at most once a parameter."""
    theirs = parameters()
    mine = on_gpu(gpu, theirs)
    ours, reference = weft.optim.AdamW(mine, lr=1e-2), torch.optim.AdamW(theirs, lr=1e-2)
    draw = torch.Generator().manual_seed(3)
    places, cores = None, []
    for step in range(60):
        without = [] if step < 2 else [i for i in range(len(theirs)) if torch.rand((), generator=draw) < 0.3]
        set_gradients(theirs, step=step, without=without)
        give(gpu, mine, theirs)
        ours.step()
        reference.step()
        if ours._core not in cores:
            cores.append(ours._core)
        now = [ours.state[p]["exp_avg"].data_ptr() for p in mine]
        assert places in (None, now)
        places = now
    assert 1 < len(cores) <= len(mine)
    assert_equal(here(gpu, mine), theirs, rtol=2e-4, atol=2e-5)
    assert_equal_states(state_on_host(gpu, ours.state_dict()), reference.state_dict())


def test_gradients_that_come_and_go():
    run(check_come_and_go)


def check_formula(gpu, name, formula, states, arguments):
    theirs = parameters()
    mine, exact = on_gpu(gpu, theirs), [p.detach().double() for p in theirs]
    kept = [[torch.zeros_like(p) for _ in range(states)] for p in exact]
    optimizer = getattr(weft.optim, name)(mine, **arguments)
    for step in range(1, 7):
        set_gradients(theirs, step=step)
        give(gpu, mine, theirs)
        optimizer.step()
        for p, g, state in zip(exact, theirs, kept):
            formula(p, g.grad.double(), state, step, arguments["lr"], arguments["betas"], arguments.get("eps"), arguments["weight_decay"])
    assert_equal([p.double() for p in here(gpu, mine)], exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "formula", "states", "arguments"),
    [
        ("Lamb", lamb, 2, {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.05}),
        ("Lion", lion, 1, {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}),
    ],
)
def test_lamb_and_lion_follow_their_formulas(name, formula, states, arguments):
    run(check_formula, name, formula, states, arguments)


def check_narrow(gpu, dtype):
    narrow = parameters(dtype)
    wide = [nn.Parameter(p.detach().float()) for p in narrow]
    mine = on_gpu(gpu, narrow)
    ours, reference = weft.optim.AdamW(mine, lr=1e-3), torch.optim.AdamW(wide, lr=1e-3)
    for step in range(6):
        set_gradients(narrow, step=step)
        for one, other in zip(narrow, wide):
            other.grad = one.grad.float()
        give(gpu, mine, narrow)
        ours.step()
        reference.step()
    masters = [gpu.get(ours.state[p]["master"]) for p in mine]
    assert_equal(masters, wide)
    assert all(torch.equal(p, master.to(dtype)) for p, master in zip(here(gpu, mine), masters))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_parameters_have_float32_originals(dtype):
    run(check_narrow, dtype)


def check_options(gpu):
    theirs = parameters()
    mine = on_gpu(gpu, theirs)
    copies = [gpu.put(p.detach().bfloat16()) for p in theirs]
    optimizers = []
    for kind, params, more in ((weft.optim.AdamW, mine, {"max_norm": 0.7, "zero_gradients": True, "copies": copies}), (torch.optim.AdamW, theirs, {})):
        groups = [{"params": params[:3], "lr": 1e-2}, {"params": params[3:], "weight_decay": 0.3, "betas": (0.5, 0.9)}]
        optimizer = kind(groups, lr=1e-3, **more)
        optimizers.append((optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[0.1, 0.01], total_steps=10)))
    (ours, my_schedule), (reference, schedule) = optimizers
    for step in range(6):
        set_gradients(theirs, step=step)
        give(gpu, mine, theirs)
        if step == 3:
            mine[1].grad = gpu.put(theirs[1].grad)  # elsewhere
        norm = nn.utils.clip_grad_norm_(theirs, 0.7)
        ours.step()
        reference.step()
        my_schedule.step()
        schedule.step()
        torch.testing.assert_close(gpu.get(ours.grad_norm), norm, rtol=1e-5, atol=0)
        assert all(not gpu.get(p.grad).any() for p in mine)
        kept = [p.grad for p in mine]
        ours.zero_grad()
        assert all(p.grad is gradient for p, gradient in zip(mine, kept))
    assert_equal(here(gpu, mine), theirs)
    assert all(torch.equal(gpu.get(one), gpu.get(p).bfloat16()) for one, p in zip(copies, mine))


def test_groups_schedules_clipping_zeroing_and_copies():
    run(check_options)


def check_strides(gpu):
    turned = torch.randn(7, 5, generator=torch.Generator().manual_seed(1)).t()
    gaps = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
    theirs = [nn.Parameter(turned.clone()), nn.Parameter(gaps[:, ::2].clone())]
    whole = gpu.put(gaps)
    mine = [nn.Parameter(gpu.put(turned)), nn.Parameter(whole[:, ::2])]
    ours, reference = weft.optim.Adam(mine, lr=0.1), torch.optim.Adam(theirs, lr=0.1)
    for step in range(4):
        set_gradients(theirs, step=step)
        give(gpu, mine, theirs)
        ours.step()
        reference.step()
    rows = torch.empty(6, 8)
    rows.copy_(whole)
    assert_equal([gpu.get(mine[0]), rows[:, ::2]], theirs)
    assert torch.equal(rows[:, 1::2], gaps[:, 1::2])


def test_strides_of_every_kind():
    run(check_strides)


def check_scaler(gpu, unscale_first, max_norm):
    """Steps of which some overflow, beside torch's scaler and optimizer on the CPU."""
    theirs = parameters()
    mine = on_gpu(gpu, theirs)
    ours, reference = weft.optim.AdamW(mine, lr=1e-2, max_norm=max_norm), torch.optim.AdamW(theirs, lr=1e-2)
    options = {"init_scale": 1024.0, "growth_interval": 2}
    mine_scaler = weft.amp.GradScaler("cuda", **options)
    scaler = torch.amp.GradScaler("cpu", **options)
    for step in range(9):
        set_gradients(theirs, step=step)
        one = torch.ones(())
        scaled = scaler.scale(one)
        for p in theirs:
            p.grad.mul_(scaled)
        if step in (2, 5, 6):
            theirs[step % len(theirs)].grad.view(-1)[-1] = math.inf if step == 2 else math.nan
        give(gpu, mine, theirs)
        assert gpu.get(mine_scaler.scale(gpu.put(one))).item() == scaled.item()
        if unscale_first:
            mine_scaler.unscale_(ours)
        if unscale_first or max_norm is not None:
            scaler.unscale_(reference)
        if max_norm is not None:
            nn.utils.clip_grad_norm_(theirs, max_norm)
        mine_scaler.step(ours)
        scaler.step(reference)
        mine_scaler.update()
        scaler.update()
        assert_equal(here(gpu, mine), theirs)
    assert mine_scaler.get_scale() == scaler.get_scale()
    assert {gpu.get(state["step"]).item() for state in ours.state.values()} == {6.0}
    again = pickle.loads(pickle.dumps(mine_scaler))
    assert again.state_dict() == mine_scaler.state_dict()


@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("unscale_first", [False, True], ids=["fused", "unscaled"])
def test_scaler(unscale_first, max_norm):
    run(check_scaler, unscale_first, max_norm)


def check_clipping(gpu, kind):
    theirs = parameters()
    mine = on_gpu(gpu, theirs)
    for step, limit in enumerate((0.5, 1e6, 2.0)):
        set_gradients(theirs, step=step)
        give(gpu, mine, theirs)
        expected = nn.utils.clip_grad_norm_(theirs, limit, kind)
        norm = weft.clip_grad_norm_(mine, limit, kind)
        torch.testing.assert_close(gpu.get(norm), expected, rtol=1e-5, atol=0)
        assert_equal([gpu.get(p.grad) for p in mine], [p.grad for p in theirs])
    mine[3].grad.fill_(math.nan)
    assert gpu.get(weft.clip_grad_norm_(mine, 1.0, kind)).item() == math.inf
    with pytest.raises(RuntimeError, match="not finite"):
        weft.clip_grad_norm_(mine, 1.0, kind, error_if_nonfinite=True)


@pytest.mark.parametrize("kind", [2.0, math.inf])
def test_clip_grad_norm(kind):
    run(check_clipping, kind)


def check_no_wait(gpu):
    """Of torch's own calls a GPU tells; of the library's the fake, whose torch waits for other reasons."""
    params = on_gpu(gpu, parameters())
    optimizer = weft.optim.AdamW(params, max_norm=1.0)
    scaler = weft.amp.GradScaler("cuda")
    for p in params:
        p.grad = torch.ones_like(p)
    for step in range(5):
        if step == 2:
            waits = gpu.fake.calls("cudaDeviceSynchronize") if gpu.fake else torch.cuda.set_sync_debug_mode("error")
        scaler.step(optimizer)
        scaler.update()
        if step % 2:
            scaler.unscale_(optimizer)
            weft.clip_grad_norm_(params, 1.0)
            optimizer.step()
            scaler.update()
    if gpu.fake:
        assert gpu.fake.calls("cudaDeviceSynchronize") == waits > 0
    else:
        torch.cuda.set_sync_debug_mode("default")


def test_steps_do_not_wait_for_the_gpu():
    run(check_no_wait)


def check_refusals(gpu):
    device = nn.Parameter(gpu.put(torch.ones(3)))
    both = weft.optim.SGD([nn.Parameter(torch.ones(3)), device])
    for p in both.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match=r"parameter 0 of group 0.*on cpu.*parameter 1 of group 0.*on cuda.*optimizer for each"):
        both.step()
    with pytest.raises(TypeError, match=r"parameter 0 of group 0.*float64 on cuda"):
        weft.optim.SGD([nn.Parameter(gpu.put(torch.ones(3, dtype=torch.float64)))])
    optimizer = weft.optim.SGD([device])
    with pytest.raises(RuntimeError, match=r"gradients are on cuda:0, the scaler is on cpu; make it with GradScaler\('cuda:0'\)"):
        weft.amp.GradScaler("cpu").step(optimizer)


def test_refuses_what_it_cannot_do():
    run(check_refusals)


def check_graph(gpu):
    """Steps replayed from a CUDA graph have the eager ones' bits; learning rates and loss scales on the GPU are read at each."""
    def build():
        params = [nn.Parameter(p.detach().cuda()) for p in parameters()]
        lr = torch.full((), 1e-2, device="cuda")
        for p in params:
            p.grad = torch.empty_like(p)
        return params, lr, weft.optim.AdamW(params, lr=lr, max_norm=1.0), weft.amp.GradScaler("cuda", init_scale=8.0, growth_interval=3)

    def set_all(params, step):
        for index, p in enumerate(params):
            p.grad.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + index)))
        if step == 4:
            params[0].grad.fill_(math.inf)

    (eager, eager_lr, optimizer, scaler), (mine, lr, recorded, recorded_scaler) = build(), build()
    for step in range(2):
        for params, one, its in ((eager, optimizer, scaler), (mine, recorded, recorded_scaler)):
            set_all(params, step)
            its.step(one)
            its.update()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded_scaler.step(recorded)
        recorded_scaler.update()
    for step in range(2, 9):
        for each in (eager_lr, lr):
            each.fill_(1e-2 / step)
        set_all(eager, step)
        scaler.step(optimizer)
        scaler.update()
        set_all(mine, step)
        graph.replay()
    assert_equal([p.cpu() for p in mine], [p.cpu() for p in eager], rtol=0, atol=0)
    assert scaler.get_scale() == recorded_scaler.get_scale()
    assert recorded.state[mine[0]]["step"].item() == 8
    mine[1].grad = None
    with pytest.raises(RuntimeError, match="a CUDA graph has steps of this optimizer"):
        recorded.step()
    fresh = weft.optim.SGD([nn.Parameter(torch.ones(3, device="cuda"))], momentum=0.9)
    fresh.param_groups[0]["params"][0].grad = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="a first step, which makes states, cannot be part of a CUDA graph"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            fresh.step()


@real_only
def test_cuda_graphs():
    run(check_graph)


def check_torchs_fused(gpu):
    """weft's scaler with torch's fused optimizer, and torch's scaler with weft's, as both with torch's own."""
    results = []
    for scaler_kind, kind, more in (
        (torch.amp.GradScaler, torch.optim.AdamW, {"fused": True}),
        (weft.amp.GradScaler, torch.optim.AdamW, {"fused": True}),
        (torch.amp.GradScaler, weft.optim.AdamW, {}),
        (weft.amp.GradScaler, weft.optim.AdamW, {}),
    ):
        params = [nn.Parameter(p.detach().cuda()) for p in parameters()]
        optimizer = kind(params, lr=1e-2, **more)
        scaler = scaler_kind("cuda", init_scale=64.0, growth_interval=2)
        for step in range(6):
            loss = sum(((p * (step + 1) - 1) ** 2).sum() for p in params)
            scaler.scale(loss).backward()
            if step == 3:
                params[2].grad.fill_(math.nan)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        results.append(([p.detach().cpu() for p in params], scaler.get_scale(), optimizer.state_dict()))
    for params, scale, _ in results[1:]:
        assert_equal(params, results[0][0])
        assert scale == results[0][1]
    # A state_dict of weft's on the GPU goes on in torch's fused optimizer.
    params = [nn.Parameter(p.cuda()) for p in results[3][0]]
    optimizer = torch.optim.AdamW(params, fused=True)
    optimizer.load_state_dict(results[3][2])
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert optimizer.state[params[0]]["step"].item() == 6


@real_only
def test_scalers_and_optimizers_of_torch_and_weft_go_together():
    run(check_torchs_fused)
