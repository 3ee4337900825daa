"""Small models and the training of them in one process, which the parallel runs are compared with."""

import copy

import torch
from torch import nn

FEATURES = 8


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))


def batch(step: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randn(rows, FEATURES, generator=generator), torch.randn(rows, 4, generator=generator)


def rows_of(rank: int, ranks: int, tensors: tuple) -> tuple:
    """This rank's share of a batch."""
    return tuple(tensor.chunk(ranks)[rank] for tensor in tensors)


def loss_of(model: nn.Module, data: tuple) -> torch.Tensor:
    inputs, targets = data
    return nn.functional.mse_loss(model(inputs), targets)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer, steps: int, data_of) -> list[float]:
    """`steps` steps on data_of(step); the losses."""
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, data_of(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained_alone(model: nn.Module, steps: int, rows: int) -> nn.Module:
    """A copy of the model, trained in this process on the whole batches."""
    alone = copy.deepcopy(model)
    train(alone, adam(alone), steps, lambda step: batch(step, rows))
    return alone


def assert_same_parameters(actual: dict, expected: nn.Module) -> None:
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(actual[name], parameter.detach(), rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")


class FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("of the user's")
