"""weft-run: a script for one process, started on two, trains as it would alone."""

import argparse
import os
import subprocess
import sys
import weakref

import pytest
import torch
import torch.distributed as dist
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


def no_indices():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.ones(4, 2))

    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=1e-2)
    list(torch.utils.data.DataLoader(Stream(), batch_size=None))


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
    own_scaler: "--precision fp16: the script scales its loss itself",
    own_closure: "--precision fp16: optimizer.step(closure) cannot be scaled",
    two_scaled: "--precision fp16 scales the loss of one optimizer, and SGD is a second one",
    too_large: "--strategy auto: memory_budget is 1.0 MiB, but Linear with SGD takes",
    odd_groups: "--strategy hsdp: shard_size is 3; it must divide the number of ranks, 2",
}
# Options of those that are not refused under the usual ones.
OPTIONS = {script: {"precision": "fp16"} for script in (own_scaler, own_closure, two_scaled)}
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
