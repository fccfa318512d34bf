"""Batches of sequences of similar length, with their true lengths: little is spent on padding, and nothing is cut."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

# Training sorts by length within pools of about so many batches: more is less padding, and less of a shuffle.
POOL = 200


@dataclass(frozen=True)
class Batch:
    """Sequences side by side, longest first or last; column b is sequence number `rows[b]`."""

    tokens: Tensor  # (T, B), int64, padded at the end
    lengths: Tensor  # (B,), int64
    labels: Tensor | None  # (B,), int64
    rows: Tensor  # (B,), int64

    def to(self, device: torch.device | str) -> "Batch":
        labels = None if self.labels is None else self.labels.to(device)
        return Batch(self.tokens.to(device), self.lengths.to(device), labels, self.rows.to(device))


class LengthOrder:
    """Which rows are a training batch: of similar length, each once in an epoch, drawn anew from (seed, epoch).

    The rows are shuffled and dealt into pools of about `pool` batches; each pool is sorted by length and cut into
    batches, and the batches of all pools are shuffled. N rows are divided evenly over ceil(N / batch_size) batches, so
    that none is left over and none is tiny: all have batch_size rows or a few less, at most one apart.

    Of several ranks each has every world_size-th row of a batch, so that the ranks together have the batch of one
    process, the same number of batches, and about the same work. Every rank has a row of every batch.

    Args:
        who: whose batches they are, for error messages.
        lengths: (N,), of whatever the rows are.
        batch_size, seed, rank, world_size, pool: as of `LengthBatches`.
    """

    def __init__(
        self, who: str, lengths: np.ndarray, batch_size: int, *, seed: int, rank: int, world_size: int, pool: int
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"{who}: rank must be 0 to world_size - 1 = {world_size - 1}, got {rank}")
        if min(batch_size, len(lengths)) < world_size:
            raise ValueError(
                f"{who}: {len(lengths)} sequences in batches of {batch_size} cannot be divided over "
                f"{world_size} ranks; every rank needs a row of every batch. A larger batch_size?"
            )
        # The second where a batch would be smaller than the number of ranks: it has a few rows more instead.
        self.steps = min(-(-len(lengths) // batch_size), len(lengths) // world_size)
        self.who, self.lengths = who, lengths
        self.seed, self.rank, self.world_size = seed, rank, world_size
        # Batch number n of the sorted pools is rows borders[n] to borders[n + 1].
        self._borders = [len(lengths) * number // self.steps for number in range(self.steps + 1)]
        pools = max(1, round(self.steps / pool))
        self._pools = [self._borders[self.steps * number // pools] for number in range(pools + 1)]

    def rows(self, epoch: int, start: int = 0) -> list[np.ndarray]:
        """This rank's rows of every batch of an epoch from number `start` on."""
        if not 0 <= start <= self.steps:
            raise ValueError(
                f"{self.who}: an epoch has {self.steps} batches, so start must be 0 to {self.steps}, got {start}"
            )
        return [rows[self.rank :: self.world_size] for rows in self._order(epoch)[start:]]

    def shares(self, epoch: int) -> list[np.ndarray]:
        """The rows of every batch of every rank."""
        return [rows[rank :: self.world_size] for rows in self._order(epoch) for rank in range(self.world_size)]

    def _order(self, epoch: int) -> list[np.ndarray]:
        """The rows of every batch of an epoch, over all ranks."""
        # Raw numbers of a named generator: their order is the same in every release, as a shuffle's might not be.
        digest = hashlib.sha256(f"{self.seed} {epoch}".encode()).digest()
        draw = np.random.PCG64(int.from_bytes(digest, "big")).random_raw
        shuffled = np.argsort(draw(len(self.lengths)), kind="stable")
        pools = [shuffled[first:last] for first, last in pairwise(self._pools)]
        by_length = np.concatenate([pool[np.argsort(self.lengths[pool], kind="stable")] for pool in pools])
        batches = [by_length[first:last] for first, last in pairwise(self._borders)]
        return [batches[number] for number in np.argsort(draw(self.steps), kind="stable")]


class LengthBatches:
    """Training batches: in every epoch each sequence once, in an order drawn anew by `LengthOrder`.

    >>> sequences = [torch.ones(length, dtype=torch.int64) for length in (3, 1, 2, 4)]
    >>> batches = LengthBatches(sequences, torch.tensor([0, 1, 0, 1]), batch_size=2, padding=0)
    >>> [sorted(batch.lengths.tolist()) for batch in batches.epoch(0)]
    [[1, 2], [3, 4]]

    Args:
        sequences: of token numbers, each (T,), int64, T at least 1.
        labels: (N,), int64.
        batch_size: B, over all ranks.
        padding: the number to fill up with.
        rank: which share of every batch is read here, 0 to world_size - 1.
        world_size: over how many ranks batches are divided.
        max_length: cut longer sequences after so many tokens; by default none is.
        pool: batches that are sorted together.
    """

    def __init__(
        self,
        sequences: Sequence[Tensor],
        labels: Tensor,
        batch_size: int,
        *,
        padding: int,
        seed: int = 1,
        rank: int = 0,
        world_size: int = 1,
        max_length: int | None = None,
        pool: int = POOL,
    ) -> None:
        check_sequences("LengthBatches", sequences, labels, batch_size, max_length)
        self.sequences, self.labels, self.padding, self.max_length = sequences, labels, padding, max_length
        self.lengths = _lengths(sequences, max_length)
        self.truncated = sum(len(each) > length for each, length in zip(sequences, self.lengths, strict=True))
        self._order = LengthOrder(
            "LengthBatches", self.lengths, batch_size, seed=seed, rank=rank, world_size=world_size, pool=pool
        )

    def __len__(self) -> int:
        """Batches in an epoch, the same on every rank."""
        return self._order.steps

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's batches of an epoch from number `start` on; they do not depend on what was read before.

        Torch's random state is left as it is. `start` = len(self) is the end of the epoch and gives nothing.
        """
        return (
            _collate(self.sequences, self.labels, rows, self.padding, self.max_length)
            for rows in self._order.rows(epoch, start)
        )

    def waste(self, epoch: int = 0) -> float:
        """The share of an epoch that is padding, over all ranks."""
        return padding_share([self.lengths], self._order.shares(epoch))


class EvaluationBatches:
    """Batches for a figure, or for texts to classify: all sequences sorted by length, and results put back in order.

    >>> sequences = [torch.ones(length, dtype=torch.int64) for length in (3, 1, 2)]
    >>> batches = EvaluationBatches(sequences, batch_size=2, padding=0)
    >>> results = [batch.lengths for batch in batches]
    >>> results, batches.restore(results)
    ([tensor([1, 2]), tensor([3])], tensor([3, 1, 2]))

    Args:
        sequences, padding, max_length: as of `LengthBatches`.
        labels: (N,), int64, or None.
        batch_size: the most rows of a batch.
        max_tokens: the most tokens of a batch, padding included, whatever its rows; one sequence may have more.
    """

    def __init__(
        self,
        sequences: Sequence[Tensor],
        labels: Tensor | None = None,
        *,
        batch_size: int,
        padding: int,
        max_length: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        check_sequences("EvaluationBatches", sequences, labels, batch_size, max_length)
        self.sequences, self.labels, self.padding, self.max_length = sequences, labels, padding, max_length
        self.lengths = _lengths(sequences, max_length)
        self.order = np.argsort(self.lengths, kind="stable")
        self._borders = [0]
        for place, row in enumerate(self.order):
            rows = place - self._borders[-1] + 1
            # Sorted, so that this row is the longest yet.
            if rows > batch_size or (max_tokens is not None and rows > 1 and rows * self.lengths[row] > max_tokens):
                self._borders.append(place)
        self._borders.append(len(sequences))

    def __len__(self) -> int:
        return len(self._borders) - 1

    def __iter__(self) -> Iterator[Batch]:
        for rows in self._batches():
            yield _collate(self.sequences, self.labels, rows, self.padding, self.max_length)

    def restore(self, results: Sequence[Tensor]) -> Tensor:
        """What each batch gave, (B, ...), as one tensor (N, ...) in the order of the sequences."""
        sorted_results = torch.cat(list(results))
        restored = torch.empty_like(sorted_results)
        restored[torch.from_numpy(self.order).to(restored.device)] = sorted_results
        return restored

    def waste(self) -> float:
        """The share that is padding."""
        return padding_share([self.lengths], self._batches())

    def _batches(self) -> list[np.ndarray]:
        return [self.order[first:last] for first, last in pairwise(self._borders)]


def _collate(
    sequences: Sequence[Tensor], labels: Tensor | None, rows: np.ndarray, padding: int, max_length: int | None
) -> Batch:
    chosen = [sequences[row][:max_length] for row in rows]
    numbers = torch.from_numpy(rows.copy())
    return Batch(
        tokens=pad_sequence(chosen, padding_value=padding),
        lengths=torch.tensor([len(each) for each in chosen]),
        labels=None if labels is None else labels[numbers],
        rows=numbers,
    )


def _lengths(sequences: Sequence[Tensor], max_length: int | None) -> np.ndarray:
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    return lengths if max_length is None else lengths.clip(max=max_length)


def padding_share(lengths: Sequence[np.ndarray], batches: Sequence[np.ndarray]) -> float:
    """How much of batches is padding, each of whose rows has a sequence of every kind, of `lengths[kind][row]`."""
    padded = sum(len(rows) * int(each[rows].max()) for rows in batches for each in lengths)
    return 1 - sum(int(each.sum()) for each in lengths) / padded


def check_sequences(
    who: str, sequences: Sequence[Tensor], labels: Tensor | None, batch_size: int, max_length: int | None
) -> None:
    for name, size in (("batch_size", batch_size), ("max_length", max_length)):
        if size is not None and size < 1:
            raise ValueError(f"{who}: {name} must be at least 1, got {size}")
    if not len(sequences):
        raise ValueError(f"{who}: there are no sequences")
    if labels is not None and labels.shape != (len(sequences),):
        raise ValueError(f"{who}: labels must be (N,) = ({len(sequences)},), one a sequence, got {tuple(labels.shape)}")
    empty = next((number for number, each in enumerate(sequences) if not len(each)), None)
    if empty is not None:
        raise ValueError(f"{who}: every sequence must have a token, sequence number {empty} has none")
