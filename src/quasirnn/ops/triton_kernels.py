"""The GPU kernels, in Triton: `pool`, `recurrence` and their gradients. Their contract is in operators.py.

A program takes a block of channels of one batch row through all time steps. Neighbouring lanes hold neighbouring
channels, the state never leaves its registers, and every number is read and written once. What lies past a row's
length is filled with zeros and never read. 16-bit numbers are widened when loaded and narrowed when stored.

Only arithmetic whose result IEEE 754 fixes is used, no approximate instruction: what the tests measure under Triton's
interpreter holds on a card too, up to fused multiply-adds.

This module imports triton; `backends` decides whether to import this module.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# A kernel's arguments are pointers and numbers in a language of their own, which mypy does not read.

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from quasirnn.ops.operators import state_type

# Time steps under way at once: what step t + 3 reads is on its way while step t is computed.
STAGES = tl.constexpr(4)


# Arithmetic.


@triton.jit
def _scaled_exp(x):
    """e^x = scale * (1 + fraction), scale a power of two; a NaN passes through. As in csrc/nonlinearity.h."""
    # Adding 1.5 * 2^23 (2^52) leaves the nearest integer in the low bits; the others are shifted out. ln 2 comes in two
    # parts, the first with few bits. p is the series of (e^r - 1 - r) / r^2; what it leaves out is below half an ulp.
    if x.dtype == tl.float64:
        x = tl.where(x < -708.0, -708.0, tl.where(x > 709.0, 709.0, x))
        shifted = x * 1.4426950408889634 + 6755399441055744.0
        n = shifted - 6755399441055744.0
        r = x - n * 0.6931471803691238 - n * 1.9082149292705877e-10
        p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        bits = (shifted.to(tl.int64, bitcast=True) + 1023) << 52
    else:
        x = tl.where(x < -87.0, -87.0, tl.where(x > 88.0, 88.0, x))
        shifted = x * 1.4426950408889634 + 12582912.0
        n = shifted - 12582912.0
        r = x - n * 0.693359375 + n * 2.1219444005469058e-4
        p = r * (1.0 / 5040.0) + 1.0 / 720.0
        bits = (shifted.to(tl.int32, bitcast=True) + 127) << 23
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    return bits.to(x.dtype, bitcast=True), p * (r * r) + r


@triton.jit
def _divide(a, b):
    # `/` is correctly rounded in double precision only.
    if a.dtype == tl.float64:
        quotient = a / b
    else:
        quotient = tl.div_rn(a, b)
    return quotient


@triton.jit
def _sigmoid(x):
    scale, fraction = _scaled_exp(-x)
    below = 1.0 + (scale + scale * fraction)
    return _divide(tl.full(below.shape, 1.0, below.dtype), below)


@triton.jit
def _tanh(x):
    """Through e^(-2|x|) - 1, which keeps its digits near zero."""
    scale, fraction = _scaled_exp(tl.where(x < 0, 2.0 * x, -2.0 * x))
    less_one = scale * fraction + (scale - 1.0)
    t = _divide(-less_one, 2.0 + less_one)
    return tl.where(x < 0, -t, t)


@triton.jit
def _add(total, lost, value):
    """Compensated sum: `lost` is what the total had no digits for. A long sum in single precision needs it."""
    value -= lost
    new = total + value
    return new, (new - total) - value


@triton.jit
def _zoned(seed, t, b, channel, up_to):
    """Which channels keep their state, as in random_masks.py. `up_to` is the largest word that zones a channel out."""
    k0, k1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    c0, c1 = (channel // 4).to(tl.uint32), b.to(tl.uint32)
    c2, c3 = tl.cast(t, tl.uint32), tl.cast(t >> 32, tl.uint32)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, 0xD2511F53), c0 * 0xD2511F53
        high1, low1 = tl.umulhi(c2, 0xCD9E8D57), c2 * 0xCD9E8D57
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    even = channel % 2 == 0
    word = tl.where(channel % 4 < 2, tl.where(even, c0, c1), tl.where(even, c2, c3))
    return word.to(tl.int64) <= up_to


# Where a program stands, and how it reads. A pointer that is None was not given: that branch is not compiled.


@triton.jit
def _place(lengths, T, H, BLOCK: tl.constexpr):
    """The program's batch row, the row's length, and its channels with those that exist."""
    blocks = (H + BLOCK - 1) // BLOCK
    b = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    length = T
    if lengths is not None:
        # A wrong length gives a wrong result, but must not touch foreign memory.
        length = tl.minimum(tl.maximum(tl.load(lengths + b), 0), T)
    return b, length, channel, channel < H


@triton.jit
def _kept(starts, t, b, B, length, REVERSE: tl.constexpr):
    """Whether the step that is read before t belongs to the same sequence."""
    if REVERSE:
        kept = tl.load(starts + (t + 1) * B + b, mask=t + 1 < length, other=0) == 0
    else:
        kept = tl.load(starts + t * B + b) == 0
    return kept


@triton.jit
def _load(pointer, at, inside, dtype: tl.constexpr):
    """The numbers there, widened; zeros where there is no pointer."""
    if pointer is None:
        value = tl.full(at.shape, 0.0, dtype)
    else:
        value = tl.load(pointer + at, mask=inside, other=0.0).to(dtype)
    return value


# Kernels. T and B are 64-bit numbers, and so is every offset made with them. Their values are not compiled in; of H it
# is whether 16 divides it.


@triton.jit(do_not_specialize=["T", "B", "bias_stride", "up_to", "expected"])
def _pool(
    gates,
    bias,
    c0,
    lengths,
    starts,
    seed,
    h,
    c_last,
    c,
    activated,
    T: tl.int64,
    B: tl.int64,
    H,
    bias_stride,
    up_to: tl.int64,
    expected: tl.float64,
    NUM_GATES: tl.constexpr,
    REVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b, length, j, inside = _place(lengths, T, H, BLOCK)
    dtype: tl.constexpr = c_last.dtype.element_ty
    state = _load(c0, b * H + j, inside, dtype)
    bias_z = _load(bias, b * bias_stride + j, inside, dtype)
    bias_f = _load(bias, b * bias_stride + H + j, inside, dtype)
    bias_o = _load(bias, b * bias_stride + 2 * H + j, inside & (NUM_GATES > 2), dtype)
    bias_i = _load(bias, b * bias_stride + 3 * H + j, inside & (NUM_GATES > 3), dtype)
    p = tl.full([BLOCK], expected, dtype)
    if seed is not None:
        key = tl.load(seed)

    for step in tl.range(0, length, num_stages=STAGES):
        t = length - 1 - step if REVERSE else step
        cell = (t * B + b) * H + j
        gate = (t * B + b) * (NUM_GATES * H) + j
        z = _tanh(_load(gates, gate, inside, dtype) + bias_z)
        f = _sigmoid(_load(gates, gate + H, inside, dtype) + bias_f)
        if NUM_GATES > 2:
            o = _sigmoid(_load(gates, gate + 2 * H, inside, dtype) + bias_o)
        if NUM_GATES > 3:
            i = _sigmoid(_load(gates, gate + 3 * H, inside, dtype) + bias_i)
        else:
            i = 1.0 - f
        if seed is not None:
            zoned = _zoned(key, t, b, j, up_to)
            f = tl.where(zoned, 1.0, f)
            i = tl.where(zoned, 0.0, i)
        if activated is not None:
            tl.store(activated + gate, z, inside)
            tl.store(activated + gate + H, f, inside)
            if NUM_GATES > 2:
                tl.store(activated + gate + 2 * H, o, inside)
            if NUM_GATES > 3:
                tl.store(activated + gate + 3 * H, i, inside)
        if starts is not None:
            state = tl.where(_kept(starts, t, b, B, length, REVERSE), state, 0.0)
        # What was kept is before the expectation of zoneout; p = 0 and 1 - p = 1 change no bit.
        state = (p + (1.0 - p) * f) * state + (1.0 - p) * i * z
        if c is not None:
            tl.store(c + cell, state, inside)
        tl.store(h + cell, o * state if NUM_GATES > 2 else state, inside)
    tl.store(c_last + b * H + j, state, inside)

    nothing = tl.full([BLOCK], 0.0, dtype)
    for t in range(length, T):
        cell = (t * B + b) * H + j
        tl.store(h + cell, nothing, inside)
        if c is not None:
            tl.store(c + cell, nothing, inside)
        if activated is not None:
            for g in tl.static_range(NUM_GATES):
                tl.store(activated + (t * B + b) * (NUM_GATES * H) + g * H + j, nothing, inside)


@triton.jit(do_not_specialize=["T", "B", "expected"])
def _pool_backward(
    grad_h,
    grad_c_last,
    grad_c,
    grad_activated,
    activated,
    c,
    c0,
    lengths,
    starts,
    grad_gates,
    grad_bias,
    grad_c0,
    T: tl.int64,
    B: tl.int64,
    H,
    expected: tl.float64,
    NUM_GATES: tl.constexpr,
    REVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b, length, j, inside = _place(lengths, T, H, BLOCK)
    dtype: tl.constexpr = grad_c0.dtype.element_ty
    carry = _load(grad_c_last, b * H + j, inside, dtype)
    first = _load(c0, b * H + j, inside, dtype)
    nothing = tl.full([BLOCK], 0.0, dtype)
    # Sums for the bias; o and i keep theirs at zero where there is no such gate.
    p = tl.full([BLOCK], expected, dtype)
    sum_z, sum_f, sum_o, sum_i = nothing, nothing, nothing, nothing
    lost_z, lost_f, lost_o, lost_i = nothing, nothing, nothing, nothing
    last = 0 if REVERSE else length - 1
    cells = _load(c, (last * B + b) * H + j, inside & (length > 0), dtype)

    for back in tl.range(0, length, num_stages=STAGES):
        # Against the forward's order; `before` is the step that the forward came from.
        step = length - 1 - back
        t = back if REVERSE else step
        before = (t + 1 if REVERSE else t - 1) * B + b
        cell = (t * B + b) * H + j
        gate = (t * B + b) * (NUM_GATES * H) + j
        z = _load(activated, gate, inside, dtype)
        kept_f = _load(activated, gate + H, inside, dtype)
        f = p + (1.0 - p) * kept_f
        d_h = _load(grad_h, cell, inside, dtype)
        d_c = carry + _load(grad_c, cell, inside, dtype)
        c_before = tl.where(step > 0, _load(c, before * H + j, inside & (step > 0), dtype), first)
        cells_before = c_before
        if starts is not None:
            kept = _kept(starts, t, b, B, length, REVERSE)
            c_before = tl.where(kept, c_before, 0.0)
        if NUM_GATES > 2:
            o = _load(activated, gate + 2 * H, inside, dtype)
            d_c += d_h * o
            d_o = d_h * cells + _load(grad_activated, gate + 2 * H, inside, dtype)
            d_o *= o * (1.0 - o)
            tl.store(grad_gates + gate + 2 * H, d_o, inside)
            sum_o, lost_o = _add(sum_o, lost_o, d_o)
        else:
            d_c += d_h
        if NUM_GATES > 3:
            i = _load(activated, gate + 3 * H, inside, dtype)
            d_i = (1.0 - p) * d_c * z + _load(grad_activated, gate + 3 * H, inside, dtype)
            d_i *= i * (1.0 - i)
            tl.store(grad_gates + gate + 3 * H, d_i, inside)
            sum_i, lost_i = _add(sum_i, lost_i, d_i)
            d_z, d_f = (1.0 - p) * d_c * i, d_c * c_before
        else:
            d_z, d_f = d_c * (1.0 - f), d_c * (c_before - z)
        # A channel that the mask zoned out was kept with f = 1 (and i = 0), so these products are zero.
        d_z = (d_z + _load(grad_activated, gate, inside, dtype)) * (1.0 - z * z)
        d_f = ((1.0 - p) * d_f + _load(grad_activated, gate + H, inside, dtype)) * (kept_f * (1.0 - kept_f))
        tl.store(grad_gates + gate, d_z, inside)
        tl.store(grad_gates + gate + H, d_f, inside)
        sum_z, lost_z = _add(sum_z, lost_z, d_z)
        sum_f, lost_f = _add(sum_f, lost_f, d_f)
        carry, cells = d_c * f, cells_before
        if starts is not None:
            carry = tl.where(kept, carry, 0.0)
    tl.store(grad_c0 + b * H + j, carry, inside)
    if grad_bias is not None:
        gate = b * (NUM_GATES * H) + j
        tl.store(grad_bias + gate, sum_z, inside)
        tl.store(grad_bias + gate + H, sum_f, inside)
        tl.store(grad_bias + gate + 2 * H, sum_o, inside & (NUM_GATES > 2))
        tl.store(grad_bias + gate + 3 * H, sum_i, inside & (NUM_GATES > 3))

    for t in range(length, T):
        for g in tl.static_range(NUM_GATES):
            tl.store(grad_gates + (t * B + b) * (NUM_GATES * H) + g * H + j, nothing, inside)


@triton.jit(do_not_specialize=["T", "B"])
def _recurrence(
    a,
    b,
    h0,
    lengths,
    starts,
    h,
    h_last,
    T: tl.int64,
    B: tl.int64,
    H,
    REVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, length, j, inside = _place(lengths, T, H, BLOCK)
    dtype: tl.constexpr = h_last.dtype.element_ty
    state = _load(h0, row * H + j, inside, dtype)
    for step in tl.range(0, length, num_stages=STAGES):
        t = length - 1 - step if REVERSE else step
        cell = (t * B + row) * H + j
        if starts is not None:
            state = tl.where(_kept(starts, t, row, B, length, REVERSE), state, 0.0)
        state = _load(a, cell, inside, dtype) * state + _load(b, cell, inside, dtype)
        tl.store(h + cell, state, inside)
    tl.store(h_last + row * H + j, state, inside)
    for t in range(length, T):
        tl.store(h + (t * B + row) * H + j, tl.full([BLOCK], 0.0, dtype), inside)


@triton.jit(do_not_specialize=["T", "B"])
def _recurrence_backward(
    grad_h,
    grad_h_last,
    a,
    h,
    h0,
    lengths,
    starts,
    grad_a,
    grad_b,
    grad_h0,
    T: tl.int64,
    B: tl.int64,
    H,
    REVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, length, j, inside = _place(lengths, T, H, BLOCK)
    dtype: tl.constexpr = grad_h0.dtype.element_ty
    carry = _load(grad_h_last, row * H + j, inside, dtype)
    first = _load(h0, row * H + j, inside, dtype)
    for back in tl.range(0, length, num_stages=STAGES):
        step = length - 1 - back
        t = back if REVERSE else step
        before = (t + 1 if REVERSE else t - 1) * B + row
        cell = (t * B + row) * H + j
        d_h = carry + _load(grad_h, cell, inside, dtype)
        h_before = tl.where(step > 0, _load(h, before * H + j, inside & (step > 0), dtype), first)
        carry = d_h * _load(a, cell, inside, dtype)
        if starts is not None:
            kept = _kept(starts, t, row, B, length, REVERSE)
            h_before = tl.where(kept, h_before, 0.0)
            carry = tl.where(kept, carry, 0.0)
        tl.store(grad_a + cell, d_h * h_before, inside)
        tl.store(grad_b + cell, d_h, inside)
    tl.store(grad_h0 + row * H + j, carry, inside)
    nothing = tl.full([BLOCK], 0.0, dtype)
    for t in range(length, T):
        cell = (t * B + row) * H + j
        tl.store(grad_a + cell, nothing, inside)
        tl.store(grad_b + cell, nothing, inside)


# Launching.


def require_driver() -> None:
    """Raises where nothing can be launched: on first use Triton compiles a piece of C, which takes a compiler."""
    triton.runtime.driver.active.get_current_device()


class Launch(NamedTuple):
    """How many channels a program takes, and by how many warps of 32 lanes it is run."""

    block: int
    warps: int


def configurations(H: int, itemsize: int) -> list[Launch]:
    """The launches there are for H channels of `itemsize` bytes, widest first.

    A lane takes four bytes of a row, the least that can be copied ahead of time: one channel, or two 16-bit ones. A
    block wider than one warp must not leave more than an eighth of its lanes without a channel.

    >>> configurations(320, itemsize=4)
    [Launch(block=64, warps=2), Launch(block=32, warps=1)]
    """
    size = min(itemsize, 4)
    one_warp = 128 // size
    wider = [n for n in (256, 128, 64) if n > one_warp and 7 * n * triton.cdiv(H, n) <= 8 * H]
    return [Launch(n, n * size // 128) for n in (*wider, one_warp)]


def choose(B: int, H: int, itemsize: int) -> Launch:
    """The widest launch that makes 256 programs, about two for each multiprocessor of a large card; else the narrowest.

    Few programs had better be spread over all multiprocessors; of many, each one holds at most 16 to 32 at a time.
    """
    *wider, narrowest = configurations(H, itemsize)
    return next((launch for launch in wider if B * triton.cdiv(H, launch.block) >= 256), narrowest)


def _launch(kernel: Any, B: int, H: int, beside: Tensor, *arguments: Any, **constants: Any) -> None:
    if B * H == 0:
        return
    block, warps = choose(B, H, beside.element_size())
    # What is empty was not asked for.
    given = [None if isinstance(x, Tensor) and x.numel() == 0 else x for x in arguments]
    # Triton launches on the current device.
    with torch.cuda.device_of(beside):
        kernel[(B * triton.cdiv(H, block),)](*given, **constants, BLOCK=block, num_warps=warps)


def _check(beside: Tensor, dtype: torch.dtype, shape: tuple[int, ...], **tensors: Tensor | None) -> None:
    """Kernels trust their pointers."""
    for name, x in tensors.items():
        if x is None or (x.dtype, x.shape, x.device, x.is_contiguous()) == (dtype, shape, beside.device, True):
            continue
        raise ValueError(
            f"quasirnn: {name} must be contiguous, {dtype}, of shape {shape}, on {beside.device}; "
            f"got {x.dtype}, {tuple(x.shape)} with strides {x.stride()}, on {x.device}."
        )


def _check_rows(beside: Tensor, T: int, B: int, lengths: Tensor | None, starts: Tensor | None) -> Tensor | None:
    """The starts as bytes."""
    _check(beside, torch.int64, (B,), lengths=lengths)
    _check(beside, torch.bool, (T, B), starts=starts)
    return None if starts is None else starts.view(torch.uint8)


# The operators, with the arguments that operators.py gives them.


def pool(gates, bias, c0, lengths, starts, seed, zoneout, num_gates, reverse, keep):
    T, B, W = gates.shape
    H, dtype, state = W // num_gates, gates.dtype, state_type(gates.dtype)
    bias_stride = W if bias is not None and bias.dim() == 2 else 0
    expected = zoneout if seed is None else 0.0
    zoned_below = int(zoneout * 2**32 + 0.5)
    seed = None if zoned_below == 0 or seed is None else seed.reshape(())
    assert num_gates in (2, 3, 4)
    _check(gates, dtype, (T, B, num_gates * H), gates=gates)
    _check(gates, dtype, (B, W) if bias_stride else (W,), bias=bias)
    _check(gates, state, (B, H), c0=c0)
    starts = _check_rows(gates, T, B, lengths, starts)
    _check(gates, torch.int64, (), seed=seed)
    h, c_last = gates.new_empty(T, B, H), gates.new_empty(B, H, dtype=state)
    c = gates.new_empty(T, B, H) if keep and num_gates > 2 else gates.new_empty(0)
    activated = torch.empty_like(gates) if keep else gates.new_empty(0)
    pointers = (gates, bias, c0, lengths, starts, seed, h, c_last, c, activated)
    sizes = (T, B, H, bias_stride, zoned_below - 1, float(expected))
    _launch(_pool, B, H, gates, *pointers, *sizes, NUM_GATES=num_gates, REVERSE=reverse)
    return h, c_last, c, activated


def pool_backward(
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
    T, B, W = activated.shape
    H, dtype, state = W // num_gates, activated.dtype, state_type(activated.dtype)
    assert num_gates in (2, 3, 4)
    assert bias_rows in (0, 1, B)
    _check(activated, dtype, (T, B, num_gates * H), activated=activated, grad_activated=grad_activated)
    _check(activated, dtype, (T, B, H), c=c, grad_h=grad_h, grad_c=grad_c)
    _check(activated, state, (B, H), c0=c0, grad_c_last=grad_c_last)
    starts = _check_rows(activated, T, B, lengths, starts)
    grad_gates, grad_c0 = torch.empty_like(activated), activated.new_empty(B, H, dtype=state)
    grad_bias = activated.new_empty(B if bias_rows else 0, W, dtype=state)
    kept = (activated, c, c0, lengths, starts)
    pointers = (grad_h, grad_c_last, grad_c, grad_activated, *kept, grad_gates, grad_bias, grad_c0)
    _launch(_pool_backward, B, H, activated, *pointers, T, B, H, float(zoneout), NUM_GATES=num_gates, REVERSE=reverse)
    if bias_rows == 0:
        return grad_gates, activated.new_empty(0), grad_c0
    return grad_gates, (grad_bias if bias_rows == B else grad_bias.sum(dim=0, keepdim=True)).to(dtype), grad_c0


def recurrence(a, b, h0, lengths, starts, reverse):
    T, B, H = a.shape
    state = state_type(a.dtype)
    _check(a, a.dtype, (T, B, H), a=a, b=b)
    _check(a, state, (B, H), h0=h0)
    starts = _check_rows(a, T, B, lengths, starts)
    h, h_last = torch.empty_like(a), a.new_empty(B, H, dtype=state)
    _launch(_recurrence, B, H, a, a, b, h0, lengths, starts, h, h_last, T, B, H, REVERSE=reverse)
    return h, h_last


def recurrence_backward(grad_h, grad_h_last, a, h, h0, lengths, starts, reverse):
    T, B, H = a.shape
    state = state_type(a.dtype)
    _check(a, a.dtype, (T, B, H), a=a, h=h, grad_h=grad_h)
    _check(a, state, (B, H), h0=h0, grad_h_last=grad_h_last)
    starts = _check_rows(a, T, B, lengths, starts)
    grad_a, grad_b, grad_h0 = torch.empty_like(a), torch.empty_like(a), a.new_empty(B, H, dtype=state)
    pointers = (grad_h, grad_h_last, a, h, h0, lengths, starts, grad_a, grad_b, grad_h0)
    _launch(_recurrence_backward, B, H, a, *pointers, T, B, H, REVERSE=reverse)
    return grad_a, grad_b, grad_h0
