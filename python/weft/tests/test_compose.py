"""weft.compose() trains to the losses of torch's DistributedDataParallel by every strategy, and says what it chose."""

import functools
import gc
import weakref

import pytest
import torch
import torch.distributed as dist
import weft
from models import batch, rows_of
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "hsdp")
ROWS, STEPS = 16, 4


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.inner = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1)) for _ in range(3)]
        )
        self.outer = nn.Linear(16, 4)

    def forward(self, x):
        x = self.inner(x)
        for block in self.blocks:
            x = x + block(x)
        return self.outer(x)


def loss_of(model, data):
    return nn.functional.mse_loss(model(data[0]), data[1])


def data_of(step, part):
    return rows_of(dist.get_rank(), dist.get_world_size(), batch(100 * step + part, ROWS))


def stock(optimizer_of, dtype=torch.float32, accumulate=1, clip=None, scaler=None):
    """torch's DDP, as torch's documentation has it."""
    model = Net().to(dtype)
    ddp = DistributedDataParallel(model)
    optimizer = optimizer_of(ddp.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    torch.manual_seed(7)
    losses = []
    for step in range(STEPS):
        for part in range(accumulate):
            data = data_of(step, part)
            with ddp.no_sync() if part + 1 < accumulate else torch.enable_grad():
                loss = nn.functional.mse_loss(ddp(data[0].to(dtype)).float(), data[1])
                (scaler.scale(loss / accumulate) if scaler else loss / accumulate).backward()
            losses.append(loss.item())
        if scaler:
            scaler.unscale_(optimizer)
        if clip:
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), clip)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return losses


def composed(strategy, optimizer, accumulate=1, **options):
    model, optimizer, scheduler = weft.compose(
        Net(seed=dist.get_rank()),
        optimizer,
        lambda one: torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 / (1 + step)),
        strategy=strategy,
        accumulate=accumulate,
        **options,
    )
    torch.manual_seed(7)
    losses = []
    for step in range(STEPS):
        for part in range(accumulate):
            loss = loss_of(model, data_of(step, part))
            optimizer.backward(loss)
            optimizer.step()
            assert optimizer.updated == (part + 1 == accumulate)
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert scheduler.get_last_lr()[0] == optimizer.param_groups[0]["lr"] == pytest.approx(options["lr"] / (1 + STEPS))
    return losses


def check_losses(rank):
    """With everything that changes no bit, then with what does."""
    adamw = functools.partial(weft.optim.AdamW, lr=0.01)
    expected = stock(adamw)
    summed = stock(functools.partial(weft.optim.SGD, lr=0.1, momentum=0.9), accumulate=3)
    clipped = stock(functools.partial(torch.optim.AdamW, lr=0.01), accumulate=2, clip=0.3)
    for strategy in STRATEGIES:
        assert composed(strategy, weft.optim.AdamW, lr=0.01) == expected, strategy
        again = composed(strategy, weft.optim.AdamW, lr=0.01, checkpoint_activations=True)
        assert again == expected, f"{strategy} with recomputation"
        assert composed(strategy, torch.optim.SGD, 3, lr=0.1, momentum=0.9) == summed, f"{strategy}, accumulated"
        close = composed(strategy, weft.optim.AdamW, 2, lr=0.01, clip_grad=0.3)
        torch.testing.assert_close(close, clipped, rtol=1e-5, atol=0, msg=lambda text: f"{strategy}, clipped: {text}")


@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_are_those_of_torchs_ddp(ranks):
    run_ranks(ranks, "weft", check_losses)


class Convolutions(nn.Module):
    """With running statistics, in another order of memory, and frozen values of each rank's own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(dist.get_rank())
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 1))
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.layers(x).mean((2, 3)) + self.frozen


class Sequences(nn.Module):
    """Whose modules read one another's parameters, and in evaluation look at them before they call them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(dist.get_rank())
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        self.recurrent = nn.LSTM(8, 8, 2, batch_first=True)

    def forward(self, x):
        return self.recurrent(self.encoder(x))[0]


def check_modules_of_torchs(rank, module, shape):
    results = []
    for strategy in ("ddp", "zero1", "zero3"):
        model, optimizer, _ = weft.compose(module(), weft.optim.AdamW, lr=0.01, strategy=strategy)
        torch.manual_seed(rank)
        losses = []
        for _ in range(3):
            model.train()
            optimizer.backward(model(torch.randn(shape)).square().mean())
            optimizer.step()
            model.eval()
            with torch.inference_mode():
                losses.append(model(torch.randn(shape)).sum().item())
        results.append(losses)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(("module", "shape"), [(Convolutions, (4, 3, 8, 8)), (Sequences, (4, 5, 8))])
def test_modules_of_torchs(module, shape):
    run_ranks(2, "weft", check_modules_of_torchs, module, shape)


def check_freed(rank):
    for strategy in STRATEGIES:
        model, optimizer, _ = weft.compose(Sequences(), strategy=strategy)
        optimizer.backward(model(torch.ones(1, 5, 8)).sum())
        optimizer.step()
        module = weakref.ref(model)
        del model, optimizer
        gc.collect()
        assert module() is None, strategy
        assert weft.memory_report()["total"]["live"] == 0, strategy


def test_nothing_stays():
    run_ranks(2, "weft", check_freed)


def check_precisions(rank):
    adamw = functools.partial(weft.optim.AdamW, lr=0.01)
    narrow = stock(adamw, torch.bfloat16, accumulate=2)
    half = stock(adamw, torch.float16, scaler=weft.amp.GradScaler())
    for strategy in STRATEGIES:
        assert composed(strategy, weft.optim.AdamW, 2, lr=0.01, precision="bf16") == narrow, strategy
        mine = composed(strategy, weft.optim.AdamW, lr=0.01, precision="fp16", checkpoint_activations=True)
        torch.testing.assert_close(mine, half, rtol=1e-3, atol=0, msg=lambda text: f"{strategy}: {text}")


def test_precisions():
    run_ranks(2, "weft", check_precisions)


def error_of(call):
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[nn.Linear(512, 512, bias=False) for _ in range(12)])

    def forward(self, x):
        return self.blocks(x)


def train_large(strategy, budget=None, **options):
    model, optimizer, _ = weft.compose(Large(), strategy=strategy, memory_budget=budget, **options)
    for _ in range(2 * options.get("accumulate", 1)):
        optimizer.backward(model(torch.ones(1, 512)).sum())
        optimizer.step()
    return optimizer.plan


def check_plans(rank):
    """What a plan says that a strategy takes is what it takes, and auto chooses by it."""
    for strategy, accumulate in [*((each, 1) for each in STRATEGIES), ("zero3", 2)]:
        plan = train_large(strategy, accumulate=accumulate)
        assert weft.memory_report()["total"]["peak"] == pytest.approx(plan.bytes[strategy], rel=0.25), strategy
        assert weft.memory_report()["total"]["peak"] <= plan.bytes[strategy], strategy
    free = train_large("auto")
    assert free.strategy == min(free.seconds, key=free.seconds.get) and free.strategy != "zero3"
    tight = min(free.bytes, key=free.bytes.get)
    assert tight == "zero3"
    chosen = train_large("auto", free.bytes[tight])
    assert chosen.strategy == tight
    assert weft.memory_report()["total"]["peak"] <= free.bytes[tight]
    message = error_of(lambda: train_large("auto", "20M"))
    assert "memory_budget is 20.0 MiB, but Large with AdamW takes" in message and "blocks.0.weight, 1.0 MiB" in message
    message = error_of(lambda: train_large("ddp", free.bytes[tight]))
    assert "(MiB): ddp" in message and "zero3 would fit" in message
    return chosen.strategy


def test_auto_fits_the_budget(capfd):
    assert run_ranks(4, "weft", check_plans) == ["zero3"] * 4
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("weft: compose:")]
    assert len(lines) == 2, "rank 0 alone, and once"
    assert "strategy zero3: least communication and update of those that fit (budget" in lines[1]
    assert "ddp" in lines[1] and "(does not fit)" in lines[1]


def check_wrong_use(rank):
    assert "precision is 'fp8'" in error_of(lambda: weft.compose(Net(), precision="fp8"))
    assert "strategy is 'zero4'" in error_of(lambda: weft.compose(Net(), strategy="zero4"))
    assert "take strategy ddp" in error_of(lambda: weft.compose(Net(), weft.optim.Lamb, strategy="zero1"))
    assert "memory_budget is 2000000000.0" in error_of(lambda: weft.compose(Net(), memory_budget=2e9))
    assert "accumulate is 0" in error_of(lambda: weft.compose(Net(), accumulate=0))
    assert "shard_size is 3" in error_of(lambda: weft.compose(Net(), strategy="hsdp", shard_size=3))
    assert "optimizer is Rprop" in error_of(lambda: weft.compose(Net(), torch.optim.Rprop))
    other = nn.Linear(3, 2)
    foreign = torch.optim.Adam([*Net().parameters(), other.weight])
    assert "is none of the Net's; make the optimizer of" in error_of(lambda: weft.compose(Net(), foreign))
    unequal = Net()
    if rank == 1:
        unequal.outer = nn.Linear(16, 5)
    assert "outer.weight of shape (4, 16)" in error_of(lambda: weft.compose(unequal, strategy="zero2"))
    for strategy in STRATEGIES:
        model, optimizer, scheduler = weft.compose(Net(), strategy=strategy, lr=0.1)
        assert scheduler is None
        message = error_of(optimizer.step)
        assert "no parameter of the Net, such as inner.weight, has a gradient" in message
        module = getattr(model, "module", model)
        module.more = nn.Linear(2, 2)
        assert "parameter more.weight came after" in error_of(lambda: model(torch.ones(1, 8)))
        del module.more
        optimizer.backward(model(torch.ones(1, 8)).sum())
        assert "without step()" in error_of(lambda: optimizer.backward(torch.ones(())))
        optimizer.step()
        assert "no parameters can be added" in error_of(lambda: optimizer.add_param_group({}))


def test_wrong_use_is_named():
    run_ranks(2, "weft", check_wrong_use)


def check_given_optimizer(rank):
    """An optimizer over the model's parameters gives class, groups and options."""
    results = []
    for strategy in STRATEGIES:
        model = Net()
        decayed = [p for p in model.parameters() if p.dim() > 1]
        plain = [p for p in model.parameters() if p.dim() == 1]
        given = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], lr=0.02, betas=(0.8, 0.9))
        model, optimizer, _ = weft.compose(model, given, strategy=strategy)
        torch.manual_seed(7)
        for step in range(3):
            loss = loss_of(model, data_of(step, 0))
            optimizer.backward(loss)
            optimizer.step()
        results.append(loss.item())
        assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
        assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    assert results == [results[0]] * len(STRATEGIES)


def test_takes_a_given_optimizer():
    run_ranks(2, "weft", check_given_optimizer)
