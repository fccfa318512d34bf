"""Dropout for sequences: one mask for all time steps, or for all occurrences of a word."""

from torch import Tensor, nn
from torch.nn import functional


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout with the same mask at every time step of a sequence (Gal and Ghahramani, 2016); x is (T, B, D)."""
    if p == 0 or not training:
        return x
    return x * functional.dropout(x.new_ones(1, *x.shape[1:]), p)


def embed(embedding: nn.Embedding, tokens: Tensor, word_dropout: float, training: bool) -> Tensor:
    """The vectors of tokens (T, B), as (T, B, D), with word dropout.

    Word dropout zeroes whole rows of the embedding: a dropped word is missing wherever it occurs in the batch. The
    others are scaled by 1 / (1 - p), as in `nn.Dropout`.
    """
    x: Tensor = embedding(tokens)
    if word_dropout == 0 or not training:
        return x
    kept = functional.dropout(x.new_ones(embedding.num_embeddings), word_dropout)
    return x * kept[tokens][..., None]
