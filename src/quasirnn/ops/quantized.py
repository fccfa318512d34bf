"""int8 products for inference: the operators, and how numbers become integers.

    w[j, k] = scale[j] * q[j, k] + e,  |e| <= scale[j] / 2          a scale for each output channel, made once
    x[k]    = s * p[k] + e',           |e'| <= s / 2                a scale for each row, computed in the call

A row of the layer is a window, k * D numbers. The sums of p[k] * q[j, k] are exact in int32; gates and cells,
computed from them, are float32. So each pre-activation differs from the exact one by at most (see `error_bound`)

    s / 2 * sum |w[j]|  +  scale[j] / 2 * sum |x|  +  K * s * scale[j] / 4

A row that holds a NaN or an infinity gives NaN. CPUs without VNNI multiply in 16 bits and add in 32: the same integers.
"""

import torch
from torch import Tensor

from quasirnn.ops import backends, plain, reference
from quasirnn.ops.layer import LayerOptions, LayerOutput, layer_output
from quasirnn.ops.operators import library, pooled, stacked
from quasirnn.ops.sequences import Rows


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 numbers of the weight's shape, and a float32 scale for each of its first dimension."""
    rows = weight.detach().float().flatten(1)
    scale = rows.abs().amax(1) / 127
    # A channel of zeros, or of numbers too small to be divided by, is zero; one with a NaN or an infinity gives NaN.
    scale = torch.where((1 / scale).isfinite() | scale.isnan(), scale, 0.0)
    inverse = torch.where(scale > 0, 1 / scale, 0.0)
    quantized = (rows * inverse[:, None]).nan_to_num(0.0).round().clamp(-127, 127).to(torch.int8)
    return quantized.view(weight.shape), scale


def error_bound(x: Tensor, weight: Tensor) -> Tensor:
    """How far the product of rows x, (N, K), with a quantised weight, (W, K), can be from the exact one, (N, W)."""
    s = x.abs().amax(1, keepdim=True) / 127
    scale = weight.abs().amax(1) / 127
    return s / 2 * weight.abs().sum(1) + scale / 2 * x.abs().sum(1, keepdim=True) + x.shape[1] / 4 * s * scale


def run_quantized_layer(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    c0: Tensor | None,
    *,
    context: Tensor | None,
    rows: Rows,
    seed: Tensor | None,
    options: LayerOptions,
) -> LayerOutput:
    """As `ops.layer.run_layer`, on an int8 weight with its scales; x may have half the bits, as under autocast."""
    assert seed is None, "an int8 layer does not train"
    backends.warn_if_plain(x.device)
    inputs = x.float().contiguous()
    outputs = torch.ops.quasirnn.quantized_layer(
        inputs,
        weight,
        scale,
        None if bias is None else bias.float().contiguous(),
        None if context is None else context.float().contiguous(),
        None if c0 is None else c0.float().contiguous(),
        rows.lengths,
        rows.starts,
        options.zoneout,
        options.num_gates,
        options.look_ahead,
        options.reverse,
        options.return_gates or rows.packed is not None,
    )
    return layer_output(outputs, inputs, context, rows, seed, options)


# The same in plain PyTorch: correct on every device, and the definition for the kernels.


def _rows_as_int8(rows: Tensor) -> tuple[Tensor, Tensor]:
    scale = rows.abs().amax(-1) / 127
    scale = torch.where((1 / scale).isfinite() | scale.isnan() | scale.isinf(), scale, 0.0)
    scale = torch.where(scale.isfinite(), scale, torch.nan)
    inverse = torch.where(scale > 0, 1 / scale, 0.0)[..., None]
    q = (rows * inverse).nan_to_num(0.0).round().clamp(-127, 127)
    return torch.where(inverse > 0, q, 0.0), scale


def _linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    q, s = _rows_as_int8(x)
    # Whole numbers below 2^53: exact in double.
    sums = (q.double() @ weight.flatten(1).double().T).float()
    out = (s[..., None] * scale) * sums
    return out if bias is None else out + bias


def _layer(x, weight, scale, bias, context, c0, lengths, starts, zoneout, num_gates, look_ahead, reverse, keep):  # type: ignore[no-untyped-def]
    windows = torch.cat(plain.taps(x, weight.shape[1], context, look_ahead, reverse, lengths, starts), dim=-1)
    gates = _linear(windows, weight, scale, None)
    gates = reference.flip(gates, lengths) if reverse else gates
    return torch.ops.quasirnn.pool(gates, bias, c0, lengths, starts, None, zoneout, num_gates, reverse, keep)


def _stack(x, weights, scales, biases, state, zoneout, num_gates, dense):  # type: ignore[no-untyped-def]
    def layer(x, n, bias, context, c0):  # type: ignore[no-untyped-def]
        return torch.ops.quasirnn.quantized_layer(
            x, weights[n], scales[n], bias, context, c0, None, None, zoneout, num_gates, 0, False, False
        )

    return plain.stack_of(layer, x, weights, biases, state, num_gates, dense)


def _int8_mm(rows: Tensor, weight: Tensor, path: int) -> Tensor:
    return (rows.double() @ weight.double().T).to(torch.int32)


for _name, _plain in (
    ("quantized_layer", _layer),
    ("quantized_stack", _stack),
    ("quantized_linear", _linear),
    ("int8_mm", _int8_mm),
):
    library.impl(_name, _plain, "CompositeExplicitAutograd")


@torch.library.register_fake("quasirnn::quantized_layer", lib=library)
def _(x, weight, scale, bias, context, c0, lengths, starts, zoneout, num_gates, look_ahead, reverse, keep):  # type: ignore[no-untyped-def]
    T, B, _ = x.shape
    return pooled(x, T, B, weight.shape[0] // num_gates, num_gates, keep)


@torch.library.register_fake("quasirnn::quantized_stack", lib=library)
def _(x, weights, scales, biases, state, zoneout, num_gates, dense):  # type: ignore[no-untyped-def]
    return stacked(x, weights, num_gates)


@torch.library.register_fake("quasirnn::quantized_linear", lib=library)
def _(x, weight, scale, bias):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape[0], weight.shape[0])


@torch.library.register_fake("quasirnn::int8_mm", lib=library)
def _(rows, weight, path):  # type: ignore[no-untyped-def]
    return rows.new_empty(rows.shape[0], weight.shape[0], dtype=torch.int32)
