"""From sentence pairs to batches of token numbers."""

import io
import random

import sentencepiece
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data.distributed import DistributedSampler

PAD, BEGIN, END, UNKNOWN = range(4)


class Vocabulary:
    """Pieces of words, the same for both languages."""

    def __init__(self, model: bytes):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @staticmethod
    def train(pairs: list[tuple[str, str]], size: int) -> bytes:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([text for pair in pairs for text in pair]),
            model_writer=model,
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=0.9995,
            pad_id=PAD,
            bos_id=BEGIN,
            eos_id=END,
            unk_id=UNKNOWN,
            minloglevel=2,
        )
        return model.getvalue()

    def __len__(self) -> int:
        return self.processor.vocab_size()

    def encode(self, text: str, longest: int) -> torch.Tensor:
        return torch.tensor([BEGIN, *self.processor.encode(text)[: longest - 2], END])

    def decode(self, tokens: list[int]) -> str:
        tokens = tokens[: tokens.index(END)] if END in tokens else tokens
        return self.processor.decode([token for token in tokens if token > UNKNOWN])


class Pairs(torch.utils.data.Dataset):
    def __init__(self, pairs: list[tuple[str, str]], vocabulary: Vocabulary, longest: int):
        self.texts = pairs
        self.tokens = [tuple(vocabulary.encode(text, longest) for text in pair) for pair in pairs]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int):
        return self.tokens[index]


def batch_of(pairs: list) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources and targets, padded to the longest of each."""
    sources, targets = zip(*pairs)
    return tuple(pad_sequence(side, batch_first=True, padding_value=PAD) for side in (sources, targets))


class SimilarLengths(torch.utils.data.Sampler):
    """A rank's batches, each of pairs of about one length, so that little of it is padding: what `sampler` gives is sorted
    by length, WINDOW batches at a time. The batches of a window come in a random order, the same on all ranks: at every
    step these have about as long sentences as one another, and none waits long for another."""

    WINDOW = 50

    def __init__(self, pairs: Pairs, sampler: DistributedSampler, batch: int):
        self.lengths = [len(target) for _, target in pairs.tokens]
        self.sampler, self.batch = sampler, batch

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch)

    def __iter__(self):
        order = random.Random(self.sampler.epoch)
        numbers = list(self.sampler)
        window = self.batch * self.WINDOW
        for begin in range(0, len(numbers), window):
            near = sorted(numbers[begin : begin + window], key=self.lengths.__getitem__)
            batches = [near[first : first + self.batch] for first in range(0, len(near), self.batch)]
            order.shuffle(batches)
            yield from batches
