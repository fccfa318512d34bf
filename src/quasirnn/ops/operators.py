"""The operator contract beyond schemas.inc, and shape functions. Derivatives are in autograd.py.

Three operators carry a gradient: `recurrence` (h[t] = a[t] h[t-1] + b[t]), `pool` (fused, from pre-activations) and
`layer` (convolution and pooling). Each has a second operator that computes its gradient. `stack` has none: it runs all
layers of a causal, one-directional network at once, for inference.

Tensors are contiguous and time-major. `num_gates` names the pooling: 2 f, 3 fo, 4 ifo. `keep` asks for what the
backward needs: the activated gates and, unless h is the cells itself, the cells; they are empty without it.
`zoneout` with a `seed` is a random mask, which the kept gates have in them; without a seed it is its expectation,
f' = p + (1 - p) f and i' = (1 - p) i, and the kept gates are f and i. `c0` and `c_last` are float32 for 16-bit gates. A
bias is (gates * H), or (B, gates * H). `starts`, (T, B), is True where a new sequence starts inside a row.
"""

import ast
import functools
import inspect
from collections.abc import Callable
from importlib import resources
from typing import Any

import torch
from torch import Tensor

# backends loads the compiled library, which defines the operators.
from quasirnn.ops import backends, checks, plain  # noqa: F401

library = torch.library.Library("quasirnn", "FRAGMENT")


def _read_schemas() -> dict[str, str]:
    """Operators by name. A list of string literals reads the same in C++, which includes it, and in Python."""
    text = resources.files("quasirnn.ops").joinpath("schemas.inc").read_text(encoding="utf-8")
    return {schema.partition("(")[0]: schema for schema in ast.literal_eval(f"[{text}]")}


SCHEMAS = _read_schemas()


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """For direct calls of an operator: wrong arguments are a ValueError, not some error of the arithmetic on them."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        who, given = f"quasirnn::{name}", signature.bind(*args, **kwargs).arguments
        for key, value in given.items():
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, Tensor):
                    checks.strided(who, key, each)
        if given.get("num_gates", 2) not in plain.POOLINGS:
            raise ValueError(f"{who}: num_gates must be 2 (f), 3 (fo) or 4 (ifo), got {given['num_gates']}.")
        try:
            return function(*args, **kwargs)
        except (LookupError, ArithmeticError) as error:
            raise ValueError(f"{who}: the arguments do not fit together: {error}.") from error

    return call


for _name, _schema in SCHEMAS.items():
    # The compiled library, if there is one, has defined them.
    if not hasattr(torch.ops.quasirnn, _name):
        library.define(_schema)
    if hasattr(plain, _name):
        library.impl(_name, _guarded(_name, getattr(plain, _name)), "CompositeExplicitAutograd")


def state_type(dtype: torch.dtype) -> torch.dtype:
    """The type of the running state: at least float32."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


# Shape functions.


def _shapes(name: str) -> Callable[[Callable[..., Any]], Any]:
    return lambda function: torch.library.register_fake(f"quasirnn::{name}", _guarded(name, function), lib=library)


def _state(like: Tensor, B: int, H: int) -> Tensor:
    return like.new_empty(B, H, dtype=state_type(like.dtype))


@_shapes("recurrence")
def _(a, b, h0, lengths, starts, reverse):
    return torch.empty_like(a), _state(a, a.shape[1], a.shape[2])


@_shapes("recurrence_backward")
def _(grad_h, grad_h_last, a, h, h0, lengths, starts, reverse):
    return torch.empty_like(a), torch.empty_like(a), _state(a, a.shape[1], a.shape[2])


def pooled(like: Tensor, T: int, B: int, H: int, num_gates: int, keep: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Empty outputs of a pooling: h, c_last, c, activated."""
    c = like.new_empty(T, B, H) if keep and num_gates != 2 else like.new_empty(0)
    activated = like.new_empty(T, B, num_gates * H) if keep else like.new_empty(0)
    return like.new_empty(T, B, H), _state(like, B, H), c, activated


@_shapes("pool")
def _(gates, bias, c0, lengths, starts, seed, zoneout, num_gates, reverse, keep):
    T, B, W = gates.shape
    return pooled(gates, T, B, W // num_gates, num_gates, keep)


@_shapes("pool_backward")
def _(
    grad_h,
    grad_c_last,
    grad_c,
    grad_activated,
    activated,
    c,
    c0,
    lengths,
    starts,
    zoneout,
    num_gates,
    reverse,
    bias_rows,
):
    _, B, W = activated.shape
    grad_bias = activated.new_empty(0) if bias_rows == 0 else activated.new_empty(bias_rows, W)
    return torch.empty_like(activated), grad_bias, _state(activated, B, W // num_gates)


@_shapes("layer")
def _(x, weight, bias, context, c0, lengths, starts, seed, zoneout, num_gates, look_ahead, reverse, keep):
    T, B, _ = x.shape
    return pooled(x, T, B, weight.shape[0] // num_gates, num_gates, keep)


@_shapes("layer_backward")
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
    starts,
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


def stacked(x: Tensor, weights: list[Tensor], num_gates: int) -> tuple[Tensor, Tensor, Tensor]:
    """Empty outputs of a stack: output, h_n, c_n."""
    T, B, _ = x.shape
    H = weights[0].shape[0] // num_gates
    width = H + max((w.shape[1] - 1) * w.shape[2] for w in weights)
    c_n = x.new_empty(len(weights), B, width, dtype=state_type(x.dtype))
    return x.new_empty(T, B, H), x.new_empty(len(weights), B, H), c_n


@_shapes("stack")
def _(x, weights, biases, state, zoneout, num_gates, dense):
    return stacked(x, weights, num_gates)


@_shapes("lstm")
def _(gates, weight, bias, h0, c0, keep):
    T, B, W = gates.shape
    dtype = state_type(gates.dtype)
    c = gates.new_empty(T, B, W // 4, dtype=dtype) if keep else gates.new_empty(0, dtype=dtype)
    activated = torch.empty_like(gates) if keep else gates.new_empty(0)
    return gates.new_empty(T, B, W // 4), _state(gates, B, W // 4), c, activated


@_shapes("lstm_backward")
def _(grad_h, grad_c_last, activated, c, c0, flipped):
    return torch.empty_like(activated), torch.empty_like(grad_h[0]), torch.empty_like(c[0])


@_shapes("dropout")
def _(x, seed, probability):
    return torch.empty_like(x)


@_shapes("sum_rows")
def _(table, rows):
    return table.new_empty(rows.shape[0], table.shape[1])


@_shapes("add_rows")
def _(values, rows, size):
    return values.new_empty(size, values.shape[1], dtype=state_type(values.dtype))


@_shapes("transposed_mm")
def _(a, b):
    return a.new_empty(a.shape[1], b.shape[1])


@_shapes("softmax_loss")
def _(logits, bias, targets):
    dtype = state_type(logits.dtype)
    return logits.new_empty(logits.shape[0], dtype=dtype), logits.new_empty(logits.shape[1], dtype=dtype)
