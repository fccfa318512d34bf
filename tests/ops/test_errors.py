"""Invalid calls of the public functions: who, what must hold, what came and, where it can be guessed, what to do."""

import re

import pytest
import torch

from quasirnn.ops import f_pool, fo_pool, fused_pool, ifo_pool, linear_recurrence, qrnn_layer

T, B, H, D, K = 7, 4, 6, 3, 2


def gate(*shape: int, **kind) -> torch.Tensor:
    return torch.rand(*(shape or (T, B, H)), **kind)


def fo(**changed):
    return fo_pool(**{"z": gate(), "f": gate(), "o": gate()} | changed)


def ifo(**changed):
    return ifo_pool(**{"z": gate(), "f": gate(), "o": gate(), "i": gate()} | changed)


def fused(**changed):
    return fused_pool(**{"gates": gate(T, B, 3 * H)} | changed)


def layer(**changed):
    return qrnn_layer(**{"x": gate(T, B, D), "weight": gate(3 * H, K, D), "bias": gate(3 * H)} | changed)


def with_lengths(lengths):
    return lambda: fo(lengths=lengths)


CALLS = {
    # Not tensors, or not floats.
    "list for a gate": (lambda: fo(z=[1.0]), TypeError, "fo_pool: z must be a tensor, got list. torch.as_tensor(z)?"),
    "None for a gate": (lambda: fo(o=None), TypeError, "fo_pool: o must be a tensor, got NoneType."),
    "number for a state": (lambda: fo(c0=0.0), TypeError, "fo_pool: c0 must be a tensor, got float."),
    "array for x": (lambda: layer(x=gate().numpy()), TypeError, "qrnn_layer: x must be a tensor, got ndarray."),
    "integers": (
        lambda: fo(z=torch.ones(T, B, H, dtype=torch.int64)),
        TypeError,
        "fo_pool: z must be float32, float64, float16 or bfloat16, got int64. z.float()?",
    ),
    "complex numbers": (lambda: fused(gates=gate(T, B, 18).cfloat()), TypeError, "got complex64. gates.float()?"),
    "booleans": (lambda: f_pool(gate(), gate() > 0.5), TypeError, "f_pool: f must be float32,"),
    "integer state": (lambda: layer(c0=torch.ones(B, H).int()), TypeError, "qrnn_layer: c0 must be float32,"),
    "integer weight": (lambda: layer(weight=torch.ones(18, K, D).int()), TypeError, "qrnn_layer: weight must be"),
    # Layouts without strides.
    "oneDNN's own layout": (
        lambda: layer(x=gate(T, B, D).to_mkldnn()),
        TypeError,
        "qrnn_layer: x must be a strided tensor, got _mkldnn. x.to_dense()?",
    ),
    "sparse gates": (lambda: fused(gates=gate(T, B, 18).to_sparse()), TypeError, "a strided tensor, got sparse_coo."),
    "sparse lengths": (
        with_lengths(torch.ones(B, dtype=torch.int64).to_sparse()),
        ValueError,
        "lengths must be a strided tensor, got sparse_coo.",
    ),
    # Shapes of sequences.
    "no batch": (
        lambda: fo(z=gate(T, H)),
        ValueError,
        "fo_pool: z must have 3 dimensions (T, B, H), got shape (7, 6). z.unsqueeze(1) makes a batch of one.",
    ),
    "four dimensions": (lambda: fo(z=gate(T, B, H, 1)), ValueError, "(T, B, H), got shape (7, 4, 6, 1)."),
    "x without a batch": (lambda: layer(x=gate(T, D)), ValueError, "qrnn_layer: x must have 3 dimensions (T, B, D),"),
    "gates without a batch": (
        lambda: fused(gates=gate(T, 18)),
        ValueError,
        "3 dimensions (T, B, 3 * H), got shape (7, 18)",
    ),
    "no time": (lambda: fo(z=gate(0, B, H)), ValueError, "z has no time steps, shape (0, 4, 6); T must be at least 1."),
    "no time for a layer": (lambda: layer(x=gate(0, B, D)), ValueError, "qrnn_layer: x has no time steps,"),
    "no channels": (
        lambda: linear_recurrence(gate(T, B, 0), gate(T, B, 0)),
        ValueError,
        "linear_recurrence: b has no channels, shape (7, 4, 0); H must be at least 1.",
    ),
    "batch first": (
        lambda: fo(f=gate(B, T, H)),
        ValueError,
        "fo_pool: f must have the shape of z, (T, B, H) = (7, 4, 6), got (4, 7, 6). "
        "Time comes first here: f.transpose(0, 1)?",
    ),
    "another size": (
        lambda: fo(o=gate(T, B, H + 1)),
        ValueError,
        "o must have the shape of z, (T, B, H) = (7, 4, 6), got",
    ),
    "an input gate of another size": (lambda: ifo(i=gate(T, 1, H)), ValueError, "ifo_pool: i must have the shape of z"),
    "a factor of another size": (
        lambda: linear_recurrence(gate(T, B, 1), gate()),
        ValueError,
        "linear_recurrence: a must have the shape of b, (T, B, H) = (7, 4, 6), got (7, 4, 1).",
    ),
    # Types and devices that do not go together.
    "two types": (
        lambda: fo(f=gate(dtype=torch.float64)),
        TypeError,
        "fo_pool: f must have the type of z, float32, got float64. f.to(torch.float32)?",
    ),
    "half a weight": (
        lambda: layer(weight=gate(18, K, D).half()),
        TypeError,
        "weight must have the type of x, float32,",
    ),
    "double bias": (
        lambda: layer(bias=gate(18).double()),
        TypeError,
        "bias must have the type of the input, float32, got",
    ),
    "two devices": (
        lambda: fo(o=gate(device="meta")),
        ValueError,
        "fo_pool: o is on meta and z on cpu. o.to('cpu')?",
    ),
    "state elsewhere": (lambda: fo(c0=gate(B, H, device="meta")), ValueError, "c0 is on meta and the input on cpu."),
    "weight elsewhere": (lambda: layer(weight=gate(18, K, D, device="meta")), ValueError, "weight is on meta and x on"),
    # States, biases, weights, contexts.
    "state without batch": (
        lambda: fo(c0=gate(H)),
        ValueError,
        "fo_pool: c0 must have shape (B, H) = (4, 6), got (6,).",
    ),
    "state of an LSTM": (
        lambda: fused(c0=gate(1, B, H)),
        ValueError,
        "c0 must have shape (B, H) = (4, 6), got (1, 4, 6).",
    ),
    "h0": (
        lambda: linear_recurrence(gate(), gate(), gate(H, B)),
        ValueError,
        "linear_recurrence: h0 must have shape (B, H)",
    ),
    "bias of another width": (
        lambda: fused(bias=gate(H)),
        ValueError,
        "fused_pool: bias must have shape (gates * H) = (18,) or (B, gates * H) = (4, 18), got (6,).",
    ),
    "bias per step": (
        lambda: layer(bias=gate(T, 18)),
        ValueError,
        "qrnn_layer: bias must have shape (gates * H) = (18,)",
    ),
    "gates not divisible": (
        lambda: fused(gates=gate(T, B, 10)),
        ValueError,
        'fused_pool: with pooling "fo" the last dimension of gates must be 3 * H, got 10 in shape (7, 4, 10).',
    ),
    "no gates": (lambda: fused(gates=gate(T, B, 0)), ValueError, "the last dimension of gates must be 3 * H, got 0"),
    "weight of two dimensions": (
        lambda: layer(weight=gate(18, D)),
        ValueError,
        'qrnn_layer: with pooling "fo" and D = 3 inputs, weight must have shape (3 * H, k, 3), got (18, 3).',
    ),
    "weight as Conv1d has it": (
        lambda: layer(weight=gate(18, D, K)),
        ValueError,
        "weight must have shape (3 * H, k, 3),",
    ),
    "weight for another pooling": (
        lambda: layer(pooling="ifo"),
        ValueError,
        'with pooling "ifo" and D = 3 inputs, weight must have shape (4 * H, k, 3), got (18, 2, 3).',
    ),
    "kernel of width 0": (
        lambda: layer(weight=gate(18, 0, D)),
        ValueError,
        "weight must have shape (3 * H, k, 3), got",
    ),
    "context of another width": (
        lambda: layer(context=gate(B, K, D)),
        ValueError,
        "qrnn_layer: context must have shape (B, k - 1, D) = (4, 1, 3), got (4, 2, 3).",
    ),
    "context backwards": (
        lambda: layer(context=gate(B, K - 1, D), reverse=True),
        ValueError,
        "qrnn_layer: only a causal layer in the forward direction has a context",
    ),
    "context and look-ahead": (
        lambda: layer(context=gate(B, 1, D), look_ahead=1),
        ValueError,
        "only a causal layer in the forward",
    ),
    # Settings.
    "look-ahead beyond the window": (
        lambda: layer(look_ahead=K),
        ValueError,
        "qrnn_layer: look_ahead must be in 0 .. k - 1 = 1, got 2.",
    ),
    "negative look-ahead": (lambda: layer(look_ahead=-1), ValueError, "look_ahead must be in 0 .. k - 1 = 1, got -1."),
    "fractional look-ahead": (
        lambda: layer(look_ahead=0.5),
        TypeError,
        "qrnn_layer: look_ahead must be an integer, got float",
    ),
    "unknown pooling": (
        lambda: fused(pooling="of"),
        ValueError,
        'fused_pool: pooling must be "f", "fo" or "ifo", got \'of\'.',
    ),
    "pooling by number": (
        lambda: layer(pooling=3),
        ValueError,
        'qrnn_layer: pooling must be "f", "fo" or "ifo", got 3.',
    ),
    "zoneout above 1": (
        lambda: fused(zoneout=1.5, seed=torch.tensor(1)),
        ValueError,
        "fused_pool: zoneout is a probability and must be in [0, 1], got 1.5.",
    ),
    "negative zoneout": (
        lambda: layer(zoneout=-0.1),
        ValueError,
        "qrnn_layer: zoneout is a probability and must be in",
    ),
    "zoneout of NaN": (lambda: fused(zoneout=float("nan")), ValueError, "must be in [0, 1], got nan."),
    "zoneout as a word": (lambda: fused(zoneout="0.1"), TypeError, "zoneout must be a number in [0, 1], got str."),
    "zoneout as a switch": (lambda: layer(zoneout=True), TypeError, "zoneout must be a number in [0, 1], got bool."),
    "seed as a number": (lambda: layer(zoneout=0.1, seed=1), TypeError, "qrnn_layer: seed must be a tensor, got int."),
    "float seed": (
        lambda: fused(zoneout=0.1, seed=torch.tensor(1.0)),
        TypeError,
        "seed must be one int64, got torch.float32",
    ),
    "two seeds": (lambda: fused(zoneout=0.1, seed=torch.tensor([1, 2])), TypeError, "seed must be one int64, got"),
    # Lengths.
    "float lengths": (
        with_lengths(torch.full((B,), 2.0)),
        TypeError,
        "fo_pool: lengths must be integers, got float32. lengths.long()?",
    ),
    "list of float lengths": (with_lengths([1.0] * B), TypeError, "lengths must be integers, got float32."),
    "a mask for lengths": (
        with_lengths(torch.ones(B, dtype=torch.bool)),
        TypeError,
        "lengths must be integers, got bool.",
    ),
    "words for lengths": (
        with_lengths(["a"] * B),
        TypeError,
        "fo_pool: lengths must be a tensor or a list of B integers, got list.",
    ),
    "too few lengths": (
        with_lengths([1, 2, 3]),
        ValueError,
        "fo_pool: lengths must have one entry for each of the B = 4 rows, got shape (3,).",
    ),
    "one length for all": (with_lengths(3), ValueError, "one entry for each of the B = 4 rows, got shape ()."),
    "zero length": (
        with_lengths([7, 0, 1, 1]),
        ValueError,
        "fo_pool: every length must be at least 1, got 0. Leave empty rows out of the batch.",
    ),
    "negative length": (
        with_lengths(torch.tensor([7, 1, -3, 1])),
        ValueError,
        "every length must be at least 1, got -3.",
    ),
    "too long": (
        with_lengths([8, 1, 1, 1]),
        ValueError,
        "fo_pool: a length of 8 is more than the number of time steps, T = 7.",
    ),
    "too long for a layer": (
        lambda: layer(lengths=[9] * B),
        ValueError,
        "qrnn_layer: a length of 9 is more than the number of time steps, T = 7",
    ),
    "lengths on meta": (
        with_lengths(torch.ones(B, device="meta").long()),
        ValueError,
        "lengths is on meta, where it has no",
    ),
}


@pytest.mark.parametrize("what", CALLS)
def test_guarantee_never_crashes_but_says_what_is_wrong(what):
    call, kind, message = CALLS[what]
    with pytest.raises(kind, match=re.escape(message)) as caught:
        call()
    said = str(caught.value)
    assert re.match(r"(f|fo|ifo|fused)_pool: |linear_recurrence: |qrnn_layer: ", said), "who?"
    assert "\n" not in said
    assert said.endswith((".", "?"))


def test_there_are_enough_of_them():
    """At least 35 calls with 15 messages that differ in more than names and numbers."""
    found = set()
    for call, _, _ in CALLS.values():
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        words = re.sub(r"\(.*?\)|\[.*?\]|'.*?'|\".*?\"|[\d.]+", "_", str(caught.value).split(": ", 1)[1])
        found.add(re.sub(r"^(a )?\w+", "", words.split(", got")[0]))
    assert len(CALLS) >= 35
    assert len(found) >= 15, found


OPERATORS = torch.ops.quasirnn
NONSENSE = {
    "no gates": (
        lambda x: OPERATORS.pool(x, None, None, None, None, None, 0.0, 0, False, False),
        r"must be 2 \(f\), 3 \(fo\) or 4 \(ifo\), got 0",
    ),
    "five gates": (
        lambda x: OPERATORS.layer(x, x, None, None, None, None, None, None, 0.0, 5, 0, False, True),
        r"must be 2 \(f\), 3 \(fo\) or 4 \(ifo\), got 5",
    ),
    "no layers": (lambda x: OPERATORS.stack(x, [], [], None, 0.0, 3, False), "fit together|at least one weight"),
}


@pytest.mark.parametrize("what", NONSENSE)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_guarantee_never_crashes_on_operators_called_directly(what, device):
    """Sizes that divide by zero, or by which nothing can be looked up; on meta the shape functions say so."""
    call, message = NONSENSE[what]
    with pytest.raises((ValueError, RuntimeError), match=message):
        call(torch.rand(T, B, 6).to(device))


@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, torch.Tensor.to_mkldnn], ids=["sparse", "mkldnn"])
def test_guarantee_never_crashes_on_memory_without_strides(change):
    x = torch.rand(T, B, 6)
    with pytest.raises(ValueError, match="quasirnn::recurrence: a must be a strided tensor, got "):
        OPERATORS.recurrence(change(x), x, None, None, None, False)
    with pytest.raises(ValueError, match="quasirnn::recurrence_backward: grad_h must be a strided tensor, got "):
        OPERATORS.recurrence_backward(change(x), None, x, x, None, None, None, False)
