"""A long sequence read as parallel streams, for models that carry their state from batch to batch."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quasirnn.errors import DataError

# The target that cross entropy leaves out, `ignore_index` of torch's.
IGNORE = -100


class Streams:
    """B streams side by side, read T steps at a time; the target is the input one step later.

    Column b of a window continues column b of the window before it: a state returned for one window is the right
    initial state for the next. The last window of a pass may be shorter. What is left after the text is cut into B
    equal streams, at most B - 1 tokens, is not read: for a figure on a text use `EvaluationStreams`.

    Of several ranks each holds its own B / world_size neighbouring columns, so that the ranks side by side are the
    streams of one process with the same B, and a window is the same stretch of text on every rank.

    >>> import torch
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

    >>> import torch
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
