"""The short path: all layers of a QRNN in one operator, for inference and single steps.

A step of 320 units takes some 50 us, so every microsecond of Python before it shows: what can be looked up once is, and
parameters are taken from where `nn.Module` keeps them.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from quasirnn.nn.layout import State
from quasirnn.ops import torch_internals
from quasirnn.ops.checks import FUSED
from quasirnn.ops.operators import stack, state_type
from quasirnn.ops.quantized import quantized_stack

if TYPE_CHECKING:
    from quasirnn.nn.qrnn import QRNN

is_grad_enabled = torch.is_grad_enabled
is_compiling = torch.compiler.is_compiling
strided = torch.strided


def fused_forward(rnn: "QRNN", x: Any, state: Any) -> tuple[Tensor, State] | None:
    """Output and state where nothing asks for more than the operator does, else None.

    None where a gradient, a random mask, a hook, a program transformation, a parameter that is none, or an input or
    state of another form is involved: then the layers run one by one, which gives the same result and words what is
    wrong where something is.
    """
    C = rnn._context_width
    if C is None or is_grad_enabled() or is_compiling():
        return None
    if torch_internals.transforming() or torch_internals.autocast_active() or torch_internals.is_tracing():
        return None
    # torch's own register_module_forward_hook was used: the layers have to be called one by one.
    if torch_internals.has_global_hooks():
        return None
    if type(x) is not Tensor or x.layout is not strided or x.dim() != 3 or x.is_meta or (rnn.training and rnn.dropout):
        return None
    if rnn.batch_first:
        x = x.transpose(0, 1)
    T, B, width = x.shape
    if T == 0 or width != rnn.input_size or rnn.pooling not in FUSED:
        return None
    dtype, device = x.dtype, x.device
    zoneout = rnn._modules["layers"]._modules["0"].zoneout  # type: ignore[union-attr]
    weights, scales, biases = [], [], []
    for layer in rnn._modules["layers"]._modules.values():  # type: ignore[union-attr]
        parameters = layer._parameters  # type: ignore[union-attr]
        # An int8 weight has scales, and takes their type.
        weight, bias, scale = parameters.get("weight"), parameters.get("bias"), parameters.get("scale")
        if weight is None or weight.device != device or (bias is None) == rnn.bias:
            return None
        if (weight if scale is None else scale).dtype != dtype:
            return None
        if layer._forward_hooks or layer._forward_pre_hooks or layer.zoneout != zoneout:  # type: ignore[union-attr]
            return None
        if zoneout and layer.training:  # type: ignore[union-attr]
            return None
        weights.append(weight.contiguous())
        if scale is not None:
            scales.append(scale)
        if bias is not None:
            biases.append(bias.contiguous())
    c = None
    if state is not None:
        if type(state) is not tuple or len(state) != 2:
            return None
        h, c = state
        if type(h) is not Tensor or h.shape != (len(weights), B, rnn.hidden_size):
            return None
        if type(c) is not Tensor or c.layout is not strided or c.shape != (len(weights), B, rnn.hidden_size + C):
            return None
        if c.dtype != state_type(dtype) or c.device != device:
            return None
        c = c.contiguous()
    sizes = zoneout, len(rnn.pooling) + 1, rnn.dense
    if scales and (len(scales) < len(weights) or rnn.training):
        return None
    try:
        if scales:
            output, h_n, c_n = quantized_stack(x.contiguous(), weights, scales, biases, c, *sizes)
        else:
            output, h_n, c_n = stack(x.contiguous(), weights, biases, c, *sizes)
    except RuntimeError:
        # The state of another network, for instance: the layers one by one say what is wrong.
        return None
    return output.transpose(0, 1) if rnn.batch_first else output, (h_n, c_n)
