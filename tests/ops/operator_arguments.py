"""A case as the arguments of the operators themselves, in the order of their schemas."""

import torch

from ops.cases import Case, inputs
from quasirnn.ops import operators


def arguments(case: Case, dtype: torch.dtype) -> tuple[str, list]:
    """The forward operator's name and its arguments in the order of the schema."""
    tensors = inputs(case, dtype)
    state = tensors.get("h0", tensors.get("c0"))
    state = None if state is None else state.to(operators.state_type(dtype))
    lengths, num_gates = case.row_lengths(), len(case.pooling) + 1
    zoneout = [lengths, case.row_starts(), case.seed(), case.zoneout, num_gates]
    if case.function == "layer":
        head = [tensors["x"], tensors["weight"], tensors.get("bias"), tensors.get("context"), state]
        return "layer", [*head, *zoneout, case.steps_ahead, case.reverse, case.gates]
    if case.function == "fused":
        return "pool", [tensors["gates"], tensors.get("bias"), state, *zoneout, case.reverse, case.gates]
    a, b = (tensors["a"], tensors["b"]) if case.function == "linear" else (tensors["f"], tensors["z"])
    return "recurrence", [a, b, state, lengths, case.row_starts(), case.reverse]


def backward_arguments(case: Case, dtype: torch.dtype) -> tuple[str, list]:
    """The same for the operator that computes the gradient, from a forward that kept what it needs."""
    name, args = arguments(case, dtype)
    if name == "recurrence":
        a, _, state, *rows, reverse = args
        h, last = getattr(torch.ops.quasirnn, name)(*args)
        return "recurrence_backward", [torch.randn_like(h), torch.randn_like(last), a, h, state, *rows, reverse]
    h, last, c, activated = getattr(torch.ops.quasirnn, name)(*args[:-1], True)
    c = h if case.pooling == "f" else c
    # Now and then only some of the outputs were used.
    sent = [torch.randn_like(h), torch.randn_like(last), torch.randn_like(c), torch.randn_like(activated)]
    if not case.gates:
        sent[2:] = [None, None]
    bias, *kept = (args[2], *args[4:7]) if name == "layer" else args[1:5]
    bias_rows = 0 if bias is None else 1 if bias.dim() == 1 else case.B
    num_gates = len(case.pooling) + 1
    zoneout = case.zoneout if case.expected else 0.0
    if name == "pool":
        return "pool_backward", [*sent, activated, c, *kept, zoneout, num_gates, case.reverse, bias_rows]
    x, weight, context = args[0], args[1], args[3]
    tail = [*kept, zoneout, num_gates, case.steps_ahead, case.reverse, bias_rows, not case.state]
    return "layer_backward", [*sent, x, weight, context, activated, c, *tail]


def stack_arguments(
    dtype: torch.dtype,
    *,
    state: bool,
    bias: bool,
    dense: bool,
    zoneout: float = 0.0,
    T: int = 4,
    B: int = 3,
    widths: tuple = (3, 1, 2),
) -> list:
    """Layers of the given kernel widths with D = 2 and H = 5, and "fo" pooling."""
    D, H = 2, 5
    sizes = [D, *((D + n * H if dense else H) for n in range(1, len(widths)))]
    weights = [torch.randn(3 * H, k, size).to(dtype) for k, size in zip(widths, sizes, strict=True)]
    biases = [torch.randn(3 * H).to(dtype) for _ in widths] if bias else []
    context = max((k - 1) * size for k, size in zip(widths, sizes, strict=True))
    start = torch.randn(len(widths), B, H + context).to(operators.state_type(dtype)) if state else None
    if start is not None:
        for n, (k, size) in enumerate(zip(widths, sizes, strict=True)):
            start[n, :, H + (k - 1) * size :] = 0
    return [torch.randn(T, B, D).to(dtype), weights, biases, start, zoneout, 3, dense]
