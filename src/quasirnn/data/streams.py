"""A long sequence read as parallel streams, for models that carry their state from batch to batch."""

from collections.abc import Iterator

from torch import Tensor


class Streams:
    """B streams side by side, read T steps at a time; the target is the input one step later.

    Column b of a window continues column b of the window before it: a state returned for one window is the right
    initial state for the next. The last window of a pass may be shorter.

    >>> import torch
    >>> for x, y in Streams(torch.arange(9), batch_size=2, length=3):
    ...     print(x.T.tolist(), y.T.tolist())
    [[0, 1, 2], [4, 5, 6]] [[1, 2, 3], [5, 6, 7]]
    [[3], [7]] [[4], [8]]
    """

    def __init__(self, ids: Tensor, batch_size: int, length: int) -> None:
        steps = (len(ids) - 1) // batch_size
        if steps < 1:
            raise ValueError(
                f"Streams: a sequence of {len(ids)} cannot be cut into {batch_size} streams; "
                f"at least {batch_size + 1} are needed. A smaller batch_size?"
            )
        used = steps * batch_size
        self.inputs = ids[:used].view(batch_size, steps).T.contiguous()  # (steps, B)
        self.targets = ids[1 : used + 1].view(batch_size, steps).T.contiguous()  # (steps, B)
        self.length = length

    def __len__(self) -> int:
        return -(-len(self.inputs) // self.length)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over the text, from the start of every stream."""
        return zip(self.inputs.split(self.length), self.targets.split(self.length), strict=True)
