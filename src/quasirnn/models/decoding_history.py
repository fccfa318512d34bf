"""Which token came after which, for all hypotheses of a batch."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class History:
    """A tree that grows by one layer of nodes a step; a hypothesis is a path from the root to a node.

    What a step adds is small: a token, a parent and a row number for each node. Attention weights are kept as the steps
    gave them, of all hypotheses, because which ones survive is not known before the end.
    """

    ROOT = -1

    def __init__(self) -> None:
        self.tokens: list[np.ndarray] = []
        self.parents: list[np.ndarray] = []
        self.rows: list[np.ndarray] = []
        self.attention: list[Tensor | None] = []
        self.size = 0

    def add(self, tokens: np.ndarray, parents: np.ndarray, rows: np.ndarray, attention: Tensor | None) -> np.ndarray:
        """The nodes of one step, for tokens of any shape; returns their numbers in that shape.

        Args:
            parents: of each token the node that it follows.
            rows: of each token the row of the step, and so of `attention`, that it was chosen from.
            attention: (N, ...) or None.
        """
        nodes = np.arange(self.size, self.size + tokens.size).reshape(tokens.shape)
        self.size += tokens.size
        self.tokens.append(tokens.ravel())
        self.parents.append(parents.ravel())
        self.rows.append(rows.ravel())
        self.attention.append(attention)
        return nodes

    def paths(self, nodes: Sequence[int]) -> list[tuple[list[int], Tensor | None]]:
        """Tokens and attention from the root to each of the given nodes."""
        if not nodes:
            return []
        tokens, parents, rows = (np.concatenate(steps).tolist() for steps in (self.tokens, self.parents, self.rows))
        found = []
        for node in nodes:
            path = []
            while node != self.ROOT:
                path.append(node)
                node = parents[node]
            path.reverse()
            found.append(([tokens[node] for node in path], self._attention([rows[node] for node in path])))
        return found

    def _attention(self, rows: list[int]) -> Tensor | None:
        """The given row of the first step, of the second, and so on."""
        given = [step[row] for step, row in zip(self.attention, rows, strict=False) if step is not None]
        return torch.stack(given) if len(given) == len(rows) else None
