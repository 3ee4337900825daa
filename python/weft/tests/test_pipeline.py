"""Pipeline schedules compute the loss and the gradients of the whole model."""

import pytest
import torch
from models import batch, small_model
from ranks import run_ranks
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
)

ROWS, MICROBATCHES = 8, 4
CUTS = {1: [0, 5], 2: [0, 2, 5], 3: [0, 2, 4, 5], 4: [0, 1, 2, 4, 5]}  # layers of the model where stages begin and end


def stage_of(index: int, stages: int) -> PipelineStage:
    begin, end = CUTS[stages][index : index + 2]
    return PipelineStage(small_model()[begin:end], index, stages, torch.device("cpu"))


def check_gradients(stage: PipelineStage, stages: int, alone: nn.Module) -> None:
    begin, end = CUTS[stages][stage.stage_index : stage.stage_index + 2]
    for mine, expected in zip(stage.submod.parameters(), alone[begin:end].parameters()):
        torch.testing.assert_close(mine.grad, expected.grad, rtol=1e-4, atol=1e-5)


def check_schedule(rank, schedule_class, ranks, stages):
    mine = [stage_of(index, stages) for index in range(rank, stages, ranks)]
    one_each = stages == ranks
    schedule = schedule_class(mine[0] if one_each else mine, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    inputs, targets = batch(0, ROWS)
    losses = []
    outputs = schedule.step(
        *((inputs,) if rank == 0 else ()),
        **({"target": targets, "losses": losses} if rank == (stages - 1) % ranks else {}),
    )

    alone = small_model()
    loss = nn.functional.mse_loss(alone(inputs), targets)
    loss.backward()
    if rank == (stages - 1) % ranks:
        torch.testing.assert_close(outputs, alone(inputs))
        torch.testing.assert_close(torch.stack(losses).mean(), loss)
    for stage in mine:
        check_gradients(stage, stages, alone)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B], ids=["GPipe", "1F1B"])
def test_one_stage_a_rank(backend, schedule, ranks):
    run_ranks(ranks, backend, check_schedule, schedule, ranks, ranks)


@pytest.mark.parametrize(
    "schedule",
    [ScheduleInterleaved1F1B, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble],
    ids=["Interleaved1F1B", "LoopedBFS", "ZeroBubble"],
)
def test_two_stages_a_rank(backend, schedule):
    run_ranks(2, backend, check_schedule, schedule, 2, 4)
