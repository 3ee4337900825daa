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
    """What the script prints, and the parameters that it saves."""
    script, saved = tmp_path / f"{name}.py", tmp_path / f"{name}.pt"
    script.write_text(SCRIPT.replace("CLIP", clip), encoding="utf-8")
    command = [sys.executable] + (["-m", "weft.run", "--nproc-per-node=2", *options] if options else [])
    done = subprocess.run(
        [*command, str(script), str(saved)], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"['{saved}'] saw 60" in done.stdout and done.stdout.count("saw") == 1  # all of it, by rank 0 alone
    return done.stdout, torch.load(saved)


def assert_near(mine, alone, tolerance):
    for name, parameter in alone.items():
        torch.testing.assert_close(mine[name], parameter, rtol=tolerance, atol=tolerance)


def test_trains_as_alone(tmp_path):
    _, alone = started(tmp_path, "alone", clip=CLIP)
    text, mine = started(tmp_path, "ddp", "--strategy=ddp", clip=CLIP)
    assert_near(mine, alone, 1e-5)
    assert "AdamW" in text
    text, mine = started(tmp_path, "zero", "--strategy=zero2", "--clip-grad=0.5", clip=CLIP)
    assert_near(mine, alone, 1e-5)
    assert "ZeroOptimizer" in text


@pytest.mark.parametrize(
    "options, message",
    [
        (["--strategy=auto"], "--strategy auto: nothing is known of the model before the script has made it"),
        (["--strategy=magic"], "--strategy magic; there are ddp, zero1, zero2, zero3"),
        (["--precision=fp16"], "--precision fp16: a loss scale is the script's business"),
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
    defaults = {"strategy": "zero2", "precision": "fp32", "clip_grad": None, "accumulate": 1}
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


def small_batch():
    model = torch.nn.Linear(2, 2)
    step_of(model, torch.optim.SGD(model.parameters(), lr=1e-2), rows=1)


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
    small_batch: "a batch of 1 samples for 2 ranks",
    no_indices: "cannot be shared among ranks",
}


def refusals(rank):
    gone = torch.nn.Linear(1, 1)
    kept = [weakref.proxy(gone)]  # among all objects, as a search for modules meets them
    del gone
    said = []
    for script in REFUSED:
        training = training_of()
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
                model(batch).square().mean().backward()
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
                model(batch).square().mean().backward()
            optimizer.step()
            for one, other in zip(mine, model.parameters()):
                tolerance = 1e-5 if name.endswith("fp32") else 1e-2
                torch.testing.assert_close(one, other.detach(), rtol=tolerance, atol=tolerance)
                assert name.endswith("fp32") or not torch.equal(one, other)
