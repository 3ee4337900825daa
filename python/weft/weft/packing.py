"""Sequences of many lengths in rows of one."""

from __future__ import annotations

import bisect

import torch

IGNORED = -100  # the label that torch's cross_entropy does not count
TOO_LONG = ("error", "split", "truncate")


def pack(dataset, length: int, **options) -> "PackedDataset":
    """A ``PackedDataset``: samples of various lengths put together in rows of ``length`` tokens. Options are its own."""
    return PackedDataset(dataset, length, **options)


class PackedDataset(torch.utils.data.Dataset):
    """Each row holds whole samples, by best fit of the longest first: little is left for padding. The same for the same
    lengths, everywhere, so that ranks need not agree.

    A sample is a 1-D tensor, array or list of token ids, alone, in a tuple with labels of its own, or as "input_ids" (and
    "labels") of a dict. A row is a dict of tensors of [length], which the usual collation stacks:

        input_ids     the tokens, then ``pad``
        position_ids  counted from 0 in each sample
        sequence_ids  1, 2, … the row's samples; 0 where it is padded. See attention_mask() and cu_seqlens()
        labels        with shift the next token of the same sample, else the token itself but for a sample's first one,
                      which is what models of transformers' shift themselves; -100 where there is none

    too_long     what becomes of samples of more than ``length`` tokens: "error", "split" (parts that do not know of each
                 other) or "truncate"
    lengths      of all samples, where they are known; otherwise every sample is read once
    rank, ranks  this is the share of one rank of several: all have equally many rows, for which the first rows are there
                 twice where they do not come out even. Not together with a DistributedSampler

    ``padding`` is the fraction of all rows' tokens that is padding, ``rows`` the (sample, first token, end) of each row.
    """

    def __init__(
        self,
        dataset,
        length: int,
        *,
        pad: int = 0,
        shift: bool = True,
        too_long: str = "error",
        lengths: list | None = None,
        rank: int = 0,
        ranks: int = 1,
    ):
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(f"weft.pack: {type(dataset).__name__} has no length or no [index]; give a list or a map-style Dataset")
        if length < 1:
            raise ValueError(f"weft.pack: length is {length}; it must be at least 1")
        if too_long not in TOO_LONG:
            raise ValueError(f"weft.pack: too_long is {too_long!r}; it must be one of {', '.join(TOO_LONG)}")
        if not 0 <= rank < ranks:
            raise ValueError(f"weft.pack: rank {rank} of {ranks}; ranks count from 0")
        self.dataset, self.length, self.pad, self.shift = dataset, length, pad, shift
        if lengths is None:
            lengths = [len(_tokens_of(dataset[index], index)[0]) for index in range(len(dataset))]
        elif len(lengths) != len(dataset):
            raise ValueError(f"weft.pack: {len(lengths)} lengths for {len(dataset)} samples")
        pieces = _pieces([int(one) for one in lengths], length, too_long)
        rows = _best_fit(pieces, length)
        if not rows:
            raise ValueError("weft.pack: there is no token in the dataset")
        self.padding = 1 - sum(end - first for row in rows for _, first, end in row) / (len(rows) * length)
        each = -(-len(rows) // ranks)
        self.rows = [rows[number % len(rows)] for number in range(rank, each * ranks, ranks)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        row = {name: torch.full((self.length,), fill) for name, fill in
            (("input_ids", self.pad), ("position_ids", 0), ("sequence_ids", 0), ("labels", IGNORED))}
        at = 0
        for number, (sample, first, end) in enumerate(self.rows[index], start=1):
            tokens, labels = _tokens_of(self.dataset[sample], sample)
            if len(tokens) < end:
                raise RuntimeError(f"weft.pack: sample {sample} has {len(tokens)} tokens, but had at least {end} when it was packed")
            count = end - first
            here = slice(at, at + count)
            row["input_ids"][here] = tokens[first:end]
            row["position_ids"][here] = torch.arange(count)
            row["sequence_ids"][here] = number
            if self.shift:
                row["labels"][at : at + count - 1] = labels[first + 1 : end]
            else:
                row["labels"][at + 1 : at + count] = labels[first + 1 : end]
            at += count
        return row


def attention_mask(sequence_ids: torch.Tensor, causal: bool = True) -> torch.Tensor:
    """[batch, 1, length, length] of bool for scaled_dot_product_attention: True where a token may look, in its own sample and,
    with causal, no further than itself. Padding looks at padding, so that no row of it is empty."""
    mask = sequence_ids.unsqueeze(-1) == sequence_ids.unsqueeze(-2)
    return (mask.tril() if causal else mask).unsqueeze(-3)


def cu_seqlens(sequence_ids: torch.Tensor) -> torch.Tensor:
    """Where samples begin in the tokens of all rows one after another, and the end: int32, as attention of variable lengths
    takes it. A row's padding is one sequence more."""
    starts = torch.ones_like(sequence_ids, dtype=torch.bool)
    starts[..., 1:] = sequence_ids[..., 1:] != sequence_ids[..., :-1]
    end = torch.tensor([sequence_ids.numel()], device=sequence_ids.device)
    return torch.cat([starts.flatten().nonzero().flatten(), end]).to(torch.int32)


def _tokens_of(sample, index: int):
    """(tokens, labels), the same where it has no labels."""
    labels = None
    if hasattr(sample, "keys"):
        if "input_ids" not in sample:
            raise TypeError(f"weft.pack: sample {index} has {', '.join(map(str, sample.keys()))}, but no input_ids")
        tokens, labels = sample["input_ids"], sample["labels"] if "labels" in sample else None
    elif isinstance(sample, tuple):
        tokens, labels = (*sample, None)[:2]
    else:
        tokens = sample
    tokens = torch.as_tensor(tokens)
    labels = tokens if labels is None else torch.as_tensor(labels)
    if tokens.dim() != 1 or (tokens.is_floating_point() and tokens.numel() > 0) or labels.shape != tokens.shape:
        raise TypeError(
            f"weft.pack: sample {index} has tokens of {tokens.dtype} and shape {tuple(tokens.shape)} and labels of shape "
            f"{tuple(labels.shape)}; both must be one row of ids, equally long"
        )
    return tokens, labels


def _pieces(lengths: list, length: int, too_long: str) -> list:
    """(sample, first token, end) of all that is to be packed."""
    pieces = []
    for sample, count in enumerate(lengths):
        if count > length and too_long == "error":
            raise ValueError(
                f"weft.pack: sample {sample} has {count} tokens, rows have {length}; shorten it, or pass too_long=\"split\" or "
                '"truncate"'
            )
        last = min(count, length) if too_long == "truncate" else count
        pieces += [(sample, first, min(first + length, last)) for first in range(0, last, length)]
    return pieces


def _best_fit(pieces: list, length: int) -> list:
    """Rows of pieces: the longest first, each into the fullest row that it fits in."""
    rows, open_rows, spaces = [], {}, []  # open_rows: by free space; spaces: its keys, sorted
    for piece in sorted(pieces, key=lambda piece: (piece[1] - piece[2], piece)):
        count = piece[2] - piece[1]
        at = bisect.bisect_left(spaces, count)
        if at == len(spaces):
            space, row = length, []
            rows.append(row)
        else:
            space = spaces[at]
            row = open_rows[space].pop()
            if not open_rows[space]:
                del open_rows[space], spaces[at]
        row.append(piece)
        left = space - count
        if left > 0:
            if left not in open_rows:
                bisect.insort(spaces, left)
            open_rows.setdefault(left, []).append(row)
    return rows
