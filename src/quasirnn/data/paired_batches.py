"""Batches of pairs for a translator: both sides of similar length, the target with its start and end marks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from quasirnn.data.length_batches import POOL, LengthOrder, check_sequences, padding_share

# Pairs are sorted by the target's length in steps of so many tokens, and then by the source's: on Multi30k a batch of
# 16 is 5 % padding, against 12 % where the sum of both lengths is sorted.
STEP = 8


@dataclass(frozen=True)
class PairedBatch:
    """Pairs side by side; column b is pair number `rows[b]`."""

    source: Tensor  # (S, B), int64, padded at the end
    source_lengths: Tensor  # (B,), int64
    target_in: Tensor  # (T, B), int64: the start mark and the target, padded at the end
    labels: Tensor  # (T, B), int64: the target and the end mark, padded at the end
    target_lengths: Tensor  # (B,), int64: of target_in and of labels, so one more than the target has
    rows: Tensor  # (B,), int64

    def to(self, device: torch.device | str) -> "PairedBatch":
        return PairedBatch(
            source=self.source.to(device),
            source_lengths=self.source_lengths.to(device),
            target_in=self.target_in.to(device),
            labels=self.labels.to(device),
            target_lengths=self.target_lengths.to(device),
            rows=self.rows.to(device),
        )


class PairedBatches:
    """Batches for training, or for a figure: in every epoch each pair once, in an order that `LengthOrder` draws.

    >>> sources, targets = [torch.tensor([5, 6, 7]), torch.tensor([5])], [torch.tensor([8, 9]), torch.tensor([8])]
    >>> batch = next(PairedBatches(sources, targets, 2, padding=0, start=1, end=2).epoch(0))
    >>> batch.source.T.tolist(), batch.target_in.T.tolist(), batch.labels.T.tolist()
    ([[5, 0, 0], [5, 6, 7]], [[1, 8, 0], [1, 8, 9]], [[8, 2, 0], [8, 9, 2]])

    Args:
        sources, targets: of token numbers, each (T,), int64, T at least 1; without marks.
        batch_size: B, over all ranks.
        padding, start, end: the numbers to fill up with, and of the marks.
        seed: of the order.
        rank: which share of every batch is read here, 0 to world_size - 1.
        world_size: over how many ranks batches are divided.
        pool: batches that are sorted together.
    """

    def __init__(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        batch_size: int,
        *,
        padding: int,
        start: int,
        end: int,
        seed: int = 1,
        rank: int = 0,
        world_size: int = 1,
        pool: int = POOL,
    ) -> None:
        if len(sources) != len(targets):
            raise ValueError(
                f"PairedBatches: every source needs its target, got {len(sources)} sources and {len(targets)} targets"
            )
        for side in (sources, targets):
            check_sequences("PairedBatches", side, None, batch_size, None)
        self.sources, self.targets, self.padding = sources, targets, padding
        self._start, self._end = torch.tensor([start]), torch.tensor([end])
        self.source_lengths = np.fromiter(map(len, sources), np.int64, len(sources))
        self.target_lengths = np.fromiter(map(len, targets), np.int64, len(targets)) + 1
        by_length = self.target_lengths // STEP * (self.source_lengths.max() + 1) + self.source_lengths
        self._order = LengthOrder(
            "PairedBatches", by_length, batch_size, seed=seed, rank=rank, world_size=world_size, pool=pool
        )

    def __len__(self) -> int:
        """Batches in an epoch, the same on every rank."""
        return self._order.steps

    def epoch(self, epoch: int, start: int = 0) -> Iterator[PairedBatch]:
        """This rank's batches of an epoch from number `start` on; they do not depend on what was read before.

        Torch's random state is left as it is. `start` = len(self) is the end of the epoch and gives nothing.
        """
        return map(self._collate, self._order.rows(epoch, start))

    def waste(self, epoch: int = 0) -> float:
        """The share of an epoch that is padding, of both sides and over all ranks."""
        return padding_share([self.source_lengths, self.target_lengths], self._order.shares(epoch))

    def _collate(self, rows: np.ndarray) -> PairedBatch:
        targets = [self.targets[row] for row in rows]
        return PairedBatch(
            source=pad_sequence([self.sources[row] for row in rows], padding_value=self.padding),
            source_lengths=torch.from_numpy(self.source_lengths[rows]),
            target_in=pad_sequence([torch.cat([self._start, each]) for each in targets], padding_value=self.padding),
            labels=pad_sequence([torch.cat([each, self._end]) for each in targets], padding_value=self.padding),
            target_lengths=torch.from_numpy(self.target_lengths[rows]),
            rows=torch.from_numpy(rows.copy()),
        )
