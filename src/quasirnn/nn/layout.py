"""The form in which the caller holds a sequence. Inside, everything is time-major, (T, B, D)."""

from typing import Any, NamedTuple

from torch import Tensor

from quasirnn.ops import checks, torch_internals

State = tuple[Tensor, Tensor]


class Layout(NamedTuple):
    """Turns the caller's tensors into time-major ones and back; the only place that knows of `batch_first`."""

    batch_first: bool
    has_batch: bool

    @classmethod
    def of(cls, x: Any, input_size: int, batch_first: bool) -> "Layout":
        """The layout of an input, checked."""
        with torch_internals.untraced():
            return cls._checked(x, input_size, batch_first)

    @classmethod
    def _checked(cls, x: Any, input_size: int, batch_first: bool) -> "Layout":
        x = checks.is_float("QRNN", "input", x)
        sizes = "(B, T, D)" if batch_first else "(T, B, D)"
        if x.dim() not in (2, 3):
            raise checks.ShapeError(
                f"QRNN: input must have shape {sizes}, or (T, D) without a batch, got {tuple(x.shape)}."
            )
        if x.shape[-1] != input_size:
            hint = ""
            if input_size in x.shape:
                hint = " Is its last dimension the features?"
            raise checks.ShapeError(
                f"QRNN: the last dimension of input must be input_size = {input_size}, "
                f"got shape {tuple(x.shape)}.{hint}"
            )
        layout = cls(batch_first, has_batch=x.dim() == 3)
        if x.shape[1 if layout.has_batch and batch_first else 0] == 0:
            raise checks.ShapeError(f"QRNN: input has no time steps, shape {tuple(x.shape)}; T must be at least 1.")
        return layout

    def time_major(self, x: Tensor) -> Tensor:
        if not self.has_batch:
            return x.unsqueeze(1)
        return x.transpose(0, 1) if self.batch_first else x

    def of_steps(self, mask: Any) -> Any:
        """A mask of the steps, of the input's shape without the features. Anything odd passes, to be refused later."""
        if not isinstance(mask, Tensor) or mask.dim() != 1 + self.has_batch:
            return mask
        return self.time_major(mask)

    def restored(self, x: Tensor) -> Tensor:
        if not self.has_batch:
            return x.squeeze(1)
        return x.transpose(0, 1) if self.batch_first else x

    def batched(self, state: Any) -> Any:
        """The state of an unbatched input has no batch dimension either. Anything odd passes, to be refused later."""
        if self.has_batch or not isinstance(state, tuple | list):
            return state
        for part in state:
            if isinstance(part, Tensor) and part.dim() != 2:
                raise checks.ShapeError(
                    f"QRNN: without a batch, h and c of the state must have 2 dimensions (num_layers * directions, H), "
                    f"got {tuple(part.shape)}."
                )
        return tuple(part.unsqueeze(1) if isinstance(part, Tensor) else part for part in state)

    def unbatched_state(self, state: State) -> State:
        return state if self.has_batch else (state[0].squeeze(1), state[1].squeeze(1))
