"""Sharded data parallelism trains as one process would on the whole batch: FSDP1, FSDP2 and both on two-dimensional meshes."""

import math

import pytest
import torch
import torch.distributed as dist
from models import adam, assert_same_parameters, batch, loss_of, rows_of, small_model, train, trained_alone
from ranks import run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

ROWS, STEPS = 12, 4  # rows of a batch: as many for each of two, three or four ranks


def mine(step):
    """This rank's share of a step's batch."""
    return rows_of(dist.get_rank(), dist.get_world_size(), batch(step, ROWS))


def fsdp1(strategy, mesh):
    return FullyShardedDataParallel(
        small_model(),
        device_mesh=mesh,
        sharding_strategy=strategy,
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def fsdp2(mesh=None, **options):
    """Each linear layer a group of its own, the root for what is left."""
    model = small_model()
    mesh = mesh or init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def groups_of(model):
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def assert_trained_like_one_process(model, steps=STEPS, through=None):
    """Trains the FSDP2 model, called as `through` where that is not itself."""
    train(through or model, adam(model), steps, mine)
    parameters = {name: parameter.full_tensor() for name, parameter in model.named_parameters()}
    assert_same_parameters(parameters, trained_alone(small_model(), steps, ROWS))


def assert_gradients(model, expected):
    for actual, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(actual.grad.full_tensor(), wanted.grad)


def alone(steps=1):
    """The model with the gradients of whole batches."""
    model = small_model()
    sum(loss_of(model, batch(step, ROWS)) for step in range(steps)).backward()
    return model


def check_fsdp1(rank, strategy, mesh_shape):
    model = fsdp1(strategy, init_device_mesh("cpu", mesh_shape))
    train(model, adam(model), STEPS, mine)
    with FullyShardedDataParallel.summon_full_params(model):
        actual = {name.replace("_fsdp_wrapped_module.", ""): tensor for name, tensor in model.named_parameters()}
        assert_same_parameters(actual, trained_alone(small_model(), STEPS, ROWS))


@pytest.mark.parametrize(
    "strategy, mesh",
    [
        ("FULL_SHARD", (2,)),
        ("SHARD_GRAD_OP", (2,)),
        ("NO_SHARD", (2,)),
        ("HYBRID_SHARD", (2, 2)),
        ("_HYBRID_SHARD_ZERO2", (2, 2)),
    ],
    ids=lambda value: value if isinstance(value, str) else "x".join(map(str, value)),
)
def test_fsdp1(backend, strategy, mesh):
    run_ranks(math.prod(mesh), backend, check_fsdp1, ShardingStrategy[strategy], mesh)


def check_fsdp2(rank, mesh_shape, reshard):
    names = ("replicate", "shard")[-len(mesh_shape) :]
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
    assert_trained_like_one_process(fsdp2(mesh, reshard_after_forward=reshard))


@pytest.mark.parametrize("reshard", [True, False], ids=["reshard", "keep"])
@pytest.mark.parametrize("mesh", [(2,), (3,), (2, 2)], ids=lambda mesh: "x".join(map(str, mesh)))
def test_fsdp2(backend, mesh, reshard):
    run_ranks(math.prod(mesh), backend, check_fsdp2, mesh, reshard)


def check_mixed_precision(rank):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    model = fsdp2(mp_policy=policy)
    losses = train(model, adam(model), 30, lambda step: mine(0))
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def check_accumulation(rank):
    model = fsdp2()
    model.set_requires_gradient_sync(False)
    loss_of(model, mine(0)).backward()
    model.set_requires_gradient_sync(True)
    loss_of(model, mine(1)).backward()
    assert_gradients(model, alone(steps=2))


def check_gradient_factor(rank):
    model = fsdp2()
    for group in groups_of(model):
        group.set_gradient_divide_factor(4.0)
    loss_of(model, mine(0)).backward()
    expected = alone()  # the mean over both ranks: half their sum
    for parameter in expected.parameters():
        parameter.grad /= 2
    assert_gradients(model, expected)


def check_clipping(rank):
    model, expected = fsdp2(), alone()
    loss_of(model, mine(0)).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).full_tensor()
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(expected.parameters(), 0.1))
    assert_gradients(model, expected)


def check_allocation_from_the_process_group(rank):
    model = fsdp2()
    for group in groups_of(model):
        group.set_allocate_memory_from_process_group_for_comm(True)
    assert_trained_like_one_process(model)


def check_compiled(rank):
    model = fsdp2()
    assert_trained_like_one_process(model, steps=2, through=torch.compile(model, backend="aot_eager"))


GLOO_LACKS = {check_gradient_factor: "PREMUL_SUM", check_allocation_from_the_process_group: "allocating tensors"}


@pytest.mark.parametrize(
    "check",
    [
        check_mixed_precision,
        check_accumulation,
        check_gradient_factor,
        check_clipping,
        check_allocation_from_the_process_group,
        check_compiled,
    ],
    ids=lambda check: check.__name__.removeprefix("check_"),
)
def test_fsdp2_with(backend, check):
    if backend == "gloo" and check in GLOO_LACKS:
        pytest.skip(f"gloo lacks {GLOO_LACKS[check]}")
    run_ranks(2, backend, check, timeout=120)
