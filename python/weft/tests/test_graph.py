"""weft.graph: plans of FX graphs, in which order they are put, and that results stay as they are."""

import functools
import json
import operator
import time

import pytest
import torch
import torch._inductor.config
import torch._inductor.ir
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import weft.graph
from ranks import run_ranks
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore
from weft.graph import cluster, collectives, inductor, rewrite, schedule, step_graph

# Slow links beside fast computing: there is much to hide, and latency to save.
CLUSTER = {"name": "test", "ranks_per_host": 1, "flops_per_s": 1e10, "memory_bytes_per_s": 1e10,
    "within": {"bytes_per_s": 1e9, "step_s": 1e-6}, "between": {"bytes_per_s": 1e9, "step_s": 1e-6}}  # fmt: skip
LATENT = CLUSTER | {"between": {"bytes_per_s": 1e9, "step_s": 1e-4}}
C10D = torch.ops._c10d_functional


@pytest.fixture
def group():
    """Eight ranks, seven of which do not exist."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield dist.group.WORLD
    dist.destroy_process_group()


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        return funcol.all_gather_tensor(shard, 0, dist.group.WORLD)

    @staticmethod
    def backward(ctx, gradient):
        return funcol.reduce_scatter_tensor(gradient, "avg", 0, dist.group.WORLD)


class Sharded(nn.Module):
    """Layers whose weights are gathered for use, as FSDP2 does; dropout, a buffer written in place, and a mean over ranks."""

    def __init__(self, layers=3, width=32):
        super().__init__()
        ranks = dist.get_world_size()
        self.up = nn.ParameterList(nn.Parameter(torch.randn(4 * width // ranks, width) / 8) for _ in range(layers))
        self.down = nn.ParameterList(nn.Parameter(torch.randn(width // ranks, 4 * width) / 8) for _ in range(layers))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps.add_(1)
        for up, down in zip(self.up, self.down):
            hidden = nn.functional.gelu(nn.functional.linear(x, Gather.apply(up)))
            x = x + nn.functional.dropout(nn.functional.linear(hidden, Gather.apply(down)), 0.1)
        loss = x.square().mean() * self.steps
        return loss + 0 * funcol.all_reduce(loss.detach(), "sum", dist.group.WORLD)


def compiled(model, change, seen=None):
    """Through AOTAutograd, graphs changed by `change` and run as they are."""

    def compiler(graph, _):
        change(graph.graph)
        graph.recompile()
        if seen is not None:
            seen.append(graph)
        return torch._functorch.aot_autograd.make_boxed_func(graph.forward)

    torch._dynamo.reset()
    return torch.compile(model, backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler), fullgraph=True)


def planned_pass(**options):
    settings = weft.graph.options(**{"cluster": CLUSTER, "memory": "2x"} | options)
    made = settings["post_grad_custom_post_pass"]
    made.keep_order = False  # only Inductor knows these nodes
    return made


def names_of(graph):
    return [node.name for node in graph.nodes]


def trained(change):
    torch.manual_seed(1)
    model = Sharded()
    step = compiled(model, change)
    torch.manual_seed(2 + dist.get_rank())
    losses = []
    for _ in range(2):
        loss = step(torch.randn(8, 32))
        loss.backward()
        losses.append(loss.detach())
    return [*losses, model.steps, *(p.grad for p in model.parameters())]


def check_same_bits(rank):
    planned = planned_pass(cluster=LATENT)
    for one, other in zip(trained(lambda graph: None), trained(planned)):
        assert torch.equal(one, other)
    forward, backward = planned.reports
    assert forward.launches < forward.collectives and backward.launches < backward.collectives
    return str(planned.reports)


def test_planned_graphs_compute_the_same_bits_and_ranks_agree():
    one, other = run_ranks(2, "weft", check_same_bits)
    assert one == other


def check_unequal_speeds(rank):
    # Ranks that measured other speeds would plan other orders, and hang or mix up their data.
    planned = planned_pass(cluster=[CLUSTER, LATENT][rank])
    planned.uuid = lambda: "the same options"
    sent = []

    def note(graph):
        planned(graph)
        sent.append([str(node.target) for node in graph.nodes if collectives.of(node)])

    trained(note)
    return sent


def test_the_first_ranks_plan_is_everyones():
    one, other = run_ranks(2, "weft", check_unequal_speeds)
    assert one == other


def test_planning_hides_what_the_programs_order_exposes(group):
    seen = []
    planned = planned_pass()
    compiled(Sharded(layers=3, width=256), planned, seen)(torch.randn(512, 256)).backward()
    for report, module in zip(planned.reports, seen):
        assert report.exposed_s < 0.6 * report.exposed_before_s
        assert report.bound_s <= report.step_s < report.step_before_s
        assert report.peak_bytes <= report.memory


@pytest.mark.parametrize("bytes_per_s", [5e8, 1e9, 2e9, 4e9, 8e9])
def test_the_order_takes_the_time_that_was_planned(group, bytes_per_s):
    seen = []
    planned = planned_pass(cluster=CLUSTER | {"between": {"bytes_per_s": bytes_per_s, "step_s": 1e-6}})
    compiled(Sharded(layers=3, width=256), planned, seen)(torch.randn(512, 256)).backward()
    for report, module in zip(planned.reports, seen):
        replayed = schedule.in_program_order(module.graph, planned.cluster, step_graph.kept_by_caller(module.graph))
        assert replayed["makespan_s"] == pytest.approx(report.step_s, rel=1e-6)


def test_no_collective_is_merged_with_another_kind_or_group(group):
    def step(x):
        first = funcol.all_reduce(x, "sum", dist.group.WORLD)
        second = funcol.all_reduce(x + 1, "avg", dist.group.WORLD)
        third = funcol.all_reduce(x + 2, "sum", dist.group.WORLD)
        return first + second + third

    seen = []
    planned = planned_pass()
    compiled(step, planned, seen)(torch.randn(64))
    calls = [collectives.of(node) for node in seen[0].graph.nodes]
    assert [call.kind for call in calls if call] == ["all_reduce", "all_reduce"]
    merged = [node for node in seen[0].graph.nodes if node.target is C10D.all_reduce_coalesced.default]
    assert len(merged) == 1 and len(merged[0].args[0]) == 2 and merged[0].args[1] == "sum"


def test_without_buckets_every_collective_goes_alone(group):
    planned = planned_pass(cluster=LATENT, bucket=False)
    seen = []
    compiled(Sharded(2), planned, seen)(torch.randn(8, 32)).backward()
    assert not [node for one in seen for node in one.graph.nodes if node.target in collectives.COALESCED.values()]
    assert planned.reports[0].launches == planned.reports[0].collectives


def test_what_is_written_in_place_waits_for_readers(group):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    old = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
    write = graph.call_function(torch.ops.aten.copy_.default, (x, old))
    new = graph.call_function(torch.ops.aten.mul.Tensor, (write, 3))
    graph.output((old, new))
    value = torch.empty(4)
    for node in (x, write):
        node.meta["val"] = value
    for node in (old, new):
        node.meta["val"] = torch.empty(4)
    made = json.loads(step_graph.build(graph).text)
    ops = {op["name"].split("#")[0]: op for op in made["ops"]}
    first, copied, last = ops.values()
    assert first["name"] in copied["after"]
    written = next(t for t in made["tensors"] if t["name"] == copied["writes"][0])
    assert written["alias_of"] == first["reads"][0]
    assert last["reads"] == copied["writes"]


def test_random_numbers_are_drawn_in_the_programs_order(group):
    seen = []
    compiled(Sharded(), lambda graph: None, seen)(torch.randn(8, 32))
    made = json.loads(step_graph.build(seen[0].graph).text)
    dropouts = [op for op in made["ops"] if op["name"].startswith(("native_dropout", "rand", "bernoulli"))]
    assert len(dropouts) == 3
    for before, after in zip(dropouts, dropouts[1:]):
        assert before["name"] in after["after"]


def test_a_capacity_that_nothing_fits_is_one_error(group):
    with pytest.raises(Exception, match="graph forward: no order of its operators takes 1000 bytes"):
        compiled(Sharded(), planned_pass(memory=1000))(torch.randn(8, 32))


@pytest.mark.parametrize(
    "wrong", [{"memory": "lots"}, {"memory": -1}, {"cluster": "abacus"}, {"cluster": {"name": "x", "speed": 1}}]
)
def test_wrong_options_are_refused_at_once(wrong):
    with pytest.raises((ValueError, RuntimeError), match=next(iter(wrong))):
        weft.graph.options(**{"cluster": CLUSTER} | wrong)


def test_enable_ends():
    before = torch._inductor.config.post_grad_custom_post_pass
    with weft.graph.enable(cluster=CLUSTER):
        assert isinstance(torch._inductor.config.post_grad_custom_post_pass, inductor.SchedulePass)
    assert torch._inductor.config.post_grad_custom_post_pass is before


class Ordered(Exception):
    pass


def test_inductor_keeps_the_planned_order(group):
    """Through Inductor up to its order of kernels: collectives start in front of the same products as planned."""
    orders = {}
    ir = torch._inductor.ir
    kernels = {ir._WaitKernel: "wait", ir._CollectiveKernel: "send", ir._AllReduce_Kernel: "send", ir.ExternKernelOut: "product"}

    def end(nodes):
        kinds = []
        for scheduled in nodes:
            for one in scheduled.get_nodes():
                kinds += [kernels[type(one.node)]] if type(one.node) in kernels else []
        orders["inductor"] = kinds
        raise Ordered

    def note(original, graph):
        original(graph)
        kinds = []
        for node in graph.nodes:
            packet = node.target
            if packet is torch._inductor.fx_passes.control_dependencies.control_deps:
                inner = getattr(graph.owning_module, node.args[1].target).graph
                packet = next(one.target for one in inner.nodes if one.op == "call_function")
            if packet is C10D.wait_tensor.default:
                kinds.append("wait")
            elif getattr(packet, "namespace", "") == "_c10d_functional":
                kinds.append("send")
            elif packet is torch.ops.aten.mm.default:
                kinds.append("product")
        orders["planned"] = kinds

    settings = weft.graph.options(cluster=CLUSTER, memory="1.1x")
    planned = settings["post_grad_custom_post_pass"]
    settings["post_grad_custom_post_pass"] = functools.partial(note, planned)
    settings |= {
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": [end],
    }
    torch._dynamo.reset()
    with pytest.raises(Exception, match="Ordered"), torch.no_grad():
        torch.compile(Sharded(layers=4, width=256), options=settings)(torch.randn(512, 256))
    assert orders["inductor"] == orders["planned"]
    text = "".join(kind[0] for kind in orders["planned"])
    assert "sw" in text and "ps" in text  # not all in front
    assert planned.reports[0].launches > 1


def check_inductor(rank):
    settings = torch._inductor.config
    settings.compile_threads, settings.cpp_cache_precompile_headers, settings.cpp.simdlen = 1, False, 0
    settings.force_disable_caches = True  # what an earlier run compiled does not come through the pass
    weights = [torch.randn(4, 8) for _ in range(3)]
    x = torch.randn(8, 8)

    def step(x, weights):
        for weight in weights:
            x = torch.mm(x, funcol.all_gather_tensor(weight, 0, dist.group.WORLD))
        return funcol.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD)

    plain = torch.compile(step, fullgraph=True)(x, weights) + 0
    torch._dynamo.reset()
    with weft.graph.enable(cluster=LATENT, memory="4x") as enabled:
        planned = torch.compile(step, fullgraph=True)(x, weights) + 0
    assert torch.equal(plain, planned)
    assert enabled.reports[0].launches < enabled.reports[0].collectives == 4


def test_inductors_code_computes_the_same_bits():
    run_ranks(2, "weft", check_inductor, timeout=900)  # against hanging: a compiler on busy cores takes minutes


def test_memory_plan_of_a_graph():
    def body(x, weight):
        wide = torch.mm(x, weight)
        narrow = wide.sum(1)
        other = torch.mm(x, weight)
        return narrow + other.sum(1)

    graph = make_fx(body, tracing_mode="fake")(torch.randn(16, 8), torch.randn(8, 1024))
    report = weft.memory_plan(graph)
    wide, inputs, narrow = 16 * 1024 * 4, (16 * 8 + 8 * 1024) * 4, 16 * 4
    # Both wide ones need not live at once.
    assert report.peak_bytes == inputs + wide + 2 * narrow
    assert report.program_peak_bytes >= report.peak_bytes >= report.bound_bytes
    assert report.resident_bytes == inputs and report.peak_node.target is torch.ops.aten.sum.dim_IntList
    assert sorted(node.name for node in report.order) == sorted(
        node.name for node in graph.graph.nodes if node.op == "call_function"
    )
    # No two pieces that live at once share a byte, and all lie in the arena.
    for place, one in enumerate(report.tensors):
        assert 0 <= one.offset and one.offset + one.bytes <= report.arena_bytes
        for other in report.tensors[place + 1 :]:
            together = one.begin < other.end and other.begin < one.end
            apart = one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
            assert apart or not together
    assert "MiB" in str(report)


def test_memory_plan_does_not_count_views():
    def body(x):
        return x.view(64).view(8, 8).t().sum(0), x[0]

    report = weft.memory_plan(make_fx(body, tracing_mode="fake")(torch.randn(8, 8)))
    assert report.peak_bytes == 8 * 8 * 4 + 8 * 4


def test_memory_plan_refuses_graphs_without_shapes():
    with pytest.raises(ValueError, match="call_module"):
        weft.memory_plan(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))))
    with pytest.raises(ValueError, match="meta"):
        weft.memory_plan(torch.fx.symbolic_trace(lambda x: operator.add(x, 1)))


def test_times_measured_by_torchs_profiler_count(tmp_path, group):
    seen = []
    model, x = Sharded(layers=2, width=64), torch.randn(256, 64)
    step = compiled(model, lambda graph: None, seen)
    step(x)
    began = time.monotonic()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        for _ in range(3):
            step(x)
    took = time.monotonic() - began
    path = str(tmp_path / "trace.json")
    profile.export_chrome_trace(path)
    times = weft.graph.MeasuredTimes(path).all_of(seen[0].graph)
    products = [node for node in seen[0].graph.nodes if node.target in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)]
    assert products and all(0 < times[node] < took for node in products)
    made = json.loads(step_graph.build(seen[0].graph, seconds=times).text)
    assert sum("seconds" in op for op in made["ops"]) >= len(products)
    planned = planned_pass(measured=path)
    compiled(model, planned)(x)
    assert planned.reports[0].step_s > 0


def test_a_trace_without_shapes_is_refused(tmp_path):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(2, 2) @ torch.ones(2, 2)
    path = str(tmp_path / "trace.json")
    profile.export_chrome_trace(path)
    with pytest.raises(ValueError, match="record_shapes"):
        weft.graph.MeasuredTimes(path)


def check_measured_cluster(rank):
    return weft.graph.measure_cluster(repeats=2)


def test_measured_clusters_are_equal_on_all_ranks():
    one, other = run_ranks(2, "weft", check_measured_cluster)
    assert one == other
    assert one["flops_per_s"] > 1e8 and one["within"]["bytes_per_s"] > 1e6
    assert json.loads(cluster.text_of(one))["ranks_per_host"] == 2


def test_sizes():
    assert [cluster.size(text) for text in (5, "5", "2K", "2Ki", "1.5G", "70Gi", "3MB", "100B")] == [
        5, 5, 2000, 2048, 1500000000, 70 * 2**30, 3000000, 100]  # fmt: skip


def test_ordering_names_no_node_that_is_gone(group):
    planned = planned_pass()
    seen = []
    compiled(Sharded(), planned, seen)(torch.randn(8, 32))
    nodes = set(seen[0].graph.nodes)
    for node, before in rewrite.ordering(seen[0].graph).items():
        assert node in nodes and set(before) <= nodes
