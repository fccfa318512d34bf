"""The operator contract in one place: schema, shape function, backward.

Three operators carry a gradient: `recurrence` (pooling on gates that are activated already), `pool` (fused, from
pre-activations) and `layer` (convolution and pooling). Each has a second operator that computes its gradient. `stack`
has none: it runs all layers of a causal, one-directional network at once, for inference.

Tensors are contiguous and time-major. `kinds` is the number of gates and names the pooling: 2 f, 3 fo, 4 ifo. `keep`
asks for what the backward needs: the activated gates and, unless h is the cells itself, the cells. What was not asked
for comes back empty. `zoneout` with a `seed` is a random mask, which the kept gates have in them; without a seed it is
its expectation, f' = p + (1 - p) f and i' = (1 - p) i, and the kept gates are f and i. `c0` and `c_last` are float32 for 16-bit gates. A bias is (gates * H), or (B, gates * H).

Autograd is registered with the operators, so that compiled and exported programs have it; an eager call goes through
an autograd function outside the dispatcher instead, which costs a third as much.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from quasirnn.ops import backends, plain, reference

_library = torch.library.Library("quasirnn", "DEF")

SCHEMAS = {
    "recurrence": "(Tensor f, Tensor z, Tensor? i, Tensor? c0, Tensor? lengths, int weight, bool reverse)"
    " -> (Tensor c, Tensor c_last)",
    "recurrence_backward": "(Tensor? grad_c, Tensor? grad_c_last, Tensor f, Tensor z, Tensor? i, Tensor c, Tensor? c0,"
    " Tensor? lengths, int weight, bool reverse) -> (Tensor grad_f, Tensor grad_z, Tensor grad_i, Tensor grad_c0)",
    "pool": "(Tensor gates, Tensor? bias, Tensor? c0, Tensor? lengths, Tensor? seed, float zoneout, int kinds,"
    " bool reverse, bool keep) -> (Tensor h, Tensor c_last, Tensor c, Tensor activated)",
    "pool_backward": "(Tensor? grad_h, Tensor? grad_c_last, Tensor? grad_c, Tensor? grad_activated, Tensor activated,"
    " Tensor c, Tensor? c0, Tensor? lengths, float zoneout, int kinds, bool reverse, SymInt bias_rows)"
    " -> (Tensor grad_gates, Tensor grad_bias, Tensor grad_c0)",
    "layer": "(Tensor x, Tensor weight, Tensor? bias, Tensor? context, Tensor? c0, Tensor? lengths, Tensor? seed,"
    " float zoneout, int kinds, int look_ahead, bool reverse, bool keep)"
    " -> (Tensor h, Tensor c_last, Tensor c, Tensor activated)",
    "layer_backward": "(Tensor? grad_h, Tensor? grad_c_last, Tensor? grad_c, Tensor? grad_activated, Tensor x,"
    " Tensor weight, Tensor? context, Tensor activated, Tensor c, Tensor? c0, Tensor? lengths, float zoneout, int kinds,"
    " int look_ahead, bool reverse, SymInt bias_rows, bool need_x)"
    " -> (Tensor grad_x, Tensor grad_weight, Tensor grad_bias, Tensor grad_context, Tensor grad_c0)",
    "stack": "(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? state, float zoneout, int kinds, bool dense)"
    " -> (Tensor output, Tensor h_n, Tensor c_n)",
}

for _name, _schema in SCHEMAS.items():
    # A fixed list of tags: results depend on the arguments alone.
    _library.define(_name + _schema, tags=[torch.Tag.pt2_compliant_tag])
    _library.impl(_name, getattr(plain, _name), "CompositeExplicitAutograd")


def state_type(dtype: torch.dtype) -> torch.dtype:
    """The type of the running state: at least float32."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


# Shape functions.


def _state(like: Tensor, B: int, H: int) -> Tensor:
    return like.new_empty(B, H, dtype=state_type(like.dtype))


@torch.library.register_fake("quasirnn::recurrence", lib=_library)
def _(f, z, i, c0, lengths, weight, reverse):
    return torch.empty_like(f), _state(f, f.shape[1], f.shape[2])


@torch.library.register_fake("quasirnn::recurrence_backward", lib=_library)
def _(grad_c, grad_c_last, f, z, i, c, c0, lengths, weight, reverse):
    grad_i = f.new_empty(0) if i is None else torch.empty_like(f)
    return torch.empty_like(f), torch.empty_like(f), grad_i, _state(f, f.shape[1], f.shape[2])


def _pooled(like: Tensor, T: int, B: int, H: int, kinds: int, keep: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    c = like.new_empty(T, B, H) if keep and kinds != 2 else like.new_empty(0)
    activated = like.new_empty(T, B, kinds * H) if keep else like.new_empty(0)
    return like.new_empty(T, B, H), _state(like, B, H), c, activated


@torch.library.register_fake("quasirnn::pool", lib=_library)
def _(gates, bias, c0, lengths, seed, zoneout, kinds, reverse, keep):
    T, B, W = gates.shape
    return _pooled(gates, T, B, W // kinds, kinds, keep)


@torch.library.register_fake("quasirnn::pool_backward", lib=_library)
def _(grad_h, grad_c_last, grad_c, grad_activated, activated, c, c0, lengths, zoneout, kinds, reverse, bias_rows):
    _, B, W = activated.shape
    grad_bias = activated.new_empty(0) if bias_rows == 0 else activated.new_empty(bias_rows, W)
    return torch.empty_like(activated), grad_bias, _state(activated, B, W // kinds)


@torch.library.register_fake("quasirnn::layer", lib=_library)
def _(x, weight, bias, context, c0, lengths, seed, zoneout, kinds, look_ahead, reverse, keep):
    T, B, _ = x.shape
    return _pooled(x, T, B, weight.shape[0] // kinds, kinds, keep)


@torch.library.register_fake("quasirnn::layer_backward", lib=_library)
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
    kinds,
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
        _state(x, x.shape[1], W // kinds),
    )


@torch.library.register_fake("quasirnn::stack", lib=_library)
def _(x, weights, biases, state, zoneout, kinds, dense):
    T, B, _ = x.shape
    H = weights[0].shape[0] // kinds
    width = H + max((w.shape[1] - 1) * w.shape[2] for w in weights)
    c_n = x.new_empty(len(weights), B, width, dtype=state_type(x.dtype))
    return x.new_empty(T, B, H), x.new_empty(len(weights), B, H), c_n


# Backward. `setup` and `backward` have the form that both torch.library and torch.autograd.Function take.


def _contiguous(grad: Tensor | None) -> Tensor | None:
    # `out.sum().backward()` sends a gradient with stride 0.
    return None if grad is None else grad.contiguous()


def _kept(activated: Tensor) -> Tensor:
    """What the forward kept. A graph exported without gradients kept nothing."""
    if activated.dim() != 3:
        raise RuntimeError(
            "quasirnn: this program was traced without gradients, so nothing was kept for the backward. "
            "Export or compile it with gradients enabled."
        )
    return activated


def _rows(bias: Tensor | None) -> int:
    """Rows of the bias's gradient: none, one for all, or one for each batch row."""
    return 0 if bias is None else 1 if bias.dim() == 1 else bias.shape[0]


def _expected(ctx: Any, seed: Tensor | None) -> float:
    """The zoneout that acts as its expectation: what was kept is before it, but after a random one."""
    return ctx.settings["zoneout"] if seed is None else 0.0


def _replay(
    forward: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor | None], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradient as a differentiable function, for double backward: through the reference, slow and right.

    The aliases keep the inputs apart where one of them was computed from another.
    """
    aliases = [t.view_as(t) if t is not None and t.requires_grad else t for t in tensors]
    outputs = forward(*(None if t is None else plain.wide(t) for t in aliases))
    pairs = [
        (out.to(grad.dtype), grad)
        for out, grad in zip(outputs, grads, strict=True)
        if grad is not None and out.requires_grad
    ]
    wanted = [a for a in aliases if a is not None and a.requires_grad]
    if not pairs or not wanted:
        return [None] * len(tensors)
    found = iter(
        torch.autograd.grad([p[0] for p in pairs], wanted, [p[1] for p in pairs], create_graph=True, allow_unused=True)
    )
    return [next(found) if t is not None and t.requires_grad else None for t in tensors]


def _differentiating_again() -> bool:
    """Inside a backward, gradients are recorded only for a double backward."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _save(ctx: Any, tensors: Sequence[Tensor | None], **settings: Any) -> None:
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)
    ctx.settings = settings


def _recurrence_setup(ctx, inputs, output):
    f, z, i, c0, lengths, weight, reverse = inputs
    _save(ctx, (f, z, i, c0, lengths, output[0]), weight=weight, reverse=reverse)


def _recurrence_backward(ctx, grad_c, grad_c_last):
    f, z, i, c0, lengths, c = ctx.saved_tensors
    weight, reverse = ctx.settings["weight"], ctx.settings["reverse"]
    if _differentiating_again():

        def forward(f, z, i, c0):
            padding = plain.padding_of(f, lengths)
            f, z, i = (None if t is None else plain.without(t, padding) for t in (f, z, i))
            b = {plain.COMPLEMENT: lambda: (1 - f) * z, plain.INPUT: lambda: i * z, plain.ONE: lambda: z}[weight]()
            return reference.linear_recurrence(f, b, c0, reverse=reverse, lengths=lengths)

        return (*_replay(forward, (f, z, i, c0), (grad_c, grad_c_last)), None, None, None)
    grad_f, grad_z, grad_i, grad_c0 = torch.ops.quasirnn.recurrence_backward.default(
        _contiguous(grad_c), _contiguous(grad_c_last), f, z, i, c, c0, lengths, weight, reverse
    )
    return grad_f, grad_z, None if i is None else grad_i, None if c0 is None else grad_c0, None, None, None


def _pool_outputs(gates, bias, c0, lengths, seed, zoneout, kinds, reverse):
    """All outputs of `pool`, differentiable any number of times."""
    pooling = plain.POOLINGS[kinds]
    padding = plain.padding_of(gates, lengths)
    random = 0.0 if seed is None else zoneout
    activated = reference.activate(plain.without(gates, padding), pooling, bias, zoneout=random, seed=seed)
    z, f, *others = activated if seed is not None else reference.expected_zoneout(activated, zoneout)
    b = others[1] * z if kinds == 4 else (1 - f) * z
    c, last = reference.linear_recurrence(f, b, c0, reverse=reverse, lengths=lengths)
    return (c if kinds == 2 else others[0] * c), last, c, plain.without(torch.cat(activated, dim=-1), padding)


def _pool_setup(ctx, inputs, output):
    gates, bias, c0, lengths, seed, zoneout, kinds, reverse, _ = inputs
    h, _, c, activated = output
    # The gates themselves are needed by a double backward only; they are an input, so keeping them costs no copy.
    tensors = (gates, bias, c0, lengths, seed, h if kinds == 2 else c, activated)
    _save(ctx, tensors, zoneout=zoneout, kinds=kinds, reverse=reverse)


def _pool_backward(ctx, grad_h, grad_c_last, grad_c, grad_activated):
    gates, bias, c0, lengths, seed, c, activated = ctx.saved_tensors
    kinds, reverse = ctx.settings["kinds"], ctx.settings["reverse"]
    grads = (grad_h, grad_c_last, None if kinds == 2 else grad_c, grad_activated)
    if _differentiating_again():

        def forward(gates, bias, c0):
            return _pool_outputs(gates, bias, c0, lengths, seed, **ctx.settings)

        return (*_replay(forward, (gates, bias, c0), grads), *[None] * 6)
    grad_gates, grad_bias, grad_c0 = torch.ops.quasirnn.pool_backward.default(
        *map(_contiguous, grads), _kept(activated), c, c0, lengths, _expected(ctx, seed), kinds, reverse, _rows(bias)
    )
    return grad_gates, None if bias is None else grad_bias.view_as(bias), None if c0 is None else grad_c0, *[None] * 6


def _layer_setup(ctx, inputs, output):
    x, weight, bias, context, c0, lengths, seed, zoneout, kinds, look_ahead, reverse, _ = inputs
    h, _, c, activated = output
    tensors = (x, weight, bias, context, c0, lengths, seed, h if kinds == 2 else c, activated)
    _save(ctx, tensors, zoneout=zoneout, kinds=kinds, look_ahead=look_ahead, reverse=reverse)


def _layer_backward(ctx, grad_h, grad_c_last, grad_c, grad_activated):
    x, weight, bias, context, c0, lengths, seed, c, activated = ctx.saved_tensors
    kinds, look_ahead, reverse = (ctx.settings[name] for name in ("kinds", "look_ahead", "reverse"))
    grads = (grad_h, grad_c_last, None if kinds == 2 else grad_c, grad_activated)
    if _differentiating_again():

        def forward(x, weight, bias, context, c0):
            gates = reference.convolve(x, weight, context, look_ahead=look_ahead, reverse=reverse, lengths=lengths)
            return _pool_outputs(gates, bias, c0, lengths, seed, ctx.settings["zoneout"], kinds, reverse)

        return (*_replay(forward, (x, weight, bias, context, c0), grads), *[None] * 7)
    grad_x, grad_weight, grad_bias, grad_context, grad_c0 = torch.ops.quasirnn.layer_backward.default(
        *map(_contiguous, grads),
        x,
        weight,
        context,
        _kept(activated),
        c,
        c0,
        lengths,
        _expected(ctx, seed),
        kinds,
        look_ahead,
        reverse,
        _rows(bias),
        ctx.needs_input_grad[0],
    )
    return (
        grad_x if ctx.needs_input_grad[0] else None,
        grad_weight,
        None if bias is None else grad_bias.view_as(bias),
        None if context is None else grad_context,
        None if c0 is None else grad_c0,
        *[None] * 7,
    )


def _differentiable(name: str, setup: Callable[..., None], backward: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the operator on the cheapest route on which its gradient is right."""
    torch.library.register_autograd(f"quasirnn::{name}", backward, setup_context=setup, lib=_library)
    operator = getattr(torch.ops.quasirnn, name).default
    has_keep = "bool keep" in SCHEMAS[name]

    def forward(*inputs):
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*inputs)

    def forward_and_setup(ctx, *inputs):
        output = forward(*inputs)
        setup(ctx, inputs, output)
        return output

    # torch.func wants forward and setup apart, which costs 40 us a call; everyone else is spared that.
    eager = _function(f"quasirnn_{name}", forward=forward_and_setup, backward=backward)
    transformable = _function(f"quasirnn_{name}", forward=forward, setup_context=setup, backward=backward)

    def call(*inputs: Any) -> Any:
        backends.warn_if_plain(inputs[0].device)
        needs_grad = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
        if has_keep and needs_grad:
            inputs = (*inputs[:-1], True)
        if torch.compiler.is_compiling():
            return operator(*inputs)
        if not needs_grad:
            return forward(*inputs)
        return (transformable if torch._C._are_functorch_transforms_active() else eager).apply(*inputs)

    return call


def _function(name: str, **methods: Callable[..., Any]) -> Any:
    return type(name, (torch.autograd.Function,), {key: staticmethod(method) for key, method in methods.items()})


recurrence = _differentiable("recurrence", _recurrence_setup, _recurrence_backward)
pool = _differentiable("pool", _pool_setup, _pool_backward)
layer = _differentiable("layer", _layer_setup, _layer_backward)

_stack = torch.ops.quasirnn.stack.default


def stack(*inputs: Any) -> Any:
    """The operator of that name; its inputs must not need a gradient."""
    backends.warn_if_plain(inputs[0].device)
    return _stack(*inputs)
