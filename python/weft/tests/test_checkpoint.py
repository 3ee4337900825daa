"""torch.distributed.checkpoint: what some ranks save, others load, however it is sharded."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from models import adam, batch, rows_of, small_model, train
from ranks import run_ranks
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def sharded(seed):
    model = fully_shard(small_model(seed), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model, adam(model)


def whole(state) -> dict:
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in state.items()}


def moments(optimizer) -> list:
    return [
        value.full_tensor() if isinstance(value, DTensor) else value
        for state in optimizer.state.values()
        for _, value in sorted(state.items())
    ]


def save(rank, folder, asynchronous):
    model, optimizer = sharded(seed=0)
    train(model, optimizer, 3, lambda step: rows_of(rank, dist.get_world_size(), batch(step, 8)))
    parameters, states = get_state_dict(model, optimizer)
    state = {"model": parameters, "optimizer": states, "steps": 3}
    if asynchronous:
        dcp.async_save(state, checkpoint_id=folder, process_group=dist.new_group(backend="gloo")).result()
    else:
        dcp.save(state, checkpoint_id=folder)
    return whole(model.state_dict()), moments(optimizer)


def load(rank, folder):
    model, optimizer = sharded(seed=1)
    parameters, states = get_state_dict(model, optimizer)
    state = {"model": parameters, "optimizer": states, "steps": 0}
    dcp.load(state, checkpoint_id=folder)
    assert state["steps"] == 3
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return whole(model.state_dict()), moments(optimizer)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["save", "async_save"])
@pytest.mark.parametrize("savers, loaders", [(2, 2), (4, 2), (2, 3)])
def test_resharding(backend, tmp_path, savers, loaders, asynchronous):
    saved = run_ranks(savers, backend, save, str(tmp_path), asynchronous)[0]
    for loaded in run_ranks(loaders, backend, load, str(tmp_path)):
        torch.testing.assert_close(loaded, saved, rtol=0, atol=0)


def save_tensor(rank, folder):
    mesh = init_device_mesh("cpu", (2, 2))
    tensor = distribute_tensor(torch.arange(70.0).reshape(7, 10), mesh, [Shard(0), Shard(1)])
    dcp.save({"tensor": tensor}, checkpoint_id=folder)


def load_tensor(rank, folder, placement):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensor = distribute_tensor(torch.zeros(7, 10), mesh, [placement])
    dcp.load({"tensor": tensor}, checkpoint_id=folder)
    torch.testing.assert_close(tensor.full_tensor(), torch.arange(70.0).reshape(7, 10), rtol=0, atol=0)


def test_two_dimensions_into_one(backend, tmp_path):
    run_ranks(4, backend, save_tensor, str(tmp_path))
    for placement in (Shard(0), Shard(1), Replicate()):
        run_ranks(2, backend, load_tensor, str(tmp_path), placement)


def gather_whole(rank):
    model, _ = sharded(seed=0)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.testing.assert_close(state, dict(small_model(0).state_dict()))
    else:
        assert not state
    # Rank 0 alone has read it; everyone gets a share.
    other, _ = sharded(seed=1)
    set_model_state_dict(other, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    torch.testing.assert_close(whole(other.state_dict()), dict(small_model(0).state_dict()))


def test_full_state_through_rank_0(backend):
    run_ranks(2, backend, gather_whole)
