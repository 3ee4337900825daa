"""From sentence pairs to batches of token numbers."""

import io

import sentencepiece
import torch
from torch.nn.utils.rnn import pad_sequence

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
