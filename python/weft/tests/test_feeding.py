"""weft.Prefetcher, weft.pack and weft.multi_apply. How much time the first saves: perf/torch_feeding_perf.py."""

import collections
import gc
import random
import subprocess
import sys
import threading

import pytest
import torch
import weft
from torch.utils.data import DataLoader, TensorDataset
from weft import prefetch
from weft.packing import attention_mask, cu_seqlens


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "weft-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    assert threads() == []


class Numbers:
    """Yields 0, 1, …; raises `error` instead of `bad`."""

    def __init__(self, count, bad=None, error=None):
        self.count, self.bad, self.error = count, bad, error
        self.given = 0

    def __len__(self):
        return self.count

    def __iter__(self):
        for number in range(self.count):
            if number == self.bad:
                raise self.error
            self.given = number + 1
            yield number


# --- Prefetcher ---


def test_iterates_as_the_loader():
    data = TensorDataset(torch.randn(37, 3), torch.arange(37))
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
    again = DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
    prefetcher = weft.Prefetcher(loader)
    assert len(prefetcher) == len(loader) == 10
    for _ in range(2):  # the second time another order
        for (x, y), (a, b) in zip(prefetcher, again, strict=True):
            assert torch.equal(x, a) and torch.equal(y, b)


def test_workers_and_the_global_seed():
    data = TensorDataset(torch.arange(20))
    orders = []
    for wrap in (lambda loader: loader, weft.Prefetcher):
        torch.manual_seed(5)
        loader = DataLoader(data, batch_size=3, shuffle=True, num_workers=1)
        orders.append([batch[0].tolist() for batch in wrap(loader)])
    assert orders[0] == orders[1]


def test_loads_ahead_and_no_further():
    source = Numbers(100)
    seen = []
    inside = weft.Prefetcher(source, lambda number: (seen.append(threading.current_thread().name), number)[1], depth=3)
    iterator = inside.prefetch_cpu()
    assert next(iterator) == 0
    deadline = threading.Event()
    for _ in range(200):
        if source.given == 5:
            break
        deadline.wait(0.01)
    deadline.wait(0.05)
    assert source.given == 5  # one taken, three ready, one in hand
    assert set(seen) == {"weft-prefetch"}
    iterator.close()
    assert list(iterator) == []


@pytest.mark.parametrize("where", ["loader", "preprocess"])
def test_errors_come_where_they_happened(where):
    def fails_at_three(number):
        if number == 3:
            raise KeyError("three")
        return number

    source = Numbers(6, 3, KeyError("three")) if where == "loader" else Numbers(6)
    prefetcher = weft.Prefetcher(source, fails_at_three if where == "preprocess" else None, depth=5)
    seen = []
    iterator = iter(prefetcher)
    with pytest.raises(KeyError, match="three") as raised:
        for number in iterator:
            seen.append(number)
    assert seen == [0, 1, 2]
    names = [entry.name for entry in raised.traceback]
    assert "fails_at_three" in names if where == "preprocess" else "__iter__" in names  # where it was raised, too
    assert list(iterator) == []
    assert threads() == []


def test_stop_iteration_of_preprocess_is_no_end():
    def stops_at_two(number):
        return next(iter([number] if number < 2 else []))

    iterator = iter(weft.Prefetcher(Numbers(4), stops_at_two))
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(RuntimeError, match="preprocess raised StopIteration"):
        next(iterator)


def test_memory_of_a_gpu_within_objects_is_used_by_who_takes_it(monkeypatch):
    class OnGpu(torch.Tensor):
        is_cuda = True

        def record_stream(self, stream):
            used.append((int(self), stream))

    class Graph:
        def record_stream(self, stream):
            used.append(("graph", stream))

    class Sample:
        def __init__(self, **fields):
            self.__dict__.update(fields)

    class Taker:
        def wait_event(self, event):
            assert event == "copied"

    def gpu(number):
        return torch.tensor(number).as_subclass(OnGpu)

    used, taker = [], Taker()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: taker)
    encoding = collections.UserDict(input_ids=gpu(1), lengths=[3], mask=gpu(2))  # as transformers' BatchEncoding
    batch = (gpu(0), torch.tensor(9), "text", encoding, Sample(x=gpu(3), parts=[gpu(4)], name="a"), Graph())
    source = prefetch._GpuSource(iter([]), None, torch.device("cuda", 0))
    assert source.finish((batch, "copied")) is batch
    assert used == [(0, taker), (1, taker), (2, taker), (3, taker), (4, taker), ("graph", taker)]


def test_leaving_early_ends_the_thread_and_the_loader():
    closed = []

    def endless():
        try:
            while True:
                yield torch.zeros(2)
        finally:
            closed.append(threading.current_thread().name)

    for number, _ in enumerate(weft.Prefetcher(endless())):
        if number == 2:
            break
    gc.collect()
    assert threads() == [] and closed == ["weft-prefetch"]
    # Two at a time, and the same one again.
    prefetcher = weft.Prefetcher(Numbers(4))
    assert list(zip(prefetcher, prefetcher)) == [(n, n) for n in range(4)]
    assert list(prefetcher) == [0, 1, 2, 3]


def test_interpreter_exits_in_the_middle():
    program = (
        "import itertools, sys, weft\n"
        "iterator = iter(weft.Prefetcher(itertools.count()))\n"
        "print(next(iterator)); sys.exit(3)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (3, "0\n", "")


def test_wrong_use_of_a_prefetcher():
    with pytest.raises(TypeError, match="int cannot be iterated"):
        weft.Prefetcher(5)
    with pytest.raises(TypeError, match="preprocess is str"):
        weft.Prefetcher([1], "flip")
    with pytest.raises(ValueError, match="depth is 0"):
        weft.Prefetcher([1], depth=0)
    with pytest.raises(RuntimeError, match="no CUDA device"):
        weft.Prefetcher([1]).prefetch_gpu()
    with pytest.raises(TypeError, match="no len"):
        len(weft.Prefetcher(iter([1])))


# --- pack ---


def log_normal(count, most, seed=0):
    generator = random.Random(seed)
    return [min(most, max(1, round(generator.lognormvariate(4.5, 0.9)))) for _ in range(count)]


def test_little_padding_on_log_normal_lengths():
    lengths = log_normal(2000, 512)
    data = [torch.randint(1, 1000, (count,), generator=torch.Generator().manual_seed(i)) for i, count in enumerate(lengths)]
    packed = weft.pack(data, 512)
    assert packed.padding < 0.03
    rows = [packed[index] for index in range(len(packed))]
    assert sum((row["sequence_ids"] == 0).sum().item() for row in rows) == round(packed.padding * 512 * len(packed))
    # Every sample once and whole.
    found = []
    for row in rows:
        for number in range(1, row["sequence_ids"].max() + 1):
            found.append(tuple(row["input_ids"][row["sequence_ids"] == number].tolist()))
    assert sorted(found) == sorted(tuple(one.tolist()) for one in data)
    assert weft.pack(data, 512, lengths=lengths).rows == packed.rows


def test_what_a_row_holds():
    data = [[1, 2, 3], (torch.tensor([7, 8]), torch.tensor([70, 80])), {"input_ids": [4, 5, 6, 9]}, []]
    packed = weft.pack(data, 10, pad=99)
    assert len(packed) == 1 and packed.padding == pytest.approx(0.1)
    row = {name: tensor.tolist() for name, tensor in packed[0].items()}
    assert row["input_ids"] == [4, 5, 6, 9, 1, 2, 3, 7, 8, 99]
    assert row["position_ids"] == [0, 1, 2, 3, 0, 1, 2, 0, 1, 0]
    assert row["sequence_ids"] == [1, 1, 1, 1, 2, 2, 2, 3, 3, 0]
    assert row["labels"] == [5, 6, 9, -100, 2, 3, -100, 80, -100, -100]
    assert weft.pack(data, 10, shift=False)[0]["labels"].tolist() == [-100, 5, 6, 9, -100, 2, 3, -100, 80, -100]


def test_batches_and_attention_do_not_cross_samples():
    data = [torch.randint(0, 50, (count,)) for count in log_normal(40, 32, seed=1)]
    batch = next(iter(DataLoader(weft.pack(data, 32), batch_size=3)))
    assert batch["input_ids"].shape == (3, 32)
    ids = batch["sequence_ids"]
    mask = attention_mask(ids)
    assert mask.shape == (3, 1, 32, 32)
    for row in range(3):
        for query in range(32):
            for key in range(32):
                assert mask[row, 0, query, key] == (key <= query and ids[row, query] == ids[row, key])
    starts = cu_seqlens(ids).tolist()
    expected = [0] + [i for i in range(1, 96) if i % 32 == 0 or ids.flatten()[i] != ids.flatten()[i - 1]] + [96]
    assert starts == expected


def test_a_packed_sample_computes_as_alone():
    torch.manual_seed(0)
    embedding, layer = torch.nn.Embedding(50, 16), torch.nn.MultiheadAttention(16, 2, batch_first=True)
    data = [torch.randint(0, 50, (count,)) for count in (5, 9, 3)]
    row = weft.pack(data, 20)[0]
    x = embedding(row["input_ids"])[None]
    together = layer(x, x, x, attn_mask=~attention_mask(row["sequence_ids"])[0])[0][0]
    for number in range(1, 4):
        here = row["sequence_ids"] == number
        alone = embedding(row["input_ids"][here])[None]
        causal = torch.ones(len(alone[0]), len(alone[0]), dtype=torch.bool).triu(1)
        torch.testing.assert_close(together[here], layer(alone, alone, alone, attn_mask=causal)[0][0])


def test_shards_have_equal_counts_and_all_rows():
    data = [list(range(1, count + 1)) for count in log_normal(301, 64, seed=2)]
    whole = weft.pack(data, 64)
    shares = [weft.pack(data, 64, rank=rank, ranks=4) for rank in range(4)]
    assert len({len(share) for share in shares}) == 1 and len(whole) % 4 != 0
    assert {repr(row) for share in shares for row in share.rows} == {repr(row) for row in whole.rows}
    assert shares[0].padding == whole.padding


def test_long_samples():
    data = [[1] * 5, list(range(25))]
    with pytest.raises(ValueError, match="sample 1 has 25 tokens, rows have 10"):
        weft.pack(data, 10)
    split = weft.pack(data, 10, too_long="split")
    assert sorted(piece for row in split.rows for piece in row) == [(0, 0, 5), (1, 0, 10), (1, 10, 20), (1, 20, 25)]
    assert sorted(piece for row in weft.pack(data, 10, too_long="truncate").rows for piece in row) == [(0, 0, 5), (1, 0, 10)]


def test_wrong_use_of_pack():
    with pytest.raises(TypeError, match="generator has no length"):
        weft.pack((x for x in []), 4)
    with pytest.raises(TypeError, match="sample 1 has tokens of torch.float32"):
        weft.pack([[1], [1.5]], 4)
    with pytest.raises(TypeError, match=r"sample 0 .* labels of shape \(1,\)"):
        weft.pack([([1, 2], [1])], 4)
    with pytest.raises(TypeError, match="sample 0 has text, but no input_ids"):
        weft.pack([{"text": "a"}], 4)
    with pytest.raises(ValueError, match="too_long is 'drop'"):
        weft.pack([[1]], 4, too_long="drop")
    with pytest.raises(ValueError, match="2 lengths for 1 samples"):
        weft.pack([[1]], 4, lengths=[1, 2])
    with pytest.raises(ValueError, match="rank 2 of 2"):
        weft.pack([[1]], 4, rank=2, ranks=2)
    with pytest.raises(ValueError, match="no token"):
        weft.pack([[]], 4)
    with pytest.raises(RuntimeError, match="sample 0 has 2 tokens, but had at least 3"):
        weft.pack([[1, 2]], 4, lengths=[3])[0]


# --- multi_apply ---


def test_multi_apply_keeps_the_order():
    a, b = torch.randn(7, 3), torch.randn(7, 3)
    results = weft.multi_apply(lambda x, y: (x @ y, x + y), a, b, streams=3)
    assert len(results) == 7
    for (dot, total), x, y in zip(results, a, b):
        assert torch.equal(dot, x @ y) and torch.equal(total, x + y)
    assert weft.multi_apply(lambda x: x, []) == []


def test_wrong_use_of_multi_apply():
    called = []
    with pytest.raises(ValueError, match=r"lists of \[2, 3\] elements"):
        weft.multi_apply(lambda *each: called.append(each), [1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="streams is 0"):
        weft.multi_apply(called.append, [1], streams=0)
    with pytest.raises(ValueError, match="at least one"):
        weft.multi_apply(called.append)
    with pytest.raises(ZeroDivisionError):
        weft.multi_apply(lambda x: 1 // x, [1, 0, called.append])
    assert called == []
