"""Stock torch training on a GPU against the same on the CPU. torch's own wrappers ask for a real one."""

import pytest
import torch
import torch.distributed as dist
from gpu_ranks import ON_A_GPU, run_gpu_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.skipif(not ON_A_GPU, reason="needs a GPU, and WEFT_TEST_GPU=1")


def model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + rank))


def alone(ranks: int, steps: int = 3) -> list:
    """Parameters after some steps on all ranks' batches."""
    net = model()
    for step in range(steps):
        net.zero_grad()
        for rank in range(ranks):
            (net(batch(rank, step)).pow(2).mean() / ranks).backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(parameter.grad, alpha=-0.1)
    return [parameter.detach() for parameter in net.parameters()]


def wrapped(kind: str, net: torch.nn.Module, gpu) -> torch.nn.Module:
    if kind == "DDP":
        return DistributedDataParallel(net)
    if kind == "DDP, views":
        return DistributedDataParallel(net, gradient_as_bucket_view=True, bucket_cap_mb=0.0005)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for layer in net:
        if kind == "FSDP2, layers" and list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    if kind == "FSDP2, memory of the group":
        net.set_allocate_memory_from_process_group_for_comm(True)
    return net


def check_training(gpu, kind):
    net = model()
    with torch.no_grad():
        for layer in net:
            for name, parameter in list(layer.named_parameters()):
                setattr(layer, name, torch.nn.Parameter(gpu.put(parameter)))
    net = wrapped(kind, net, gpu)
    for step in range(3):
        net.zero_grad()
        net(gpu.put(batch(gpu.rank, step))).pow(2).mean().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                mine = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                grad = parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad
                mine.add_(grad, alpha=-0.1)
    for parameter, wanted in zip(net.parameters(), alone(dist.get_world_size())):
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        torch.testing.assert_close(gpu.get(whole), wanted)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["DDP", "DDP, views", "FSDP2", "FSDP2, layers", "FSDP2, memory of the group"])
def test_training_is_that_of_one_process(kind, ranks):
    run_gpu_ranks(ranks, check_training, kind)


def check_graph(gpu):
    tensor = gpu.put(torch.ones(1000))
    dist.all_reduce(tensor)  # connects
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.mul_(0.5)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        dist.all_reduce(tensor)
    ranks = dist.get_world_size()
    tensor.fill_(1)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    assert gpu.get(tensor).equal(torch.full((1000,), (0.5 * ranks * ranks) ** 2))


@pytest.mark.parametrize("ranks", [1, 2])
def test_collectives_in_a_cuda_graph(ranks):
    run_gpu_ranks(ranks, check_graph)
