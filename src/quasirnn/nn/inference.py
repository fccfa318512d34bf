"""The short path: all layers of a QRNN in one operator, for inference and single steps."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from quasirnn.nn.layout import State
from quasirnn.ops.operators import stack, state_type

if TYPE_CHECKING:
    from quasirnn.nn.qrnn import QRNN


def run_at_once(rnn: "QRNN", x: Any, state: Any) -> tuple[Tensor, State] | None:
    """Output and state where nothing asks for more than the operator does, else None.

    None where a gradient, a random mask, a hook, a program transformation, or an input or state of another form is
    involved: then the layers run one by one, which gives the same result and words what is wrong where something is.
    """
    C = rnn._context_width
    if C is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    if torch._C._are_functorch_transforms_active() or torch._C._is_any_autocast_enabled():
        return None
    if type(x) is not Tensor or x.dim() != 3 or x.is_meta or (rnn.training and rnn.dropout):
        return None
    weights, biases = [], []
    for layer in rnn._layers():
        weight, bias = layer.weight, layer.bias
        if layer._forward_hooks or layer._forward_pre_hooks or (layer.training and layer.zoneout):
            return None
        if weight.dtype != x.dtype or weight.device != x.device or (bias is None) == rnn.bias:
            return None
        weights.append(weight.contiguous())
        if bias is not None:
            biases.append(bias.contiguous())
    if rnn.batch_first:
        x = x.transpose(0, 1)
    T, B, width = x.shape
    if T == 0 or width != rnn.input_size:
        return None
    c = None
    if state is not None:
        if type(state) is not tuple or len(state) != 2:
            return None
        h, c = state
        if type(h) is not Tensor or h.shape != (len(weights), B, rnn.hidden_size):
            return None
        if type(c) is not Tensor or c.shape != (len(weights), B, rnn.hidden_size + C):
            return None
        if c.dtype != state_type(x.dtype) or c.device != x.device:
            return None
        c = c.contiguous()
    output, h_n, c_n = stack(x.contiguous(), weights, biases, c, len(rnn.pooling) + 1, rnn.dense)
    return output.transpose(0, 1) if rnn.batch_first else output, (h_n, c_n)
