"""The operators in plain PyTorch: for devices without kernels, and where nothing could be compiled.

Forward is the reference in the type the state has. Backward uses that the adjoint of a recurrence is a recurrence read
the other way: with D[t] the whole gradient of c[t], D[t] = g[t] + f[t+1] * D[t+1].
"""

import torch
from torch import Tensor

from quasirnn.ops import reference

# The number of gates names the pooling.
POOLINGS = {2: "f", 3: "fo", 4: "ifo"}
COMPLEMENT, INPUT, ONE = 0, 1, 2


def wide(x: Tensor) -> Tensor:
    """16-bit types are computed in float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def padding_of(x: Tensor, lengths: Tensor | None) -> Tensor | None:
    """True past a row's length, (T, B, 1)."""
    if lengths is None:
        return None
    return (torch.arange(x.shape[0], device=x.device)[:, None] >= lengths)[:, :, None]


def without(x: Tensor, padding: Tensor | None) -> Tensor:
    """Zero in the padding, whatever it held: zero times NaN is NaN, so it must not even be multiplied."""
    return x if padding is None else x.masked_fill(padding, 0)


def _or_zeros(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else wide(grad)


def _cells_before(c: Tensor, c0: Tensor | None, reverse: bool, lengths: Tensor | None) -> Tensor:
    """For each step, the cells it started from."""
    c = reference.flip(c, lengths) if reverse else c
    first = torch.zeros_like(c[:1]) if c0 is None else c0[None]
    before = torch.cat([first, c[:-1]])
    return reference.flip(before, lengths) if reverse else before


def _whole_gradient(
    f: Tensor, grad: Tensor, grad_last: Tensor | None, reverse: bool, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The whole gradient of every cell, and of the initial one, from the gradient that reaches each directly."""
    if reverse:
        f, grad = reference.flip(f, lengths), reference.flip(grad, lengths)
    # Read backwards in time, the step after t multiplies what arrives; nothing stands after the last.
    after = torch.cat([f[1:], torch.ones_like(f[:1])])
    if lengths is not None:
        t = torch.arange(f.shape[0], device=f.device)[:, None]
        after = torch.where((t == lengths - 1)[:, :, None], torch.ones_like(after), after)
    D, _ = reference.linear_recurrence(after, grad, grad_last, reverse=True, lengths=lengths)
    grad_first = f[0] * D[0]
    return (reference.flip(D, lengths) if reverse else D), grad_first


def recurrence(
    f: Tensor, z: Tensor, i: Tensor | None, c0: Tensor | None, lengths: Tensor | None, weight: int, reverse: bool
) -> tuple[Tensor, Tensor]:
    padding = padding_of(f, lengths)
    fw, zw = without(wide(f), padding), without(wide(z), padding)
    if weight == COMPLEMENT:
        zw = (1 - fw) * zw
    elif weight == INPUT:
        assert i is not None
        zw = without(wide(i), padding) * zw
    c, last = reference.linear_recurrence(fw, zw, c0, reverse=reverse, lengths=lengths)
    return c.to(f.dtype), last.clone()


def recurrence_backward(
    grad_c: Tensor | None,
    grad_c_last: Tensor | None,
    f: Tensor,
    z: Tensor,
    i: Tensor | None,
    c: Tensor,
    c0: Tensor | None,
    lengths: Tensor | None,
    weight: int,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    padding = padding_of(f, lengths)
    fw, zw, cw = without(wide(f), padding), without(wide(z), padding), wide(c)
    grad = without(_or_zeros(grad_c, cw), padding)
    D, grad_first = _whole_gradient(fw, grad, grad_c_last, reverse, lengths)
    before = _cells_before(cw, c0, reverse, lengths)
    grad_i = f.new_empty(0)
    if weight == COMPLEMENT:
        grad_f, grad_z = D * (before - zw), D * (1 - fw)
    elif weight == INPUT:
        assert i is not None
        grad_f, grad_z = D * before, D * without(wide(i), padding)
        grad_i = (D * zw).to(f.dtype)
    else:
        grad_f, grad_z = D * before, D
    return without(grad_f, padding).to(f.dtype), grad_z.to(f.dtype, copy=True), grad_i, grad_first


def pool(
    gates: Tensor,
    bias: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    seed: Tensor | None,
    zoneout: float,
    kinds: int,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    padding = padding_of(gates, lengths)
    activated = reference.activate(
        without(wide(gates), padding),
        POOLINGS[kinds],
        None if bias is None else wide(bias),
        zoneout=0.0 if seed is None else zoneout,
        seed=seed,
    )
    z, f, *others = activated if seed is not None else reference.expected_zoneout(activated, zoneout)
    b = others[1] * z if kinds == 4 else (1 - f) * z
    c, last = reference.linear_recurrence(f, b, c0, reverse=reverse, lengths=lengths)
    h = (c if kinds == 2 else without(others[0], padding) * c).to(gates.dtype)
    nothing = gates.new_empty(0)
    if not keep:
        return h, last.clone(), nothing, nothing.clone()  # outputs must not share memory
    kept = without(torch.cat(activated, dim=-1), padding).to(gates.dtype)
    return h, last.clone(), nothing.clone() if kinds == 2 else c.to(gates.dtype), kept


def pool_backward(
    grad_h: Tensor | None,
    grad_c_last: Tensor | None,
    grad_c: Tensor | None,
    grad_activated: Tensor | None,
    activated: Tensor,
    c: Tensor,
    c0: Tensor | None,
    lengths: Tensor | None,
    zoneout: float,
    kinds: int,
    reverse: bool,
    bias_rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    padding = padding_of(activated, lengths)
    kept = list(wide(activated).chunk(kinds, dim=-1))
    z, f, *others = reference.expected_zoneout(kept, zoneout)
    cw = wide(c)
    grad_h = without(_or_zeros(grad_h, cw), padding)
    grad_c = without(_or_zeros(grad_c, cw), padding)
    direct = without(_or_zeros(grad_activated, wide(activated)), padding).chunk(kinds, dim=-1)
    D, grad_first = _whole_gradient(
        f, grad_c + (grad_h if kinds == 2 else grad_h * others[0]), grad_c_last, reverse, lengths
    )
    before = _cells_before(cw, c0, reverse, lengths)
    d_z, d_f = (D * others[1], D * before) if kinds == 4 else (D * (1 - f), D * (before - z))
    # The expectation of zoneout scales what reaches f and i.
    grads = [(d_z + direct[0]) * (1 - z * z), ((1 - zoneout) * d_f + direct[1]) * kept[1] * (1 - kept[1])]
    if kinds >= 3:
        grads.append((grad_h * cw + direct[2]) * others[0] * (1 - others[0]))
    if kinds == 4:
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
    seed: Tensor | None,
    zoneout: float,
    kinds: int,
    look_ahead: int,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    T, k = x.shape[0], weight.shape[1]
    padded = _as_read(x, context, k - 1 - look_ahead, look_ahead, reverse, lengths)
    # Products are made apart and then added: a product that starts from a sum (addmm) rounds it at every step.
    gates = padded[:T] @ weight[:, 0].T
    for j in range(1, k):
        gates += padded[j : j + T] @ weight[:, j].T
    gates = reference.flip(gates, lengths) if reverse else gates
    return torch.ops.quasirnn.pool(gates, bias, c0, lengths, seed, zoneout, kinds, reverse, keep)


def _as_read(
    x: Tensor, context: Tensor | None, before: int, after: int, reverse: bool, lengths: Tensor | None
) -> Tensor:
    """The input in the order it is read, with what stands before its first step and after its last."""
    x = without(x, padding_of(x, lengths))
    x = reference.flip(x, lengths) if reverse else x
    _, B, D = x.shape
    first = x.new_zeros(before, B, D) if context is None else context.transpose(0, 1)
    return torch.cat([first, x, x.new_zeros(after, B, D)])


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
    zoneout: float,
    kinds: int,
    look_ahead: int,
    reverse: bool,
    bias_rows: int,
    need_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    grad_gates, grad_bias, grad_c0 = torch.ops.quasirnn.pool_backward(
        grad_h, grad_c_last, grad_c, grad_activated, activated, c, c0, lengths, zoneout, kinds, reverse, bias_rows
    )
    T, k = x.shape[0], weight.shape[1]
    before = k - 1 - look_ahead
    padded = _as_read(x, context, before, look_ahead, reverse, lengths)
    rows = (reference.flip(grad_gates, lengths) if reverse else grad_gates).flatten(0, 1)
    grad_weight = torch.stack([rows.T @ padded[j : j + T].flatten(0, 1) for j in range(k)], dim=1)
    grad_padded = torch.zeros_like(padded)
    for j in range(k):
        grad_padded[j : j + T] += (rows @ weight[:, j]).view_as(x)
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
    kinds: int,
    dense: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    B, H = x.shape[1], weights[0].shape[0] // kinds
    width = H + max((w.shape[1] - 1) * w.shape[2] for w in weights)
    h_n, c_n = [], []
    for n, weight in enumerate(weights):
        _, k, D = weight.shape
        c0, context = None, x.new_zeros(B, k - 1, D)
        if state is not None:
            c0 = state[n, :, :H].contiguous()
            context = state[n, :, H : H + (k - 1) * D].reshape(B, k - 1, D).to(x.dtype).contiguous()
        bias = biases[n] if biases else None
        h, c, _, _ = torch.ops.quasirnn.layer(
            x.contiguous(), weight, bias, context, c0, None, None, zoneout, kinds, 0, False, False
        )
        last_inputs = torch.cat([context, x.transpose(0, 1)], dim=1)[:, x.shape[0] :].flatten(1)
        h_n.append(h[-1])
        c_n.append(
            torch.nn.functional.pad(torch.cat([c, last_inputs.to(c.dtype)], dim=1), (0, width - H - (k - 1) * D))
        )
        x = torch.cat([x, h], dim=-1) if dense else h
    return h, torch.stack(h_n), torch.stack(c_n)
