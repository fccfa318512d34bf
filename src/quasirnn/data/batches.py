"""Batches for training and evaluation, of rows of similar length or of a long text read as parallel streams.

A batch is a dictionary of tensors. With rows, little is spent on padding, and nothing is cut: a task says how rows
become a batch (its `collate`); which rows those are is decided here. Streams are for models that carry their state from
batch to batch.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from quasirnn.errors import DataError

# Training sorts by length within pools of about so many batches: more is less padding, and less of a shuffle.
POOL = 200
# The target that cross entropy leaves out, `ignore_index` of torch's.
IGNORE = -100

Batch = dict[str, Tensor]
Collate = Callable[[np.ndarray], Batch]


class LengthBatches:
    """Training batches of rows of similar length, each row once per epoch, in an order drawn from (seed, epoch).

    The rows are shuffled and dealt into pools of about `pool` batches; each pool is sorted by length and cut into
    batches, and the batches of all pools are shuffled. N rows are divided evenly over ceil(N / batch_size) batches, so
    that none is left over and none is tiny: all have batch_size rows or a few less, at most one apart.

    Of several ranks each has every world_size-th row of a batch, so that the ranks together have the batch of one
    process, the same number of batches, and about the same work. Every rank has a row of every batch.

    >>> sequences = [torch.ones(length, dtype=torch.int64) for length in (3, 1, 2, 4)]
    >>> batches = LengthBatches(lengths_of(sequences), 2, lambda rows: pad("tokens", sequences, rows, 0))
    >>> [sorted(batch["tokens_lengths"].tolist()) for batch in batches.epoch(0)]
    [[1, 2], [3, 4]]

    Args:
        lengths: (N,), of whatever the rows are: what they are sorted by.
        batch_size: B, over all ranks.
        collate: makes a batch of the rows with some numbers.
        seed: of the order.
        rank: which share of every batch is read here, 0 to world_size - 1.
        world_size: over how many ranks batches are divided.
        pool: batches that are sorted together.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        collate: Collate,
        *,
        seed: int = 1,
        rank: int = 0,
        world_size: int = 1,
        pool: int = POOL,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"LengthBatches: batch_size must be at least 1, got {batch_size}")
        if not 0 <= rank < world_size:
            raise ValueError(f"LengthBatches: rank must be 0 to world_size - 1 = {world_size - 1}, got {rank}")
        if not len(lengths):
            raise ValueError("LengthBatches: there are no sequences")
        if not lengths.min() > 0:
            raise ValueError(
                f"LengthBatches: every sequence needs at least one token, sequence {int(lengths.argmin())} has none"
            )
        if min(batch_size, len(lengths)) < world_size:
            raise DataError(
                f"LengthBatches: {len(lengths)} sequences in batches of {batch_size} cannot be divided among "
                f"{world_size} ranks; every rank needs a row of every batch. Use a larger batch_size"
            )
        # The second where a batch would be smaller than the number of ranks: it has a few rows more instead.
        self._steps = min(-(-len(lengths) // batch_size), len(lengths) // world_size)
        self._lengths, self._collate = lengths, collate
        self._seed, self._rank, self._world_size = seed, rank, world_size
        # Batch number n of the sorted pools is rows borders[n] to borders[n + 1].
        self._borders = [len(lengths) * number // self._steps for number in range(self._steps + 1)]
        pools = max(1, round(self._steps / pool))
        self._pools = [self._borders[self._steps * number // pools] for number in range(pools + 1)]

    def __len__(self) -> int:
        """Batches in an epoch, the same on every rank."""
        return self._steps

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's batches of an epoch from number `start` on; they do not depend on what was read before.

        Torch's random state is left as it is. `start` = len(self) is the end of the epoch and gives nothing.
        """
        if not 0 <= start <= self._steps:
            raise ValueError(
                f"LengthBatches: an epoch has {self._steps} batches, so start must be 0 to {self._steps}, got {start}"
            )
        return (self._collate(rows[self._rank :: self._world_size]) for rows in self.order(epoch)[start:])

    def order(self, epoch: int) -> list[np.ndarray]:
        """The rows of every batch of an epoch, over all ranks."""
        # Raw numbers of a named generator: their order is the same in every release, as a shuffle's might not be.
        digest = hashlib.sha256(f"{self._seed} {epoch}".encode()).digest()
        draw = np.random.PCG64(int.from_bytes(digest, "big")).random_raw
        shuffled = np.argsort(draw(len(self._lengths)), kind="stable")
        pools = [shuffled[first:last] for first, last in pairwise(self._pools)]
        by_length = np.concatenate([pool[np.argsort(self._lengths[pool], kind="stable")] for pool in pools])
        batches = [by_length[first:last] for first, last in pairwise(self._borders)]
        return [batches[number] for number in np.argsort(draw(self._steps), kind="stable")]


class EvaluationBatches:
    """Batches for a figure, or for texts to work on: all sequences sorted by length, and results put back in order.

    >>> sequences = [torch.ones(length, dtype=torch.int64) for length in (3, 1, 2)]
    >>> batches = EvaluationBatches(lengths_of(sequences), lambda rows: pad("tokens", sequences, rows, 0), batch_size=2)
    >>> results = [batch["tokens_lengths"] for batch in batches]
    >>> results, batches.restore(results)
    ([tensor([1, 2]), tensor([3])], tensor([3, 1, 2]))

    Args:
        lengths, collate: as of `LengthBatches`.
        batch_size: the most rows of a batch.
        max_tokens: the most tokens of a batch, padding included, whatever its rows; one sequence may have more.
    """

    def __init__(
        self, lengths: np.ndarray, collate: Collate, *, batch_size: int, max_tokens: int | None = None
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"EvaluationBatches: batch_size must be at least 1, got {batch_size}")
        self._collate = collate
        self._order = np.argsort(lengths, kind="stable")
        borders = [0]
        for place, row in enumerate(self._order):
            rows = place - borders[-1] + 1
            # Sorted, so that this row is the longest yet.
            if rows > batch_size or (max_tokens is not None and rows > 1 and rows * lengths[row] > max_tokens):
                borders.append(place)
        self.rows = [self._order[first:last] for first, last in pairwise([*borders, len(lengths)]) if last > first]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Batch]:
        return map(self._collate, self.rows)

    def restore(self, results: Sequence[Tensor]) -> Tensor:
        """What each batch gave, (B, ...), as one tensor (N, ...) in the order of the sequences."""
        in_order = torch.cat(list(results))
        restored = torch.empty_like(in_order)
        restored[torch.from_numpy(self._order).to(restored.device)] = in_order
        return restored


def lengths_of(sequences: Sequence[Tensor], max_length: int | None = None) -> np.ndarray:
    """(N,): how many tokens of each sequence are read."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    return lengths if max_length is None else lengths.clip(max=max_length)


def pad(
    name: str,
    sequences: Sequence[Tensor],
    rows: np.ndarray,
    padding: int,
    max_length: int | None = None,
    multiple: int = 1,
) -> Batch:
    """Some sequences as columns of one tensor NAME, (T, B), padded at the end, and NAME_lengths, (B,).

    T is the length of the longest, rounded up to a multiple of `multiple`.
    """
    chosen = [sequences[row][:max_length] for row in rows]
    padded = pad_sequence(chosen, padding_value=padding)
    return {
        name: functional.pad(padded, (0, 0, 0, -len(padded) % multiple), value=padding),
        f"{name}_lengths": torch.tensor([len(each) for each in chosen]),
    }


def padded_batches(
    name: str,
    ids: Sequence[Tensor],
    padding: int,
    *,
    max_length: int | None = None,
    batch_size: int = 64,
    max_tokens: int = 16_384,
) -> EvaluationBatches:
    """Encoded texts in batches, as models take them outside training: NAME, (T, B), and NAME_lengths, (B,)."""
    lengths = lengths_of(ids, max_length)
    collate = partial(pad, name, ids, padding=padding, max_length=max_length)
    return EvaluationBatches(lengths, collate, batch_size=batch_size, max_tokens=max_tokens)


def to_device(batch: Batch, device: torch.device | str) -> Batch:
    return {name: tensor.to(device) for name, tensor in batch.items()}


class Streams:
    """B streams side by side, read T steps at a time; the target is the input one step later.

    Column b of a window continues column b of the window before it: a state returned for one window is the right
    initial state for the next. The last window of a pass may be shorter. What is left after the text is cut into B
    equal streams, at most B - 1 tokens, is not read: for a figure on a text use `EvaluationStreams`.

    Of several ranks each holds its own B / world_size neighbouring columns, so that the ranks side by side are the
    streams of one process with the same B, and a window is the same stretch of text on every rank.

    >>> for x, y in Streams(torch.arange(9), batch_size=2, length=3):
    ...     print(x.T.tolist(), y.T.tolist())
    [[0, 1, 2], [4, 5, 6]] [[1, 2, 3], [5, 6, 7]]
    [[3], [7]] [[4], [8]]

    Args:
        ids: the whole text, (N,).
        batch_size: B, the number of streams over all ranks.
        length: T, the steps of a window.
        rank: which share of the streams is read here, 0 to world_size - 1.
        world_size: over how many ranks the streams are divided.
    """

    def __init__(self, ids: Tensor, batch_size: int, length: int, *, rank: int = 0, world_size: int = 1) -> None:
        _check_sizes("Streams", batch_size, length)
        if not 0 <= rank < world_size:
            raise DataError(f"Streams: rank must be 0 to world_size - 1 = {world_size - 1}, got {rank}")
        if batch_size % world_size:
            raise DataError(
                "Streams: batch_size is the global one and must be divisible by the number of ranks, got batch_size "
                f"{batch_size} over {world_size}. batch_size={-(-batch_size // world_size) * world_size}?"
            )
        steps = (len(ids) - 1) // batch_size
        if steps < 1:
            raise DataError(
                f"Streams: a sequence of {len(ids)} cannot be split into {batch_size} streams; at least "
                f"{batch_size + 1} are needed. Use a smaller batch_size"
            )
        share = batch_size // world_size
        first = rank * share * steps
        last = first + share * steps
        self.inputs = ids[first:last].view(share, steps).T.contiguous()  # (steps, B / world_size)
        self.targets = ids[first + 1 : last + 1].view(share, steps).T.contiguous()  # (steps, B / world_size)
        self.batch_size = batch_size
        self.length = length

    def __len__(self) -> int:
        """Windows in a pass over the text, the same on every rank."""
        return -(-len(self.inputs) // self.length)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over the text, from the start of every stream."""
        return self.windows()

    def windows(self, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The rest of a pass from window number `start`: nothing before it is touched, so a resumed run starts at once.

        `start` = len(self) is the end of the pass and gives nothing.
        """
        if not 0 <= start <= len(self):
            raise DataError(f"Streams: a pass has {len(self)} windows, so start must be 0 to {len(self)}, got {start}")
        return (self._window(number) for number in range(start, len(self)))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[dict[str, Tensor]]:
        """The windows as training batches. The text is read in its order in every epoch: nothing is drawn."""
        return ({"tokens": x, "targets": y} for x, y in self.windows(start))

    def _window(self, number: int) -> tuple[Tensor, Tensor]:
        steps = slice(number * self.length, (number + 1) * self.length)
        return self.inputs[steps], self.targets[steps]


class EvaluationStreams:
    """Windows in which every token after the first is a target exactly once: none is lost, whatever B and T are.

    With `batch_size` 1, the default, every token is predicted with the whole text before it as context: exact, and a
    QRNN loses little by it, as a long window fills its matrix products as well as a broad one. With B > 1 the later
    streams begin in the middle of the text; each first reads `context` tokens from before its part, which are not
    targets, to warm its state. Targets to leave out, those and the filling at the end of the last stream, are IGNORE.

    >>> for x, y in EvaluationStreams(torch.arange(8), batch_size=2, length=3, context=1):
    ...     print(x.T.tolist(), y.T.tolist())
    [[0, 1, 2], [3, 4, 5]] [[1, 2, 3], [-100, 5, 6]]
    [[3], [6]] [[4], [7]]

    Args:
        ids: the whole text, (N,); N - 1 of its tokens are predicted, that is `targets`.
        length: T, the steps of a window.
        batch_size: B, the number of streams.
        context: how many tokens the streams after the first read beforehand; no use with batch_size 1.
    """

    def __init__(self, ids: Tensor, length: int, *, batch_size: int = 1, context: int = 0) -> None:
        _check_sizes("EvaluationStreams", batch_size, length)
        if context < 0:
            raise DataError(f"EvaluationStreams: context must be at least 0, got {context}")
        if len(ids) < 2:
            raise DataError(f"EvaluationStreams: a text of {len(ids)} is too short; at least 2 are needed")
        self.ids = ids
        self.length = length
        self.batch_size = batch_size
        self.targets = len(ids) - 1
        # More context than text is the whole text.
        self.context = min(context, self.targets - 1) if batch_size > 1 else 0
        # All streams read equally far. The first counts all of it, the others all but their context:
        # steps + (B - 1) (steps - context) >= targets.
        self.steps = -(-(self.targets + (batch_size - 1) * self.context) // batch_size)

    def __len__(self) -> int:
        return -(-self.steps // self.length)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        stride = self.steps - self.context
        starts = torch.arange(self.batch_size) * stride  # (B,)
        for first in range(0, self.steps, self.length):
            step = torch.arange(first, min(first + self.length, self.steps)).unsqueeze(1)  # (T, 1)
            place = starts + step  # (T, B)
            x = self.ids[place.clamp(max=self.targets)]
            y = self.ids[(place + 1).clamp(max=self.targets)]
            warming = (step < self.context) & (starts > 0)
            yield x, y.masked_fill(warming | (place >= self.targets), IGNORE)


def _check_sizes(who: str, batch_size: int, length: int) -> None:
    for name, size in (("batch_size", batch_size), ("length", length)):
        if size < 1:
            raise DataError(f"{who}: {name} must be at least 1, got {size}")
