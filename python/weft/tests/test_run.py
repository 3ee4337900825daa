"""weft-run: a script for one process, started on two, trains as it would alone."""

import argparse
import io
import os
import pickle
import random
import subprocess
import sys
import weakref

import pytest
import torch
import torch.distributed as dist
import weft
from ranks import run_ranks
from scripts import run_script
from weft import run, unchanged

SCRIPT = """
import sys
import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
x = torch.randn(60, 8)
data = TensorDataset(x, x.sum(1, keepdim=True))
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = AdamW(model.parameters(), lr=1e-2, fused=False)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
loader = DataLoader(data, batch_size=12, shuffle=True)
for epoch in range(6):
    model.train()
    for a, b in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(a), b)
        loss.backward()
        CLIP
        optimizer.step()
        schedule.step()
model.eval()
with torch.no_grad():
    seen = sum(len(a) for a, _ in loader)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
print(f"{sys.argv[1:]} saw {seen}, loss {loss.item():.4f}, {type(optimizer).__name__}")
torch.save(model.state_dict(), sys.argv[1])
"""
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 0.5)"


def started(tmp_path, name, *options, clip=""):
    """What the script prints, and the parameters that it saves: by weft-run, with --launch, or as it starts ranks; without
    options alone."""
    script, saved = tmp_path / f"{name}.py", tmp_path / f"{name}.pt"
    script.write_text(SCRIPT.replace("CLIP", clip), encoding="utf-8")
    if "--launch" in options:
        command = [sys.executable, "-m", "weft.run", "--nproc-per-node=2", *options[1:], str(script), str(saved)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        text = done.stdout
    elif options:
        text = run_script(script, [*options, str(script), str(saved)], 2, tmp_path, module="weft.unchanged")
    else:
        text = run_script(script, [str(saved)], 1, tmp_path)
    assert f"['{saved}'] saw 60" in text and text.count("saw") == 1  # all of it, by rank 0 alone
    return text, torch.load(saved)


def assert_near(mine, alone, tolerance):
    for name, parameter in alone.items():
        torch.testing.assert_close(mine[name], parameter, rtol=tolerance, atol=tolerance)


def test_trains_as_alone(tmp_path):
    _, alone = started(tmp_path, "alone", clip=CLIP)
    text, mine = started(tmp_path, "ddp", "--strategy=ddp", "--precision=fp32", clip=CLIP)
    assert_near(mine, alone, 1e-5)
    assert "AdamW" in text
    text, mine = started(tmp_path, "zero", "--launch", "--strategy=zero2", "--clip-grad=0.5", clip=CLIP)
    assert_near(mine, alone, 1e-5)
    assert "ZeroOptimizer" in text


def test_jobs_within_slurm_have_ports_of_their_own(tmp_path):
    """What srun says of the process that weft-run is in is not about the ranks that it starts."""
    script = tmp_path / "train.py"
    script.write_text("import os\nprint('port', os.environ['MASTER_PORT'], flush=True)\n")
    task = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"}
    environment = {**os.environ, **task, "SLURM_STEP_NODELIST": "one", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "weft.run", "--nproc-per-node=2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert "port" in done.stdout and "port 29500" not in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "options, message",
    [
        (["--strategy=magic"], "--strategy magic; there are ddp, zero1, zero2, zero3, hsdp, auto"),
        (["--precision=fp8"], "--precision fp8; there are fp32, bf16, fp16"),
        (["--shard-size=2"], "--shard-size 2 is of --strategy hsdp, and this is ddp"),
        (["--strategy=hsdp", "--shard-size=0"], "--shard-size 0: it must be at least 1"),
        (["--memory-budget=lots"], "--memory-budget lots: it must be a number of bytes, or of K, M or G"),
        (["--memory-budget=1MiB"], "/nowhere.py: no such script"),
        (["--memory-budget=1MB"], "--memory-budget 1MB: it must be a number of bytes, or of K, M or G"),
        (["--clip-grad=0"], "--clip-grad 0.0: it must be above 0"),
        (["--accumulate=0"], "--accumulate 0: it must be at least 1"),
        (["-m"], "give the path of a script"),
        ([], "/nowhere.py: no such script"),
    ],
)
def test_wrong_options_are_said_before_anything_starts(options, message, capsys):
    with pytest.raises(SystemExit) as left:
        run.main([*options, "/nowhere.py"])
    assert left.value.code == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


def training_of(**options):
    defaults = {"strategy": "zero2", "precision": "fp32", "clip_grad": None, "accumulate": 1, "shard_size": None, "memory_budget": None}
    return unchanged.Training(argparse.Namespace(**{**defaults, **options}))


def step_of(model, optimizer, rows=4):
    loader = torch.utils.data.DataLoader(torch.ones(rows, 2), batch_size=rows)
    for batch in loader:
        model(batch).sum().backward()
    optimizer.step()


# Scripts, and what weft-run says of them.
def no_optimizer():
    torch.nn.Linear(2, 2)


def other_optimizer():
    torch.optim.RMSprop(torch.nn.Linear(2, 2).parameters())


def no_module():
    torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])


def two_of_one():
    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters())
    torch.optim.SGD(model.parameters())


def own_group():
    dist.init_process_group("gloo")


def own_clip():
    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=1e-2)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)


def own_value_clip():
    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=1e-2)
    torch.nn.utils.clip_grad_value_(model.parameters(), 2.0)


def own_scaling_of_gradients():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model(torch.ones(1, 2)).sum().backward()
    model.weight.grad.mul_(2)
    optimizer.step()


def small_batch():
    model = torch.nn.Linear(2, 2)
    step_of(model, torch.optim.SGD(model.parameters(), lr=1e-2), rows=1)


def small_last_batch():
    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in torch.utils.data.DataLoader(torch.ones(5, 2), batch_size=2, shuffle=True):
        raise AssertionError("begun")


def own_scaler():
    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=1e-2)
    torch.amp.GradScaler("cpu")


def own_closure():
    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=1e-2).step(lambda: None)


def two_scaled():
    for _ in range(2):
        model = torch.nn.Linear(2, 2)
        torch.optim.SGD(model.parameters(), lr=1e-2)


def too_large():
    model = torch.nn.Linear(512, 512)
    torch.optim.SGD(model.parameters(), lr=1e-2)


def odd_groups():
    too_large()


def no_indices(**options):
    options = options or {"batch_size": None}

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.ones(4, 2))

    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=1e-2)
    list(torch.utils.data.DataLoader(Stream(), **options))


def no_indices_in_batches():
    no_indices(batch_size=2, drop_last=True)


def early_step():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def early_sharded_step():
    early_step()


REFUSED = {
    no_optimizer: "ended without making a torch.optim optimizer",
    other_optimizer: "cannot shard RMSprop",
    no_module: "not the parameters of one torch.nn.Module",
    two_of_one: "a second optimizer, SGD",
    own_group: "start it with torchrun",
    own_clip: "pass --clip-grad 2.0",
    own_value_clip: "the script clips values of gradients, which are sharded; take --strategy ddp",
    own_scaling_of_gradients: "changes the gradient of parameter weight after backward",
    small_batch: "a batch of 1 samples for 2 ranks",
    small_last_batch: "a batch of 1 samples for 2 ranks",
    no_indices: "cannot be shared among ranks",
    no_indices_in_batches: "cannot be shared among ranks",
    early_step: "--accumulate 2, but a step of the script comes after 1",
    early_sharded_step: "--accumulate 2, but a step of the script comes after 1",
    own_scaler: "--precision fp16: the script scales its loss itself",
    own_closure: "--precision fp16: optimizer.step(closure) cannot be scaled",
    two_scaled: "--precision fp16 scales the loss of one optimizer, and SGD is a second one",
    too_large: "--strategy auto: memory_budget is 1.0 MiB, but Linear with SGD takes",
    odd_groups: "--strategy hsdp: shard_size is 3; it must divide the number of ranks, 2",
}
# Options of those that are not refused under the usual ones.
OPTIONS = {script: {"precision": "fp16"} for script in (own_scaler, own_closure, two_scaled)}
OPTIONS |= {early_step: {"strategy": "ddp", "accumulate": 2}, early_sharded_step: {"accumulate": 2}}
OPTIONS |= {too_large: {"strategy": "auto", "memory_budget": "1MiB"}, odd_groups: {"strategy": "hsdp", "shard_size": 3}}


def refusals(rank):
    gone = torch.nn.Linear(1, 1)
    kept = [weakref.proxy(gone)]  # among all objects, as a search for modules meets them
    del gone
    said = []
    for script in REFUSED:
        training = training_of(**OPTIONS.get(script, {}))
        try:
            with unchanged.applied(training):
                script()
            training.check_end("script.py")
        except unchanged.Refused as refused:
            said.append(str(refused))
        else:
            said.append("nothing")
    assert len(kept) == 1
    return said


def test_scripts_that_do_not_fit_are_refused():
    for said in run_ranks(2, "weft", refusals):
        for text, expected in zip(said, REFUSED.values(), strict=True):
            assert expected in text


OTHERS = [
    ("ddp", torch.optim.RMSprop, "fp32"),
    ("ddp", torch.optim.SGD, "bf16"),
    ("zero1", torch.optim.SGD, "fp32"),
    ("zero2", torch.optim.SGD, "fp32"),
    ("zero3", torch.optim.SGD, "fp32"),
    ("hsdp", torch.optim.SGD, "fp32"),
    ("auto", torch.optim.SGD, "fp32"),
    ("auto", torch.optim.RMSprop, "fp32"),
    ("ddp", torch.optim.SGD, "fp16"),
    ("ddp", torch.optim.RMSprop, "fp16"),
    ("zero2", torch.optim.SGD, "fp16"),
]


def others(rank):
    """Any optimizer under ddp, accumulation, and what is left behind."""
    results = {}
    for strategy, kind, precision in OTHERS:
        torch.manual_seed(0)
        with unchanged.applied(training_of(strategy=strategy, precision=precision, accumulate=2)):
            model = torch.nn.Linear(2, 3)
            optimizer = kind(model.parameters(), lr=0.1)
            assert isinstance(optimizer, torch.optim.Optimizer)
            data = torch.utils.data.DataLoader(torch.arange(16.0).reshape(8, 2) / 16, batch_size=4)
            for batch in data:  # two batches, one step
                (0.1 * model(batch).square().mean()).backward()  # 65536 times which is within float16
            optimizer.step()
            model.eval()
            model(torch.ones(1, 2))
        results[f"{strategy} {kind.__name__} {precision}"] = [p.clone() for p in model.state_dict().values()]
    model = torch.nn.Linear(2, 3)
    assert type(torch.optim.SGD(model.parameters())) is torch.optim.SGD
    return results


def test_any_optimizer_and_accumulation():
    for results in run_ranks(2, "weft", others):
        for name, mine in results.items():
            torch.manual_seed(0)
            model = torch.nn.Linear(2, 3)
            optimizer = getattr(torch.optim, name.split()[1])(model.parameters(), lr=0.1)
            for batch in (torch.arange(16.0).reshape(8, 2) / 16).split(4):
                (0.1 * model(batch).square().mean()).backward()
            optimizer.step()
            for one, other in zip(mine, model.parameters()):
                tolerance = 1e-5 if name.endswith("fp32") else 1e-2
                torch.testing.assert_close(one, other.detach(), rtol=tolerance, atol=tolerance)
                assert name.endswith("fp32") or not torch.equal(one, other)


def overflow(rank, strategy):
    """One step whose gradients are infinite in 16 bits is left out, the next ones are not; clipping by the script sees them unscaled."""
    training = training_of(strategy=strategy, precision="fp16", clip_grad=None if strategy == "ddp" else 0.5)
    with unchanged.applied(training):
        model = torch.nn.Linear(2, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        kept, scales, norms = [], [], []
        for factor in (1e5, 1e-2, 1.0):
            optimizer.zero_grad()
            for batch in torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=4):
                (factor * model(batch).square().mean()).backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            schedule.step()
            model.eval()
            model(torch.ones(1, 2))
            model.train()
            kept.append([p.clone() for p in model.state_dict().values()])
            scales.append(training.scaling.scaler.get_scale())
    return kept, scales, norms


@pytest.mark.parametrize("strategy", ["ddp", "zero2"])
def test_steps_that_overflow_are_left_out(strategy):
    torch.manual_seed(0)
    start = torch.nn.Linear(2, 3)
    for kept, scales, norms in run_ranks(2, "weft", overflow, strategy):
        assert scales == [32768.0] * 3
        assert all(torch.equal(one, p.detach()) for one, p in zip(kept[0], start.parameters()))
        assert not torch.equal(kept[1][0], kept[0][0]) and not torch.equal(kept[2][0], kept[1][0])
        if strategy == "ddp":  # torch's clip, of what is not scaled any more
            assert norms[1] < 0.1 and all(torch.isfinite(p).all() for p in kept[2])


def recomputed(rank, reentrant):
    torch.manual_seed(0)
    with unchanged.applied(training_of(strategy="ddp", precision="fp16")):
        model = torch.nn.Linear(2, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        out = torch.utils.checkpoint.checkpoint(model, torch.ones(4, 2, requires_grad=True), use_reentrant=reentrant)
        (1e-2 * out.sum()).backward()
        optimizer.step()
        return [p.detach().clone() for p in model.parameters()]


def test_a_backward_within_backward_is_scaled_once():
    expected, _ = run_ranks(2, "weft", recomputed, False)
    for mine in run_ranks(2, "weft", recomputed, True):
        torch.testing.assert_close(mine, expected)


def clip_values(rank):
    with unchanged.applied(training_of(strategy="ddp", precision="fp16")):
        model = torch.nn.Linear(2, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        before = [p.detach().clone() for p in model.parameters()]
        (1e-2 * model(torch.ones(4, 2)).sum()).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        return [(one - p.detach()).abs().max().item() for one, p in zip(before, model.parameters())]


def test_values_are_clipped_unscaled():
    for moved in run_ranks(2, "weft", clip_values):
        assert moved == pytest.approx([0.01, 0.01], rel=1e-3)


def saved(rank, folder):
    with unchanged.applied(training_of(strategy="ddp")):
        torch.save(torch.tensor(5), memory := io.BytesIO())
        if rank == 1:
            pickle.dumps(torch.tensor(6))  # by torch.save, and none of the others' business
        torch.save(torch.tensor(rank), f"{folder}/{rank}.pt")
        memory.seek(0)
        return torch.load(memory).item(), sorted(os.listdir(folder))


def test_what_is_saved_into_memory_is_there_on_all_ranks(tmp_path):
    assert run_ranks(2, "weft", saved, tmp_path) == [(5, ["0.pt"])] * 2


def last_batches(rank):
    model = torch.nn.Linear(2, 2)
    training = training_of(strategy="ddp")
    with unchanged.applied(training):
        torch.optim.SGD(model.parameters())
        loaders = [torch.utils.data.DataLoader(torch.ones(5, 2), batch_size=size, drop_last=drop) for size, drop in ((2, True), (3, False))]
        read = [[len(batch) for batch in loader] for loader in loaders]
        model.eval()
        return read, len(list(torch.utils.data.DataLoader(torch.ones(5, 2), batch_size=2)))


def test_last_batches_that_fit():
    assert run_ranks(2, "weft", last_batches) == [([[1, 1], [1, 1]], 3), ([[1, 1], [2, 1]], 3)]


def unequal_shares(rank):
    """What each epoch has of the data, where ranks draw unequally many random numbers: a dropout's, and three of each row's."""
    unchanged.same_seed()
    epochs = []

    def drawn(rows):
        for _ in rows:
            random.random()
        return torch.stack(rows)

    with unchanged.applied(training_of(strategy="ddp")):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        rows = torch.arange(15.0).unsqueeze(1).repeat(1, 2)
        loader = torch.utils.data.DataLoader(rows, batch_size=5, shuffle=True, collate_fn=drawn)
        for _ in range(4):
            epochs.append([])
            for batch in loader:
                model(batch).sum().backward()
                optimizer.step()
                epochs[-1] += batch[:, 0].tolist()
            epochs[-1].append(random.random())
    return epochs


def test_epochs_of_unequal_shares_have_all_of_the_data():
    for mine, others in zip(*run_ranks(2, "weft", unequal_shares), strict=True):
        assert sorted(mine[:-1] + others[:-1]) == list(range(15))


def test_a_script_that_leaves_by_sys_exit_has_ended(tmp_path):
    script = tmp_path / "leaves.py"
    script.write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="exit code 2:\nweft-run: .*leaves.py ended without making a torch.optim optimizer"):
        run_script(script, ["--strategy=ddp", "--precision=fp32", str(script)], 2, tmp_path, module="weft.unchanged")


def looking_at_once(rank, folder):
    """Parameters right after a step and a while later, over a link on which they would be on their way."""
    dist.destroy_process_group()
    weft.emulate_link("50ms:1GB/s")
    dist.init_process_group("weft", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    weft.emulate_link(None)
    torch.manual_seed(0)
    with unchanged.applied(training_of(strategy="zero1")):
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 64)).square().mean().backward()
        optimizer.step()
        at_once = [p.detach().clone() for p in model.parameters()]
        optimizer.wait()
        return all(torch.equal(one, now) for one, now in zip(at_once, model.parameters()))


def test_a_step_leaves_whole_parameters(tmp_path):
    assert run_ranks(2, "weft", looking_at_once, tmp_path) == [True, True]


def compiled(rank):
    """Parameters of a model after two steps, compiled and as it is."""
    results = []
    for strategy in ("ddp", "zero2"):
        for compiles in (True, False):
            torch.manual_seed(0)
            torch._dynamo.reset()
            with unchanged.applied(training_of(strategy=strategy, accumulate=2)):
                model = torch.nn.Linear(2, 3)
                called = torch.compile(model, backend="eager") if compiles else model
                optimizer = torch.optim.SGD(called.parameters(), lr=0.1)
                for number in range(4):
                    called(torch.full((2, 2), number + rank + 1.0)).square().mean().backward()
                    if number % 2:
                        optimizer.step()
                        optimizer.zero_grad()
                results.append([p.clone() for p in model.state_dict().values()])
    return results


def test_a_compiled_model_trains_as_it_is():
    for results in run_ranks(2, "weft", compiled):
        for one, other in zip(results[::2], results[1::2], strict=True):
            for mine, plain in zip(one, other, strict=True):
                torch.testing.assert_close(mine, plain)
