"""The whole stack in the words of `quasirnn.ops.reference`: what `QRNN` must compute, layer by layer, in plain loops.

It shares nothing with `quasirnn.nn` but the names of the parameters and of the settings, which it reads from a module.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from quasirnn import QRNN
from quasirnn.ops import reference

DIRECTIONS = ("forwards", "backwards")


class Result(NamedTuple):
    output: Tensor  # (T, B, directions * H)
    h_n: Tensor  # (layers * directions, B, H)
    cells: Tensor  # (layers * directions, B, H)
    contexts: list[Tensor]  # per layer and direction the last k - 1 inputs, (B, k - 1, D)


def parameters_of(rnn: QRNN, dtype: torch.dtype) -> dict[str, Tensor]:
    """The module's parameters as leaves of their own, in another type."""
    return {name: p.detach().to(dtype, copy=True).requires_grad_() for name, p in rnn.named_parameters()}


def run(
    rnn: QRNN,
    parameters: dict[str, Tensor],
    x: Tensor,
    cells: Tensor | None = None,
    contexts: list[Tensor | None] | None = None,
    lengths: Tensor | None = None,
) -> Result:
    """The stack of a module's settings on given parameters, as in eval: zoneout's expectation; x is (T, B, D)."""
    directions = DIRECTIONS[: 2 if rnn.bidirectional else 1]
    h_n, new_cells, new_contexts = [], [], []
    for depth, k in enumerate(rnn.kernel_sizes):
        outputs = []
        for direction in directions:
            n = len(new_cells)
            reverse = direction == "backwards"
            context = None if contexts is None else contexts[n]
            weight = parameters[f"layers.{n}.weight"]
            assert weight.shape[1:] == (k, x.shape[2]), f"layer {depth} must see all of its input"
            pre = reference.convolve(
                x, weight, context, look_ahead=0 if rnn.causal else k // 2, reverse=reverse, lengths=lengths
            )
            h, c = reference.pool(
                pre,
                None if cells is None else cells[n],
                bias=parameters.get(f"layers.{n}.bias"),
                pooling=rnn.pooling,
                zoneout=rnn.zoneout,
                reverse=reverse,
                lengths=lengths,
            )
            outputs.append(h)
            h_n.append(h[0] if reverse else ends(h, lengths))
            new_cells.append(c)
            new_contexts.append(last_inputs(x, context, k - 1, lengths))
        output = torch.cat(outputs, dim=-1)
        x = torch.cat([x, output], dim=-1) if rnn.dense else output
    return Result(output, torch.stack(h_n), torch.stack(new_cells), new_contexts)


def ends(h: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row at its own last step."""
    if lengths is None:
        return h[-1]
    return torch.stack([h[length - 1, row] for row, length in enumerate(lengths.tolist())])


def last_inputs(x: Tensor, context: Tensor | None, n: int, lengths: Tensor | None) -> Tensor:
    """Each row's last n inputs, zeros or the context before its first."""
    T, B, D = x.shape
    rows = []
    for row, length in enumerate([T] * B if lengths is None else lengths.tolist()):
        before = x.new_zeros(n, D) if context is None else context[row]
        whole = torch.cat([before, x[:length, row]])
        rows.append(whole[len(whole) - n :])
    return torch.stack(rows)


def assert_right(name: str, ours: Tensor, plain: Tensor, truth: Tensor) -> float:
    """GUARANTEES.md, "Right": error at most 2 e_plain + 4 eps max|ref|, e_plain that of plain PyTorch in the same type.

    Returns the error as a part of what is allowed.
    """
    assert ours.shape == truth.shape, f"{name}: {tuple(ours.shape)} in place of {tuple(truth.shape)}"
    size = truth.abs().max().item()
    error = (ours.double() - truth).abs().max().item()
    allowed = 2 * (plain.double() - truth).abs().max().item() + 4 * torch.finfo(ours.dtype).eps * size
    assert error <= allowed, f"{name}: error {error:.3g}, allowed {allowed:.3g}, largest value {size:.3g}"
    return error / allowed if error else 0.0


def describe(case: dict) -> str:
    """A short name for a case of the samples."""
    sizes = " ".join(f"{name}{case[name]}" for name in "TBDH")
    widths = ",".join(map(str, case["kernel_size"]))
    return " ".join([sizes, f"k{widths}", case["pooling"], *(name for name in case if case[name] is True)])
