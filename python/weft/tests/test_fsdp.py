"""Sharded data parallelism trains as one process would on the whole batch: FSDP1, FSDP2 and both on two-dimensional meshes."""

import pytest
import torch
import torch.distributed as dist
from models import adam, assert_same_parameters, batch, loss_of, rows_of, small_model, train, trained_alone
from ranks import run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

ROWS, STEPS = 8, 4


def my_rows(rank):
    return lambda step: rows_of(rank, dist.get_world_size(), batch(step, ROWS))


def full_parameters(model) -> dict:
    return {name: parameter.full_tensor() for name, parameter in model.named_parameters()}


def sharded(model, **options):
    """FSDP2: each linear layer a group of its own, the root for what is left."""
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


def check_fsdp1(rank, strategy, mesh_shape):
    mesh = init_device_mesh("cpu", mesh_shape)
    model = FullyShardedDataParallel(
        small_model(),
        device_mesh=mesh,
        sharding_strategy=strategy,
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    train(model, adam(model), STEPS, my_rows(rank))
    with FullyShardedDataParallel.summon_full_params(model):
        actual = {name.replace("_fsdp_wrapped_module.", ""): tensor for name, tensor in model.named_parameters()}
        assert_same_parameters(actual, trained_alone(small_model(), STEPS, ROWS))


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
def test_fsdp1(backend, strategy):
    run_ranks(2, backend, check_fsdp1, ShardingStrategy[strategy], (2,))


@pytest.mark.parametrize("strategy", ["HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"])
def test_fsdp1_hybrid(backend, strategy):
    run_ranks(4, backend, check_fsdp1, ShardingStrategy[strategy], (2, 2))


def check_fsdp2(rank, mesh_shape, options):
    names = ("replicate", "shard")[-len(mesh_shape) :]
    model = sharded(small_model(), mesh=init_device_mesh("cpu", mesh_shape, mesh_dim_names=names), **options)
    train(model, adam(model), STEPS, my_rows(rank))
    assert_same_parameters(full_parameters(model), trained_alone(small_model(), STEPS, ROWS))


@pytest.mark.parametrize("reshard", [True, False], ids=["reshard", "keep"])
@pytest.mark.parametrize("mesh", [(2,), (3,), (2, 2)], ids=lambda mesh: "x".join(map(str, mesh)))
def test_fsdp2(backend, mesh, reshard):
    ranks = 1
    for extent in mesh:
        ranks *= extent
    run_ranks(ranks, backend, check_fsdp2_of_any_size if ranks == 3 else check_fsdp2, mesh, {"reshard_after_forward": reshard})


def check_fsdp2_of_any_size(rank, mesh_shape, options):
    """Three ranks: parameters whose rows do not divide, and a batch that does."""
    model = sharded(small_model(), mesh=init_device_mesh("cpu", mesh_shape), **options)
    train(model, adam(model), STEPS, lambda step: rows_of(rank, 3, batch(step, 9)))
    assert_same_parameters(full_parameters(model), trained_alone(small_model(), STEPS, 9))


def check_mixed_precision(rank):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded(small_model(), mesh=init_device_mesh("cpu", (2,)), mp_policy=policy)
    data = batch(0, ROWS)
    losses = []
    optimizer = adam(model)
    for _ in range(30):
        optimizer.zero_grad()
        inputs, targets = rows_of(rank, 2, data)
        loss = nn.functional.mse_loss(model(inputs).float(), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_fsdp2_mixed_precision(backend):
    run_ranks(2, backend, check_mixed_precision)


def check_accumulation(rank):
    model = sharded(small_model(), mesh=init_device_mesh("cpu", (2,)))
    model.set_requires_gradient_sync(False)
    loss_of(model, rows_of(rank, 2, batch(0, ROWS))).backward()
    model.set_requires_gradient_sync(True)
    loss_of(model, rows_of(rank, 2, batch(1, ROWS))).backward()
    alone = small_model()
    (loss_of(alone, batch(0, ROWS)) + loss_of(alone, batch(1, ROWS))).backward()
    for mine, expected in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(mine.grad.full_tensor(), expected.grad)


def test_fsdp2_accumulates_without_sync(backend):
    run_ranks(2, backend, check_accumulation)


def check_gradient_factor(rank):
    model = sharded(small_model(), mesh=init_device_mesh("cpu", (2,)))
    for module in model.modules():
        if hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(4.0)
    loss_of(model, rows_of(rank, 2, batch(0, ROWS))).backward()
    alone = small_model()
    loss_of(alone, batch(0, ROWS)).backward()  # the mean over both ranks: half their sum
    for mine, expected in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(mine.grad.full_tensor(), expected.grad / 2)


def test_fsdp2_gradient_divide_factor(backend):
    if backend == "gloo":
        pytest.skip("gloo has no PREMUL_SUM")
    run_ranks(2, backend, check_gradient_factor)


def check_clipping(rank):
    model = sharded(small_model(), mesh=init_device_mesh("cpu", (2,)))
    loss_of(model, rows_of(rank, 2, batch(0, ROWS))).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).full_tensor()
    alone = small_model()
    loss_of(alone, batch(0, ROWS)).backward()
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.1))
    for mine, expected in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(mine.grad.full_tensor(), expected.grad)


def test_fsdp2_clips_by_the_global_norm(backend):
    run_ranks(2, backend, check_clipping)


def check_allocate_from_group(rank):
    model = sharded(small_model(), mesh=init_device_mesh("cpu", (2,)))
    for module in model.modules():
        if hasattr(module, "set_allocate_memory_from_process_group_for_comm"):
            module.set_allocate_memory_from_process_group_for_comm(True)
    train(model, adam(model), STEPS, my_rows(rank))
    assert_same_parameters(full_parameters(model), trained_alone(small_model(), STEPS, ROWS))


def test_fsdp2_allocates_from_the_process_group(backend):
    if backend == "gloo":
        pytest.skip("gloo allocates no tensors")
    run_ranks(2, backend, check_allocate_from_group)


def check_compiled(rank):
    model = sharded(small_model(), mesh=init_device_mesh("cpu", (2,)))
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled, adam(model), 2, my_rows(rank))
    assert_same_parameters(full_parameters(model), trained_alone(small_model(), 2, ROWS))


def test_fsdp2_compiled(backend):
    run_ranks(2, backend, check_compiled, timeout=120)
