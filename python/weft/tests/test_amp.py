"""weft.amp.GradScaler beside torch.amp.GradScaler, and weft.clip_grad_norm_ beside torch's."""

import copy

import pytest
import torch
import torch.distributed as dist
import weft
from ranks import run_ranks
from torch import nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

OPTIONS = dict(init_scale=2.0**10, growth_interval=3)


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 1))


def run(network, optimizers, scaler, clip, steps=12):
    """Steps of which some overflow; the scale after each."""
    generator = torch.Generator().manual_seed(5)
    scales = []
    for step in range(steps):
        data = torch.randn(8, 9, generator=generator)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = network(data).square().mean()
        scaler.scale(loss).backward()
        if step in (4, 9):
            network[0].weight.grad[3, 2] = float("inf") if step == 4 else float("nan")
        for optimizer in optimizers:
            if clip is not None:
                scaler.unscale_(optimizer)
                clip([p for group in optimizer.param_groups for p in group["params"]], 0.5)
            scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def reference(clip):
    network = model()
    halves = [torch.optim.AdamW(network[0].parameters(), fused=True), torch.optim.AdamW(network[2].parameters(), fused=True)]
    scales = run(network, halves, torch.amp.GradScaler("cpu", **OPTIONS), clip)
    return network, scales


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("whose", ["weft's", "torch's"])
def test_follows_torchs_scaler(clips, whose):
    """Also where one of two optimizers overflows: that one alone skips its step, and the scale falls."""
    expected, scales = reference(nn.utils.clip_grad_norm_ if clips else None)
    network = model()
    kind = weft.optim.AdamW if whose == "weft's" else torch.optim.AdamW
    halves = [kind(network[0].parameters()), kind(network[2].parameters())]
    assert run(network, halves, weft.amp.GradScaler("cpu", **OPTIONS), weft.clip_grad_norm_ if clips else None) == scales
    assert set(scales) == {2.0**10, 2.0**11}
    for mine, theirs in zip(network.parameters(), expected.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_torchs_scaler_drives_wefts_optimizers():
    expected, scales = reference(None)
    network = model()
    halves = [weft.optim.AdamW(network[0].parameters()), weft.optim.AdamW(network[2].parameters())]
    assert run(network, halves, torch.amp.GradScaler("cpu", **OPTIONS), None) == scales
    for mine, theirs in zip(network.parameters(), expected.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_one_pass_is_the_separate_ones():
    """max_norm and zero_gradients of the optimizer, instead of unscale_(), clip_grad_norm_() and zero_grad()."""
    networks = [model(), model()]
    optimizer = torch.optim.AdamW(networks[0].parameters())
    run(networks[0], [optimizer], torch.amp.GradScaler("cpu", **OPTIONS), nn.utils.clip_grad_norm_)
    fused = weft.optim.AdamW(networks[1].parameters(), max_norm=0.5, zero_gradients=True)
    run(networks[1], [fused], weft.amp.GradScaler(**OPTIONS), None)
    for mine, theirs in zip(networks[1].parameters(), networks[0].parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    assert all(not p.grad.any() for p in networks[1].parameters())
    assert fused.state[networks[1][0].weight]["step"] == 10, "skipped steps do not count"


def test_state_and_misuse():
    scaler = weft.amp.GradScaler(**OPTIONS, hysteresis=2)
    torchs = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.load_state_dict(torchs.state_dict())
    assert scaler.get_scale() == 8 and scaler.get_growth_interval() == 2000
    torchs.load_state_dict(scaler.state_dict())
    assert copy.deepcopy(scaler).state_dict() == scaler.state_dict()
    scaler.set_growth_factor(4.0)
    assert scaler.get_growth_factor() == 4 and scaler.get_scale() == 8

    parameter = nn.Parameter(torch.ones(3))
    optimizer = weft.optim.SGD([parameter])
    with pytest.raises(RuntimeError, match=r"no step\(\)"):
        scaler.update()
    parameter.grad = torch.full((3,), 8.0)
    scaler.unscale_(optimizer)
    assert torch.equal(parameter.grad, torch.ones(3))
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    scaler.update(16.0)
    assert scaler.get_scale() == 16
    with pytest.raises(RuntimeError, match="closures"):
        scaler.step(optimizer, lambda: None)

    off = weft.amp.GradScaler(enabled=False)
    assert off.get_scale() == 1 and off.state_dict() == {}
    parameter.grad = torch.full((3,), float("inf"))
    assert off.scale(parameter) is parameter
    off.step(optimizer)
    assert parameter.isinf().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("norm_type", [2.0, float("inf"), 3.0])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(dtype, norm_type, max_norm):
    torch.manual_seed(2)
    lists = [[nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in ((), (13,), (700, 901), (4, 6))] for _ in range(2)]
    for mine, theirs in zip(*lists):
        theirs.grad = torch.randn_like(mine)
        mine.grad = theirs.grad.clone()
    lists[0][3].grad = lists[0][3].grad.t().contiguous().t()
    for each in lists:
        each.append(nn.Parameter(torch.zeros(2)))  # without a gradient
    norm = weft.clip_grad_norm_(iter(lists[0]), max_norm, norm_type)
    expected = nn.utils.clip_grad_norm_(lists[1], max_norm, norm_type)
    loose = 2e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(norm.double(), expected.double(), rtol=loose, atol=0)
    for mine, theirs in zip(*lists):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=loose, atol=loose * 1e-2)


def test_clip_grad_norm_of_what_is_not_finite():
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.tensor([1.0, float("inf"), 2.0])
    assert weft.clip_grad_norm_(parameter, 1.0).isinf()
    assert parameter.grad[2] == 2
    with pytest.raises(RuntimeError, match="not finite"):
        weft.clip_grad_norm_(parameter, 1.0, error_if_nonfinite=True)
    assert weft.clip_grad_norm_([], 1.0) == 0


def check_dtensors(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(1)
    whole = [torch.randn(7, 5), torch.randn(3), torch.randn(4, 6)]
    layouts = [[Replicate(), Shard(0)], [Replicate(), Replicate()], [Shard(1), Shard(0)]]
    params = [nn.Parameter(distribute_tensor(torch.ones_like(one), mesh, layout)) for one, layout in zip(whole, layouts)]
    alone = [nn.Parameter(torch.ones_like(one)) for one in whole]
    ours = weft.optim.AdamW(params, lr=0.1, max_norm=1.0)
    theirs = torch.optim.AdamW(alone, lr=0.1)
    scaler = weft.amp.GradScaler(init_scale=4.0)
    for step in range(3):
        for p, q, one, layout in zip(params, alone, whole, layouts):
            q.grad = one * (step + 1)
            p.grad = distribute_tensor(4 * one * (step + 1), mesh, layout)
        norm = nn.utils.clip_grad_norm_(alone, 1.0)
        theirs.step()
        scaler.step(ours)
        scaler.update()
        torch.testing.assert_close(ours.grad_norm, norm)
    for p, q in zip(params, alone):
        torch.testing.assert_close(p.full_tensor(), q, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(ours.state[p]["exp_avg"].full_tensor(), theirs.state[q]["exp_avg"], rtol=1e-5, atol=1e-6)

    # What is seen in one shard stops all of them.
    before = [p.full_tensor().clone() for p in params]
    for p, one, layout in zip(params, whole, layouts):
        p.grad = distribute_tensor(one, mesh, layout)
    if rank in (1, 3):  # replicas of it
        params[0].grad.to_local()[0, 0] = float("nan")
    scaler.step(ours)
    scaler.update()
    assert scaler.get_scale() == 2
    assert all(torch.equal(p.full_tensor(), kept) for p, kept in zip(params, before))

    for p, q, one, layout in zip(params, alone, whole, layouts):
        p.grad, q.grad = distribute_tensor(one, mesh, layout), one.clone()
    torch.testing.assert_close(weft.clip_grad_norm_(params, 0.3), nn.utils.clip_grad_norm_(alone, 0.3))
    for p, q in zip(params, alone):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad)


def test_dtensors(backend):
    run_ranks(4, backend, check_dtensors)
