"""The operators in plain PyTorch: for devices without kernels, and where nothing could be compiled.

Forward is the reference in the type the state has. Backward uses that the adjoint of a recurrence is a recurrence read
the other way: with D[t] the total gradient of h[t], D[t] = g[t] + a[t+1] * D[t+1].
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from quasirnn.ops import reference
from quasirnn.ops.random_masks import kept_elements
from quasirnn.ops.sequences import after_first, cuts, outside_window, padding_of, without

# The number of gates names the pooling.
POOLINGS = {2: "f", 3: "fo", 4: "ifo"}
# The target of a row that does not count, as in torch's cross_entropy.
IGNORED = -100


def wide(x: Tensor) -> Tensor:
    """16-bit types are computed in float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _or_zeros(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else wide(grad)


def step_before(x: Tensor, first: Tensor, reverse: bool, lengths: Tensor | None, starts: Tensor | None) -> Tensor:
    """x one step earlier in the order of reading: `first`, (B, H), at a row's first step, zero at later starts."""
    cut = cuts(starts, reverse, lengths)
    if not reverse:
        return without(torch.cat([first[None], x[:-1]]), cut)
    before = torch.cat([x[1:], first[None]])
    if lengths is None:
        return without(before, cut)
    t = torch.arange(x.shape[0], device=x.device)[:, None]
    return without(torch.where((t == lengths - 1)[:, :, None], first, before), cut)


def adjoint(
    recur: Callable[..., tuple[Tensor, Tensor]],
    a: Tensor,
    grad: Tensor,
    grad_last: Tensor,
    reverse: bool,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The total gradient D of every h[t], and of h0, from the gradient that reaches each h[t] directly.

    In the recurrence read the other way the factor at t is that of the step after it; the last step has none.
    """
    starts_back = after_first(starts) if reverse else starts
    after = step_before(a, torch.ones_like(a[0]), not reverse, lengths, starts_back)
    D, _ = recur(after, grad, grad_last, reverse=not reverse, lengths=lengths, starts=starts_back)
    if not reverse:
        return D, without(a[0] * D[0], None if starts is None else starts[0][:, None])
    if lengths is None:
        return D, a[-1] * D[-1]
    first = lengths - 1, torch.arange(a.shape[1], device=a.device)
    return D, a[first] * D[first]


def recurrence(
    a: Tensor, b: Tensor, h0: Tensor | None, lengths: Tensor | None, starts: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor]:
    padding = padding_of(a, lengths)
    aw, bw = without(wide(a), padding), without(wide(b), padding)
    h, last = reference.linear_recurrence(aw, bw, h0, reverse=reverse, lengths=lengths, starts=starts)
    return h.to(a.dtype), last.clone()


def recurrence_backward(
    grad_h: Tensor | None,
    grad_h_last: Tensor | None,
    a: Tensor,
    h: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    padding = padding_of(a, lengths)
    aw, hw = without(wide(a), padding), wide(h)
    grad = without(_or_zeros(grad_h, hw), padding)
    grad_last = _or_zeros(grad_h_last, hw[0])
    D, grad_h0 = adjoint(reference.linear_recurrence, aw, grad, grad_last, reverse, lengths, starts)
    grad_a = D * step_before(hw, _or_zeros(h0, hw[0]), reverse, lengths, starts)
    return without(grad_a, padding).to(a.dtype), D.to(a.dtype, copy=True), grad_h0


def activate(
    gates: Tensor,
    bias: Tensor | None,
    padding: Tensor | None,
    seed: Tensor | None,
    zoneout: float,
    num_gates: int,
) -> tuple[list[Tensor], list[Tensor]]:
    """The activated gates: as the backward needs them, and as they act, after the expectation of zoneout."""
    activated = reference.activate(
        without(wide(gates), padding),
        POOLINGS[num_gates],
        None if bias is None else wide(bias),
        zoneout=0.0 if seed is None else zoneout,
        seed=seed,
    )
    return activated, activated if seed is not None else reference.expected_zoneout(activated, zoneout)


def pool(
    gates: Tensor,
    bias: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    seed: Tensor | None,
    zoneout: float,
    num_gates: int,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    padding = padding_of(gates, lengths)
    activated, (z, f, *others) = activate(gates, bias, padding, seed, zoneout, num_gates)
    b = others[1] * z if num_gates == 4 else (1 - f) * z
    c, last = reference.linear_recurrence(f, b, c0, reverse=reverse, lengths=lengths, starts=starts)
    h = (c if num_gates == 2 else without(others[0], padding) * c).to(gates.dtype)
    nothing = gates.new_empty(0)
    if not keep:
        return h, last.clone(), nothing, nothing.clone()  # outputs must not share memory
    kept = without(torch.cat(activated, dim=-1), padding).to(gates.dtype)
    return h, last.clone(), nothing.clone() if num_gates == 2 else c.to(gates.dtype), kept


def pool_backward(
    grad_h: Tensor | None,
    grad_c_last: Tensor | None,
    grad_c: Tensor | None,
    grad_activated: Tensor | None,
    activated: Tensor,
    c: Tensor,
    c0: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    zoneout: float,
    num_gates: int,
    reverse: bool,
    bias_rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    padding = padding_of(activated, lengths)
    kept = list(wide(activated).chunk(num_gates, dim=-1))
    z, f, *others = reference.expected_zoneout(kept, zoneout)
    cw = wide(c)
    grad_h = without(_or_zeros(grad_h, cw), padding)
    grad_c = without(_or_zeros(grad_c, cw), padding)
    direct = without(_or_zeros(grad_activated, wide(activated)), padding).chunk(num_gates, dim=-1)
    direct_c = grad_c + (grad_h if num_gates == 2 else grad_h * others[0])
    grad_last = _or_zeros(grad_c_last, cw[0])
    D, grad_first = adjoint(reference.linear_recurrence, f, direct_c, grad_last, reverse, lengths, starts)
    before = step_before(cw, _or_zeros(c0, cw[0]), reverse, lengths, starts)
    d_z, d_f = (D * others[1], D * before) if num_gates == 4 else (D * (1 - f), D * (before - z))
    # The expectation of zoneout scales the gradients of f and i.
    grads = [(d_z + direct[0]) * (1 - z * z), ((1 - zoneout) * d_f + direct[1]) * kept[1] * (1 - kept[1])]
    if num_gates >= 3:
        grads.append((grad_h * cw + direct[2]) * others[0] * (1 - others[0]))
    if num_gates == 4:
        grads.append(((1 - zoneout) * D * z + direct[3]) * kept[3] * (1 - kept[3]))
    grad_gates = without(torch.cat(grads, dim=-1), padding)
    grad_bias = activated.new_empty(0)
    if bias_rows > 0:
        summed = grad_gates.sum(dim=0)
        grad_bias = (summed if bias_rows == summed.shape[0] else summed.sum(dim=0, keepdim=True)).to(activated.dtype)
    return grad_gates.to(activated.dtype), grad_bias, grad_first


def layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    context: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    seed: Tensor | None,
    zoneout: float,
    num_gates: int,
    look_ahead: int,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first, *others = taps(x, weight.shape[1], context, look_ahead, reverse, lengths, starts)
    # Separate products, added afterwards: addmm would round the running sum at every step.
    gates = first @ weight[:, 0].T
    for j, tap in enumerate(others, start=1):
        gates += tap @ weight[:, j].T
    gates = reference.flip(gates, lengths) if reverse else gates
    outputs: tuple[Tensor, Tensor, Tensor, Tensor] = torch.ops.quasirnn.pool(
        gates, bias, c0, lengths, starts, seed, zoneout, num_gates, reverse, keep
    )
    return outputs


def taps(
    x: Tensor,
    k: int,
    context: Tensor | None,
    look_ahead: int,
    reverse: bool,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> list[Tensor]:
    """`reference.taps` of the input in the order in which it is read."""
    if reverse:
        x, starts = reference.flip(x, lengths), reference.turned(starts, lengths)
    return reference.taps(x, k, context, look_ahead, lengths, starts)


def _sum_of_products(rows: Tensor, columns: Tensor) -> Tensor:
    """rows^T columns. On the CPU block by block, as the kernels do: for narrow matrices some of MKL's routines add up
    thousands of rows in one straight line, with up to 17 times the rounding error."""
    blocks = rows.device.type == "cpu" and rows.dtype in (torch.float32, torch.float64)
    size = 512 if blocks else max(1, rows.shape[0])
    first, *others = (a.T @ b for a, b in zip(rows.split(size), columns.split(size), strict=True))
    total: Tensor = sum(others, first)
    return total


def layer_backward(
    grad_h: Tensor | None,
    grad_c_last: Tensor | None,
    grad_c: Tensor | None,
    grad_activated: Tensor | None,
    x: Tensor,
    weight: Tensor,
    context: Tensor | None,
    activated: Tensor,
    c: Tensor,
    c0: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    zoneout: float,
    num_gates: int,
    look_ahead: int,
    reverse: bool,
    bias_rows: int,
    need_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    kept = (activated, c, c0, lengths, starts, zoneout, num_gates, reverse, bias_rows)
    grad_gates, grad_bias, grad_c0 = torch.ops.quasirnn.pool_backward(
        grad_h, grad_c_last, grad_c, grad_activated, *kept
    )
    T, k = x.shape[0], weight.shape[1]
    before = k - 1 - look_ahead
    rows = (reference.flip(grad_gates, lengths) if reverse else grad_gates).flatten(0, 1)
    outside = outside_window(reference.turned(starts, lengths) if reverse else starts, k, look_ahead)
    columns = taps(x, k, context, look_ahead, reverse, lengths, starts)
    grad_weight = torch.stack([_sum_of_products(rows, column.flatten(0, 1)) for column in columns], dim=1)
    grad_padded = x.new_zeros(k - 1 + T, *x.shape[1:])
    for j in range(k):
        grad_padded[j : j + T] += without((rows @ weight[:, j]).view_as(x), outside[j])
    grad_context = x.new_empty(0) if context is None else grad_padded[:before].transpose(0, 1).contiguous()
    if not need_x:
        return x.new_empty(0), grad_weight, grad_bias, grad_context, grad_c0
    grad_x = grad_padded[before : before + T]
    grad_x = without(reference.flip(grad_x, lengths) if reverse else grad_x, padding_of(x, lengths))
    return grad_x.clone(), grad_weight, grad_bias, grad_context, grad_c0


def stack(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    state: Tensor | None,
    zoneout: float,
    num_gates: int,
    dense: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    def layer(x: Tensor, n: int, bias: Tensor | None, context: Tensor, c0: Tensor | None) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = torch.ops.quasirnn.layer(
            x, weights[n], bias, context, c0, None, None, None, zoneout, num_gates, 0, False, False
        )
        return outputs

    return stack_of(layer, x, weights, biases, state, num_gates, dense)


def stack_of(
    layer: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    state: Tensor | None,
    num_gates: int,
    dense: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Layers on top of one another; layer(x, n, bias, context, c0) runs the n-th."""
    T, B, _ = x.shape
    H = weights[0].shape[0] // num_gates
    width = H + max((w.shape[1] - 1) * w.shape[2] for w in weights)
    h_n, c_n = [], []
    for n, weight in enumerate(weights):
        _, k, D = weight.shape
        c0, context = None, x.new_zeros(B, k - 1, D)
        if state is not None:
            if state.device.type == "cpu" and state[n, :, H + (k - 1) * D :].any():
                raise RuntimeError(f"quasirnn: the state of another network: layer {n} has {(k - 1) * D} inputs")
            c0 = state[n, :, :H].contiguous()
            context = state[n, :, H : H + (k - 1) * D].reshape(B, k - 1, D).to(x.dtype).contiguous()
        h, c, _, _ = layer(x.contiguous(), n, biases[n] if biases else None, context, c0)
        h_n.append(h[-1])
        after = torch.cat([context[:, T:], x[max(T - k + 1, 0) :].transpose(0, 1)], dim=1)  # the last k - 1 inputs
        c = torch.cat([c, after.flatten(1).to(c.dtype)], dim=1)
        c_n.append(functional.pad(c, (0, width - c.shape[1])))
        x = torch.cat([x, h], dim=-1) if dense else h
    return h, torch.stack(h_n), torch.stack(c_n)


def dropout(x: Tensor, seed: Tensor, probability: float) -> Tensor:
    kept = kept_elements(seed, x.numel(), probability).view_as(x)
    return torch.where(kept, x * (1.0 / (1.0 - probability)), 0.0)


def sum_rows(table: Tensor, rows: Tensor) -> Tensor:
    return functional.embedding_bag(rows, wide(table), mode="sum").to(table.dtype)


def add_rows(values: Tensor, rows: Tensor, size: int) -> Tensor:
    values = wide(values)
    added = values.new_zeros(size, values.shape[1])
    return added.index_add_(0, rows.flatten(), values.repeat_interleave(rows.shape[1], 0))


def transposed_mm(a: Tensor, b: Tensor) -> Tensor:
    return a.T @ b


def softmax_loss(logits: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    biased = logits.to(bias.dtype) + bias
    losses = functional.cross_entropy(biased, targets, reduction="none", ignore_index=IGNORED)
    grad = torch.softmax(biased, dim=-1)
    grad.scatter_add_(1, targets.clamp(min=0)[:, None], torch.full_like(losses, -1.0)[:, None])
    grad.masked_fill_((targets == IGNORED)[:, None], 0)
    logits.copy_(grad)
    return losses, grad.sum(0)
