"""A rank's part of a tensor, as torch.distributed.checkpoint takes it."""

from __future__ import annotations

import math

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType


def boxes(shape: tuple, first: int, count: int) -> list:
    """(offsets, sizes) of blocks that together are the elements [first, first + count) of a tensor of `shape`, row by row:
    each lies in one piece, and they come in order."""
    if count == 0:
        return []
    if len(shape) <= 1:
        return [((first,), (count,))] if shape else [((), ())]
    row = math.prod(shape[1:])
    found = []
    while count > 0:
        start, inside = divmod(first, row)
        if inside or count < row:
            taken = min(row - inside, count)
            found += [((start, *at), (1, *size)) for at, size in boxes(shape[1:], inside, taken)]
        else:
            taken = count // row * row
            found.append(((start, *(0 for _ in shape[1:])), (count // row, *shape[1:])))
        first, count = first + taken, count - taken
    return found


class Shard(torch.Tensor):
    """Elements [first, first + values.numel()) of a tensor laid out as `like`, in the order of its memory. A tensor in
    name: it is saved and loaded, and computes nothing."""

    @staticmethod
    def __new__(cls, like, first, values):
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=values.dtype, device="cpu")

    def __init__(self, like, first, values):
        self.values = values
        order = sorted(range(like.dim()), key=lambda dim: (-like.stride(dim), dim))
        back = [order.index(dim) for dim in range(like.dim())]
        self._blocks, at = {}, 0
        for offsets, sizes in boxes(tuple(like.shape[dim] for dim in order), first, values.numel()):
            block = values[at : at + math.prod(sizes)].view(sizes).permute(back)
            self._blocks[torch.Size(offsets[dim] for dim in back)] = block
            at += math.prod(sizes)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError("weft.shards.Shard: only a rank's part of a tensor; it is for torch.distributed.checkpoint")

    def __repr__(self):
        return f"Shard({tuple(self.shape)}, {self.values.numel()} elements here)"

    def __create_write_items__(self, fqn, _):
        return [
            WriteItem(
                index=MetadataIndex(fqn, offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=ChunkStorageMetadata(offsets, block.size()),
                    properties=TensorProperties.create_from_tensor(block),
                    size=self.size(),
                ),
            )
            for offsets, block in self._blocks.items()
        ]

    def __create_chunk_list__(self):
        return [ChunkStorageMetadata(offsets, block.size()) for offsets, block in self._blocks.items()]

    def __get_tensor_shard__(self, index):
        return self._blocks[torch.Size(index.offset)]
