"""Sequences and states as the caller of a QRNN has them, and as its layers do.

Inside, every sequence is time-major, (T, B, D), and every layer and direction has a state of its own.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from quasirnn.nn.layer import LayerState, QRNNLayer, QRNNLayerOutput
from quasirnn.ops import checks, torch_internals
from quasirnn.ops.sequences import Rows

State = tuple[Tensor, Tensor]


class Layout(NamedTuple):
    """Makes the caller's tensors time-major, and back: `batch_first` and unbatched input are handled here."""

    batch_first: bool
    has_batch: bool

    @classmethod
    def of(cls, x: Any, input_size: int, batch_first: bool) -> "Layout":
        """The layout of an input, checked."""
        with torch_internals.untraced():
            x = checks.is_float("QRNN", "input", x)
            sizes = "(B, T, D)" if batch_first else "(T, B, D)"
            if x.dim() not in (2, 3):
                raise checks.ShapeError(
                    f"QRNN: input must have shape {sizes}, or (T, D) without a batch, got {tuple(x.shape)}."
                )
            if x.shape[-1] != input_size:
                hint = " Is its last dimension the features?" if input_size in x.shape else ""
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
        """A mask of the steps, of the input's shape without the features. What is wrong with it is checked later."""
        if not isinstance(mask, Tensor) or mask.dim() != 1 + self.has_batch:
            return mask
        return self.time_major(mask)

    def restored(self, x: Tensor) -> Tensor:
        if not self.has_batch:
            return x.squeeze(1)
        return x.transpose(0, 1) if self.batch_first else x

    def batched(self, state: Any) -> Any:
        """The state of an unbatched input has no batch dimension either. What is wrong with it is checked later."""
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


def check_state(state: Any, layers: list[QRNNLayer], C: int, B: int, x: Tensor) -> bool:
    """Whether a state, checked, has C columns of last inputs after its cells: the context of the convolutions."""
    if state is None:
        return False
    count, H = len(layers), layers[0].hidden_size
    if not isinstance(state, tuple | list) or len(state) != 2:
        hint = " One tensor is a GRU's state; here it is a pair, as an LSTM's." if isinstance(state, Tensor) else ""
        raise TypeError(
            f"QRNN: hx must be the pair (h, c) that an earlier call returned, got {checks.type_name(state)}.{hint}"
        )
    h, c = state
    checks.shaped("QRNN", "hx[0]", h, "(num_layers * directions, B, H)", (count, B, H), x)
    checks.is_float("QRNN", "hx[1]", c)
    if c.dim() != 3 or c.shape[:2] != (count, B) or c.shape[-1] not in (H, H + C):
        also = f" (or {H + C} columns, with the last inputs, as returned)" if C else ""
        # The state of another QRNN, an encoder's for instance: its last inputs mean nothing here.
        other = c.dim() == 3 and c.shape[:2] == (count, B) and c.shape[-1] > H
        hint = f" The cells of another QRNN, without its last inputs, are c[..., :{H}]." if other else ""
        raise checks.ShapeError(f"QRNN: hx[1] must have shape {(count, B, H)}{also}, got {tuple(c.shape)}.{hint}")
    checks.same_device("QRNN", "hx[1]", c, "the input", x)
    has_context = C > 0 and c.shape[-1] == H + C
    if has_context and is_readable(c):
        _check_unused_columns(c.detach(), layers, H, C)
    return has_context


def is_readable(c: Tensor) -> bool:
    """Whether checking values costs little: not in a traced program, nor where a GPU would be synchronised."""
    return c.device.type == "cpu" and not torch.compiler.is_compiling() and not torch_internals.transforming()


def _check_unused_columns(c: Tensor, layers: list[QRNNLayer], H: int, C: int) -> None:
    """After the context of a narrow layer come zeros; anything else is the context of another network."""
    for n, layer in enumerate(layers):
        used = layer.context_size * layer.input_size
        if used < C and bool(c[n, :, H + used :].any()):
            raise checks.ShapeError(
                f"QRNN: hx is the state of another network: columns {H + used} to {H + C - 1} of hx[1][{n}] are "
                f"not zero, and this one's layer {n} has {used} inputs in its window. The cells of another QRNN, "
                f"without its last inputs, are c[..., :{H}]."
            )


def split_state(state: State | None, layers: list[QRNNLayer], has_context: bool) -> list[LayerState | None]:
    """The pair (h, c) as one state per layer and direction. h is not used: it follows from c."""
    if state is None:
        return [None] * len(layers)
    c, H = state[1], layers[0].hidden_size
    states: list[LayerState | None] = []
    for n, layer in enumerate(layers):
        context = None
        if has_context and layer.context_size:
            size = layer.context_size * layer.input_size
            context = c[n, :, H : H + size].reshape(c.shape[1], layer.context_size, layer.input_size)
        states.append(LayerState(c[n, :, :H], context))
    return states


def join_state(results: list[QRNNLayerOutput], layers: list[QRNNLayer], C: int, rows: Rows) -> State:
    """(h_n, c_n) from each layer's result: outputs at each row's own end; cells, then C columns of last inputs."""
    h_n, c_n = [], []
    lengths = rows.lengths
    for layer, result in zip(layers, results, strict=True):
        if rows.packed is not None:
            h_n.append(result.h[rows.packed.ends(layer.reverse), 0])
        elif layer.reverse:
            h_n.append(result.h[0])
        elif lengths is None:
            h_n.append(result.h[-1])
        else:
            h_n.append(result.h[lengths - 1, torch.arange(lengths.shape[0], device=lengths.device)])
        c, context = result.state
        if C:
            if context is not None:
                c = torch.cat([c, context.flatten(1).to(c.dtype)], dim=1)
            missing = C - layer.context_size * layer.input_size
            c = functional.pad(c, (0, missing)) if missing else c
        c_n.append(c)
    # A copy even of one layer's: a state that is kept must not hold the whole output's memory.
    return torch.stack(h_n), torch.stack(c_n)
