"""The operator contract in one place: schemas and shape functions. Derivatives are in autograd.py.

Three operators carry a gradient: `recurrence` (h[t] = a[t] h[t-1] + b[t]), `pool` (fused, from pre-activations) and
`layer` (convolution and pooling). Each has a second operator that computes its gradient. `stack` has none: it runs all
layers of a causal, one-directional network at once, for inference.

Tensors are contiguous and time-major. `num_gates` names the pooling: 2 f, 3 fo, 4 ifo. `keep` asks for what the
backward needs: the activated gates and, unless h is the cells itself, the cells. What was not asked for is empty.
`zoneout` with a `seed` is a random mask, which the kept gates have in them; without a seed it is its expectation,
f' = p + (1 - p) f and i' = (1 - p) i, and the kept gates are f and i. `c0` and `c_last` are float32 for 16-bit gates. A
bias is (gates * H), or (B, gates * H).
"""

from typing import Any

import torch
from torch import Tensor

from quasirnn.ops import backends, plain

library = torch.library.Library("quasirnn", "DEF")

SCHEMAS = {
    "recurrence": "(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, bool reverse) -> (Tensor h, Tensor h_last)",
    "recurrence_backward": "(Tensor? grad_h, Tensor? grad_h_last, Tensor a, Tensor h, Tensor? h0, Tensor? lengths,"
    " bool reverse) -> (Tensor grad_a, Tensor grad_b, Tensor grad_h0)",
    "pool": "(Tensor gates, Tensor? bias, Tensor? c0, Tensor? lengths, Tensor? seed, float zoneout, int num_gates,"
    " bool reverse, bool keep) -> (Tensor h, Tensor c_last, Tensor c, Tensor activated)",
    "pool_backward": "(Tensor? grad_h, Tensor? grad_c_last, Tensor? grad_c, Tensor? grad_activated, Tensor activated,"
    " Tensor c, Tensor? c0, Tensor? lengths, float zoneout, int num_gates, bool reverse, SymInt bias_rows)"
    " -> (Tensor grad_gates, Tensor grad_bias, Tensor grad_c0)",
    "layer": "(Tensor x, Tensor weight, Tensor? bias, Tensor? context, Tensor? c0, Tensor? lengths, Tensor? seed,"
    " float zoneout, int num_gates, int look_ahead, bool reverse, bool keep)"
    " -> (Tensor h, Tensor c_last, Tensor c, Tensor activated)",
    "layer_backward": "(Tensor? grad_h, Tensor? grad_c_last, Tensor? grad_c, Tensor? grad_activated, Tensor x,"
    " Tensor weight, Tensor? context, Tensor activated, Tensor c, Tensor? c0, Tensor? lengths, float zoneout,"
    " int num_gates, int look_ahead, bool reverse, SymInt bias_rows, bool need_x)"
    " -> (Tensor grad_x, Tensor grad_weight, Tensor grad_bias, Tensor grad_context, Tensor grad_c0)",
    "stack": "(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? state, float zoneout, int num_gates, bool dense)"
    " -> (Tensor output, Tensor h_n, Tensor c_n)",
}

for _name, _schema in SCHEMAS.items():
    # A fixed list of tags: results depend on the arguments alone.
    library.define(_name + _schema, tags=[torch.Tag.pt2_compliant_tag])
    library.impl(_name, getattr(plain, _name), "CompositeExplicitAutograd")


def state_type(dtype: torch.dtype) -> torch.dtype:
    """The type of the running state: at least float32."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


# Shape functions.


def _state(like: Tensor, B: int, H: int) -> Tensor:
    return like.new_empty(B, H, dtype=state_type(like.dtype))


@torch.library.register_fake("quasirnn::recurrence", lib=library)
def _(a, b, h0, lengths, reverse):
    return torch.empty_like(a), _state(a, a.shape[1], a.shape[2])


@torch.library.register_fake("quasirnn::recurrence_backward", lib=library)
def _(grad_h, grad_h_last, a, h, h0, lengths, reverse):
    return torch.empty_like(a), torch.empty_like(a), _state(a, a.shape[1], a.shape[2])


def _pooled(like: Tensor, T: int, B: int, H: int, num_gates: int, keep: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    c = like.new_empty(T, B, H) if keep and num_gates != 2 else like.new_empty(0)
    activated = like.new_empty(T, B, num_gates * H) if keep else like.new_empty(0)
    return like.new_empty(T, B, H), _state(like, B, H), c, activated


@torch.library.register_fake("quasirnn::pool", lib=library)
def _(gates, bias, c0, lengths, seed, zoneout, num_gates, reverse, keep):
    T, B, W = gates.shape
    return _pooled(gates, T, B, W // num_gates, num_gates, keep)


@torch.library.register_fake("quasirnn::pool_backward", lib=library)
def _(grad_h, grad_c_last, grad_c, grad_activated, activated, c, c0, lengths, zoneout, num_gates, reverse, bias_rows):
    _, B, W = activated.shape
    grad_bias = activated.new_empty(0) if bias_rows == 0 else activated.new_empty(bias_rows, W)
    return torch.empty_like(activated), grad_bias, _state(activated, B, W // num_gates)


@torch.library.register_fake("quasirnn::layer", lib=library)
def _(x, weight, bias, context, c0, lengths, seed, zoneout, num_gates, look_ahead, reverse, keep):
    T, B, _ = x.shape
    return _pooled(x, T, B, weight.shape[0] // num_gates, num_gates, keep)


@torch.library.register_fake("quasirnn::layer_backward", lib=library)
def _(
    grad_h,
    grad_c_last,
    grad_c,
    grad_activated,
    x,
    weight,
    context,
    activated,
    c,
    c0,
    lengths,
    zoneout,
    num_gates,
    look_ahead,
    reverse,
    bias_rows,
    need_x,
):
    W = weight.shape[0]
    return (
        torch.empty_like(x) if need_x else x.new_empty(0),
        torch.empty_like(weight),
        x.new_empty(0) if bias_rows == 0 else x.new_empty(bias_rows, W),
        x.new_empty(0) if context is None else torch.empty_like(context),
        _state(x, x.shape[1], W // num_gates),
    )


@torch.library.register_fake("quasirnn::stack", lib=library)
def _(x, weights, biases, state, zoneout, num_gates, dense):
    T, B, _ = x.shape
    H = weights[0].shape[0] // num_gates
    width = H + max((w.shape[1] - 1) * w.shape[2] for w in weights)
    c_n = x.new_empty(len(weights), B, width, dtype=state_type(x.dtype))
    return x.new_empty(T, B, H), x.new_empty(len(weights), B, H), c_n


_stack = torch.ops.quasirnn.stack.default


def stack(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The operator of that name; its inputs must not need a gradient."""
    backends.warn_if_plain(inputs[0].device)
    outputs: tuple[Tensor, Tensor, Tensor] = _stack(*inputs)
    return outputs
