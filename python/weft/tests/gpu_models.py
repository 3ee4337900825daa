"""What tests of wrappers on GPUs train, beside one process that trains it on the CPU."""

import contextlib
import threading

import pytest
import torch
import torch.distributed as dist
import weft
from torch import nn

FEATURES, STEPS, ROWS = 8, 3, 6  # rows: of a batch, divided by 1, 2 and 3 ranks
SMALL = dict(first_bucket_mb=1e-4, bucket_cap_mb=4e-4)  # several buckets
meet = threading.Barrier(2)  # of ranks that are threads
each_number = pytest.mark.parametrize("ranks", [1, 2, 3])


def seeded(net: nn.Module, seed: int) -> nn.Module:
    # By a generator of its own: ranks may be threads.
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return net


def model() -> nn.Module:
    return seeded(nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 4)), 3)


def on_gpu(gpu, net: nn.Module, dtype=torch.float32) -> nn.Module:
    with torch.no_grad():
        for layer in net.modules():
            for name, parameter in list(layer._parameters.items()):
                setattr(layer, name, nn.Parameter(gpu.put(parameter.to(dtype))))
    return net


def batch(step: int) -> torch.Tensor:
    return torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(100 + step))


def loss_of(net: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return net(rows).pow(2).mean()


def share(step: int, rank: int) -> torch.Tensor:
    return batch(step).chunk(dist.get_world_size())[rank]


# With AdamW's usual eps a gradient that rounding leaves of a sum that vanishes counts as any other.
OPTIONS = {"SGD": dict(lr=0.1, momentum=0.9), "AdamW": dict(lr=0.01, eps=1e-4)}


def optimizer_of(net: nn.Module, kind: str) -> torch.optim.Optimizer:
    return getattr(torch.optim, kind)(net.parameters(), **OPTIONS[kind])


def alone(kind="AdamW", steps=STEPS, passes=1, first=0, net=None, dtype=torch.float32, max_norm=None) -> nn.Module:
    """One process trained on the whole of each batch, on the CPU."""
    net = (net or model()).to(dtype)
    optimizer = optimizer_of(net, kind)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        for one in range(passes):
            (loss_of(net, batch(step * passes + one).to(dtype)) / passes).backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(net.parameters(), max_norm)
        optimizer.step()
    return net


def assert_same(gpu, net: nn.Module, wanted: nn.Module, rtol=1e-4, atol=1e-5) -> None:
    for (name, parameter), expected in zip(net.named_parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(
            gpu.get(parameter), expected.detach(), rtol=rtol, atol=atol, msg=lambda text: f"{name}: {text}"
        )


def update(net: nn.Module) -> None:
    """SGD, of operators that the fake has."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(parameter.grad, alpha=-0.1)
            parameter.grad.zero_()


def plain(steps: int, passes: int = 1) -> nn.Module:
    net = model()
    for step in range(steps):
        for one in range(passes):
            (loss_of(net, batch(step * passes + one)) / passes).backward()
        update(net)
    return net


class Branches(nn.Module):
    """`chosen` has no gradient on ranks that leave it out."""

    def __init__(self):
        super().__init__()
        self.first, self.chosen = nn.Linear(FEATURES, 4), nn.Linear(4, 4)
        seeded(self, 5)

    def forward(self, rows, chosen):
        rows = self.first(rows)
        return self.chosen(rows) if chosen else rows


STAGES = {
    "stage 1": dict(stage=1, **SMALL),
    "stage 1, timed": dict(stage=1),
    "stage 2": dict(stage=2, **SMALL),
    "stage 2, by unit": dict(stage=2, wait_by_unit=True, **SMALL),
    "stage 3": dict(stage=3),
    "stage 3, kept": dict(stage=3, prefetch=2, reshard_after_forward=False),
    "stage 3, poisoned": dict(stage=3, poison=True),
}


def sharded(gpu, kind, optimizer="AdamW", dtype=torch.float32, **more):
    net = on_gpu(gpu, model(), dtype)
    if kind == "stage 3, poisoned":
        for layer in (net[0], net[2]):
            weft.fully_shard(layer)
    return net, weft.ZeroOptimizer(net, getattr(weft.optim, optimizer), **STAGES[kind], **OPTIONS[optimizer], **more)


def trained(gpu, net, optimizer, steps=STEPS, passes=1, first=0, dtype=torch.float32):
    for step in range(first, first + steps):
        for one in range(passes):
            with contextlib.nullcontext() if one + 1 == passes else optimizer.no_sync():
                rows = gpu.put(share(step * passes + one, gpu.rank).to(dtype))
                (loss_of(net, rows) / passes).backward()
        optimizer.step()
