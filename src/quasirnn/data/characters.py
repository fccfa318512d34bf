"""A vocabulary of single characters."""

from collections.abc import Iterable

import torch
from torch import Tensor

UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Characters:
    """The characters of a text, numbered in code point order; number 0 stands for any other.

    >>> vocabulary = Characters("banana")
    >>> vocabulary.encode("bat").tolist()
    [2, 1, 0]
    >>> vocabulary.decode([2, 1, 3])
    'ban'
    """

    def __init__(self, text: str) -> None:
        self.symbols = [UNKNOWN, *sorted(set(text) - {UNKNOWN})]
        self._number = {symbol: number for number, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> Tensor:
        """The numbers of the characters, int64, (len(text),)."""
        return torch.tensor([self._number.get(symbol, 0) for symbol in text], dtype=torch.int64)

    def decode(self, numbers: Iterable[int]) -> str:
        return "".join(self.symbols[number] for number in numbers)
