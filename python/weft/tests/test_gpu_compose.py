"""weft.compose() on GPUs."""

import contextlib

import pytest
import torch
import weft
from gpu_models import OPTIONS, STEPS, alone, loss_of, model, on_gpu, share
from gpu_ranks import fake_only, needs_gpu, run_gpu_ranks, weft_only

pytestmark = [needs_gpu, weft_only]


def check_composed(gpu, strategy, precision, accumulate, **more):
    kind = "AdamW" if precision == "fp32" else "SGD"
    net, optimizer, scheduler = weft.compose(
        on_gpu(gpu, model()),
        getattr(weft.optim, kind),
        lambda one: torch.optim.lr_scheduler.StepLR(one, 100),
        strategy=strategy,
        precision=precision,
        clip_grad=0.5,
        accumulate=accumulate,
        **OPTIONS[kind],
        **more,
    )
    for number in range(STEPS * accumulate):
        optimizer.backward(loss_of(net, gpu.put(share(number, gpu.rank))))
        optimizer.step()
        scheduler.step()
    wanted = alone(kind, passes=accumulate, max_norm=0.5)
    bare = getattr(net, "module", net)
    whole = optimizer.inner.whole_parameters() if hasattr(optimizer.inner, "whole_parameters") else contextlib.nullcontext()
    close = dict(rtol=1e-4, atol=1e-5) if precision == "fp32" else dict(rtol=0.03, atol=0.03)
    with whole:
        for parameter, expected in zip(bare.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(gpu.get(parameter).float(), expected.detach(), **close)


STRATEGIES = ["ddp", "zero1", "zero2", "zero3"]
PRECISIONS = [("fp32", 1), ("fp32", 2), ("bf16", 2), ("fp16", 1)]


@fake_only
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("precision", "accumulate"), PRECISIONS)
def test_composed_training(strategy, precision, accumulate):
    run_gpu_ranks(2, check_composed, strategy, precision, accumulate)


def check_recomputed(gpu, strategy):
    check_composed(gpu, strategy, "fp32", 2, checkpoint_activations=True)


@fake_only
@pytest.mark.parametrize("strategy", ["ddp", "zero3"])
def test_composed_recomputation(strategy):
    run_gpu_ranks(2, check_recomputed, strategy)


def check_auto(gpu):
    check_composed(gpu, "auto", "fp32", 1, memory_budget="1G")


@fake_only
def test_a_strategy_is_chosen():
    run_gpu_ranks(2, check_auto)
