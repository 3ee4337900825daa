"""An encoder–decoder Transformer."""

import math

import torch
from torch import nn

from .data import BEGIN, END, PAD

HEADS = 4  # of attention


class Translator(nn.Module):
    """Scores for the next piece of the target, given the source and the target so far."""

    def __init__(self, vocabulary: int, width: int = 128, layers: int = 3, heads: int = HEADS, longest: int = 64, dropout: float = 0.1):
        super().__init__()
        self.longest = longest
        self.pieces = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.positions = nn.Embedding(longest, width)
        options = {"d_model": width, "nhead": heads, "dim_feedforward": 4 * width, "dropout": dropout}
        options |= {"batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**options), layers, nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), layers, nn.LayerNorm(width))
        self.dropout = nn.Dropout(dropout)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
        nn.init.normal_(self.pieces.weight, std=width**-0.5)
        nn.init.normal_(self.positions.weight, std=width**-0.5)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self.pieces(tokens) * math.sqrt(self.pieces.embedding_dim) + self.positions(places))

    def encode(self, source: torch.Tensor) -> torch.Tensor:
        return self.encoder(self.embed(source), src_key_padding_mask=source == PAD)

    def decode(self, target: torch.Tensor, memory: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        length = target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        hidden = self.decoder(
            self.embed(target), memory, tgt_mask=later, tgt_key_padding_mask=target == PAD, memory_key_padding_mask=source == PAD
        )
        return hidden @ self.pieces.weight.T

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.decode(target, self.encode(source), source)

    @torch.no_grad()
    def translate(self, source: torch.Tensor) -> list[list[int]]:
        """The likeliest piece after the other, for a batch of sources."""
        memory = self.encode(source)
        target = torch.full((len(source), 1), BEGIN)
        ended = torch.zeros(len(source), dtype=torch.bool)
        while target.shape[1] < self.longest and not ended.all():
            following = self.decode(target, memory, source)[:, -1].argmax(-1)
            target = torch.cat([target, following.masked_fill(ended, PAD).unsqueeze(1)], dim=1)
            ended |= following == END
        return target[:, 1:].tolist()
