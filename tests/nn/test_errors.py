"""Wrong calls: a ValueError or TypeError that says what must hold, with the sizes, and what came."""

import re
import warnings

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from quasirnn import QRNN, QRNNLayer
from quasirnn.nn import LayerState
from quasirnn.ops import checks


def build(*sizes, **options):
    return lambda: QRNN(*(sizes or (3, 5)), **options)


def build_layer(*sizes, **options):
    return lambda: QRNNLayer(*(sizes or (3, 5)), **options)


def call(x=None, *state, rnn=None, **options):
    """A call of a network of two layers: D = 3, H = 5, k = 3, so that c_n has 15 columns."""

    def run():
        module = QRNN(3, 5, 2, kernel_size=3, **(rnn or {}))
        return module(torch.randn(6, 4, 3) if x is None else x, *state, **options)

    return run


def call_layer(x=None, *state, layer=None, **options):
    def run():
        module = QRNNLayer(3, 5, **(layer or {}))
        return module(torch.randn(6, 4, 3) if x is None else x, *state, **options)

    return run


def zeros(*shape, **options):
    return torch.zeros(shape, **options)


def pair(layers=2, rows=4, columns=5):
    return zeros(layers, rows, 5), zeros(layers, rows, columns)


def quantized(x):
    with warnings.catch_warnings():
        # That torch is going to drop them.
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)


BUILDING = {
    "no inputs": (build(0, 5), ValueError, "QRNN: input_size must be at least 1, got 0."),
    "no channels": (build(3, -5), ValueError, "QRNN: hidden_size must be at least 1, got -5."),
    "no layers": (build(3, 5, 0), ValueError, "QRNN: num_layers must be at least 1, got 0."),
    "half a channel": (build(3, 5.0), TypeError, "QRNN: hidden_size must be an integer, got float."),
    "text for a size": (build("3", 5), TypeError, "QRNN: input_size must be an integer, got str."),
    "truth for a size": (build(3, 5, True), TypeError, "QRNN: num_layers must be an integer, got bool."),
    "k = 0": (build(kernel_size=0), ValueError, "QRNN: kernel_size must be at least 1, got 0."),
    "k = 2.0": (build(kernel_size=2.0), TypeError, "kernel_size must be an integer or one per layer, got float."),
    "k as text": (build(kernel_size="2"), TypeError, "kernel_size must be an integer or one per layer, got str."),
    "one k too many": (
        build(3, 5, 2, kernel_size=(3, 2, 2)),
        ValueError,
        "QRNN: kernel_size has 3 widths for num_layers = 2; give one per layer, or one integer for all.",
    ),
    "k = 0 among others": (build(3, 5, 2, kernel_size=(2, 0)), ValueError, "kernel_size must be at least 1, got 0."),
    "pooling": (build(pooling="max"), ValueError, """QRNN: pooling must be "f", "fo" or "ifo", got 'max'."""),
    "pooling as a list": (build(pooling=["f"]), ValueError, """pooling must be "f", "fo" or "ifo", got ['f']."""),
    "zoneout above 1": (
        build(zoneout=1.5),
        ValueError,
        "QRNN: zoneout is a probability and must be in [0, 1], got 1.5.",
    ),
    "zoneout below 0": (build(zoneout=-0.1), ValueError, "zoneout is a probability and must be in [0, 1], got -0.1."),
    "zoneout is not a number": (build(zoneout=float("nan")), ValueError, "must be in [0, 1], got nan."),
    "zoneout as text": (build(zoneout="0.1"), TypeError, "QRNN: zoneout must be a number in [0, 1], got str."),
    "dropout above 1": (
        build(3, 5, 2, dropout=2),
        ValueError,
        "QRNN: dropout is a probability and must be in [0, 1], got 2.",
    ),
    "dropout as truth": (
        build(3, 5, 2, dropout=True),
        TypeError,
        "QRNN: dropout must be a number in [0, 1], got bool.",
    ),
    "type": (
        build(dtype=torch.int64),
        TypeError,
        "dtype must be float32, float64, float16 or bfloat16, got torch.int64.",
    ),
    "layer: k": (build_layer(kernel_size=-1), ValueError, "QRNNLayer: kernel_size must be at least 1, got -1."),
    "layer: pooling": (build_layer(pooling="of"), ValueError, """QRNNLayer: pooling must be "f", "fo" or "ifo", got"""),
    "layer: many k": (
        build_layer(kernel_size=(2, 2)),
        TypeError,
        "QRNNLayer: kernel_size must be an integer, got tuple.",
    ),
}

CALLING = {
    **{
        f"{kind} input": (
            call(change(torch.ones(6, 4, 3))),
            TypeError,
            f"QRNN: input must be a strided tensor, got {named}. input.to_dense()?",
        )
        for kind, named, change in (
            ("mkldnn", "_mkldnn", torch.Tensor.to_mkldnn),
            ("sparse", "sparse_coo", torch.Tensor.to_sparse),
            ("nested", "nested", lambda x: torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged)),
            (
                "quantized",
                "quantized",
                quantized,
            ),
        )
    },
    "complex input": (call(torch.ones(6, 4, 3).cfloat()), TypeError, "QRNN: input must be float32,"),
    "mkldnn state": (
        call(None, tuple(part.to_mkldnn() for part in pair())),
        TypeError,
        "QRNN: hx[0] must be a strided tensor, got _mkldnn.",
    ),
    "no tensor": (call([[1.0]]), TypeError, "QRNN: input must be a tensor, got list. torch.as_tensor(input)?"),
    "tokens": (
        call(zeros(6, 4, 3, dtype=torch.int64)),
        TypeError,
        "QRNN: input must be float32, float64, float16 or bfloat16, got int64. input.float()?",
    ),
    "four dimensions": (
        call(zeros(6, 4, 3, 1)),
        ValueError,
        "QRNN: input must have shape (T, B, D), or (T, D) without a batch, got (6, 4, 3, 1).",
    ),
    "one dimension, batch first": (
        call(zeros(3), rnn={"batch_first": True}),
        ValueError,
        "QRNN: input must have shape (B, T, D), or (T, D) without a batch, got (3,).",
    ),
    "features": (
        call(zeros(6, 4, 2)),
        ValueError,
        "QRNN: the last dimension of input must be input_size = 3, got shape (6, 4, 2).",
    ),
    "features in another place": (
        call(zeros(6, 3, 4)),
        ValueError,
        "must be input_size = 3, got shape (6, 3, 4). Is its last dimension the features?",
    ),
    "no steps": (
        call(zeros(0, 4, 3)),
        ValueError,
        "QRNN: input has no time steps, shape (0, 4, 3); T must be at least 1.",
    ),
    "no steps, batch first": (
        call(zeros(4, 0, 3), rnn={"batch_first": True}),
        ValueError,
        "shape (4, 0, 3); T must be",
    ),
    "another type": (
        call(zeros(6, 4, 3, dtype=torch.float64)),
        TypeError,
        "QRNN: input must have the type of the weights, torch.float32, got torch.float64. "
        "input.to(torch.float32), or the module .to(torch.float64)?",
    ),
    "another type on meta": (
        call(zeros(6, 4, 3, dtype=torch.float64, device="meta"), rnn={"device": "meta"}),
        TypeError,
        "QRNN: input must have the type of the weights, torch.float32, got torch.float64.",
    ),
    "another device": (
        call(zeros(6, 4, 3, device="meta")),
        ValueError,
        "QRNN: input is on meta and the weights on cpu. input.to('cpu')?",
    ),
    "a length of 0": (
        call(lengths=[6, 0, 1, 1]),
        ValueError,
        "QRNN: every length must be at least 1, got 0. Leave empty rows out of the batch.",
    ),
    "a negative length": (call(lengths=[6, 2, -3, 1]), ValueError, "every length must be at least 1, got -3."),
    "a length too long": (
        call(lengths=[6, 7, 1, 1]),
        ValueError,
        "QRNN: a length of 7 is more than the number of time steps, T = 6.",
    ),
    "lengths with fractions": (
        call(lengths=[6.0, 2.0, 1.0, 1.0]),
        TypeError,
        "QRNN: lengths must be integers, got float32. lengths.long()?",
    ),
    "lengths as a mask": (call(lengths=[True] * 4), TypeError, "QRNN: lengths must be integers, got bool."),
    "a length too few": (
        call(lengths=[6, 2, 1]),
        ValueError,
        "QRNN: lengths must have one entry for each of the B = 4 rows, got shape (3,).",
    ),
    "one length for all": (call(lengths=6), ValueError, "one entry for each of the B = 4 rows, got shape ()."),
    "nested lengths": (call(lengths=[[6, 2, 1, 1]]), ValueError, "for each of the B = 4 rows, got shape (1, 4)."),
    "ragged lengths": (
        call(lengths=[[6], [2, 1]]),
        TypeError,
        "QRNN: lengths must be a tensor or a list of B integers, got list.",
    ),
    "lengths as text": (call(lengths="6211"), TypeError, "must be a tensor or a list of B integers, got str."),
    "lengths on meta": (
        call(lengths=torch.ones(4, dtype=torch.int64, device="meta")),
        ValueError,
        "QRNN: lengths is on meta, where it has no values, and the input on cpu.",
    ),
    "a GRU's state": (
        call(None, zeros(2, 4, 5)),
        TypeError,
        "QRNN: hx must be the pair (h, c) that an earlier call returned, got Tensor. One tensor is a GRU's state;",
    ),
    "three states": (call(None, (*pair(), None)), TypeError, "that an earlier call returned, got tuple of 3."),
    "a dictionary": (call(None, {"h": 1}), TypeError, "that an earlier call returned, got dict."),
    "a state of None": (call(None, (None, None)), TypeError, "QRNN: hx[0] must be a tensor, got NoneType."),
    "an integer state": (
        call(None, (zeros(2, 4, 5), zeros(2, 4, 5).long())),
        TypeError,
        "QRNN: hx[1] must be float32, float64, float16 or bfloat16, got int64. hx[1].float()?",
    ),
    "a state of one layer": (
        call(None, pair(layers=1)),
        ValueError,
        "QRNN: hx[0] must have shape (num_layers * directions, B, H) = (2, 4, 5), got (1, 4, 5).",
    ),
    "a state of another batch": (call(None, pair(rows=3)), ValueError, "= (2, 4, 5), got (2, 3, 5)."),
    "a state of one direction": (
        call(None, pair(), rnn={"bidirectional": True}),
        ValueError,
        "QRNN: hx[0] must have shape (num_layers * directions, B, H) = (4, 4, 5), got (2, 4, 5).",
    ),
    "cells of another batch": (
        call(None, (pair()[0], zeros(2, 3, 5))),
        ValueError,
        "QRNN: hx[1] must have shape (2, 4, 5) (or 15 columns, with the last inputs, as returned), got (2, 3, 5).",
    ),
    "cells of another width": (
        call(None, pair(columns=4)),
        ValueError,
        "with the last inputs, as returned), got (2, 4, 4).",
    ),
    "the state of another network": (
        call(None, pair(columns=11)),
        ValueError,
        "got (2, 4, 11). The cells of another QRNN, without its last inputs, are c[..., :5].",
    ),
    "a context where none applies": (
        call(None, pair(columns=15), rnn={"causal": False}),
        ValueError,
        "QRNN: hx[1] must have shape (2, 4, 5), got (2, 4, 15).",
    ),
    "a state on another device": (
        call(None, tuple(part.to("meta") for part in pair())),
        ValueError,
        "QRNN: hx[0] is on meta and the input on cpu. hx[0].to('cpu')?",
    ),
    "a batch of states for one row": (
        call(zeros(6, 3), pair()),
        ValueError,
        "without a batch, h and c of the state must have 2 dimensions (num_layers * directions, H), got (2, 4, 5).",
    ),
    "a state of one row for a batch": (call(None, (zeros(2, 5), zeros(2, 5))), ValueError, "= (2, 4, 5), got (2, 5)."),
    "packed, and lengths": (
        call(pack_sequence([zeros(6, 3), zeros(2, 3)]), lengths=[6, 2]),
        ValueError,
        "QRNN: a PackedSequence has its own lengths; leave lengths=, starts= and cu_seqlens= out.",
    ),
    "packed, other features": (
        call(pack_sequence([zeros(6, 2)])),
        ValueError,
        "must be input_size = 3, got shape (6, 1, 2).",
    ),
    "packed, one dimension": (
        call(PackedSequence(zeros(6), torch.ones(6, dtype=torch.int64))),
        ValueError,
        "QRNN: the data of a PackedSequence must have 2 dimensions (rows, D), got (6,).",
    ),
    "packed, another batch of states": (
        call(pack_sequence([zeros(6, 3), zeros(2, 3)]), pair()),
        ValueError,
        "= (2, 2, 5), got (2, 4, 5).",
    ),
    "inspection of packed input": (
        lambda: QRNN(3, 5).inspect(pack_sequence([zeros(6, 3)])),
        TypeError,
        "QRNN: inspect takes a padded tensor and its lengths: input, lengths = pad_packed_sequence(input)?",
    ),
    "inspection of other features": (lambda: QRNN(3, 5).inspect(zeros(6, 2)), ValueError, "must be input_size = 3"),
    "layer: two dimensions": (
        call_layer(zeros(6, 3)),
        ValueError,
        "QRNNLayer: x must have 3 dimensions (T, B, D), got shape (6, 3). x.unsqueeze(1) makes a batch of one.",
    ),
    "layer: no tensor": (
        call_layer([1.0], layer={"zoneout": 0.5}),
        TypeError,
        "QRNNLayer: x must be a tensor, got list.",
    ),
    "layer: features": (
        call_layer(zeros(6, 4, 2)),
        ValueError,
        "QRNNLayer: the last dimension of x must be input_size = 3, got shape (6, 4, 2).",
    ),
    "layer: another type": (
        call_layer(zeros(6, 4, 3).double()),
        TypeError,
        "QRNNLayer: x must have the type of the weights, torch.float32, got torch.float64.",
    ),
    "layer: another device": (
        call_layer(zeros(6, 4, 3, device="meta")),
        ValueError,
        "QRNNLayer: x is on meta and the weights on cpu.",
    ),
    "layer: a state that is none": (
        call_layer(None, zeros(4, 5)),
        TypeError,
        "QRNNLayer: state must be the pair (c, context) that an earlier call returned, got Tensor.",
    ),
    "layer: cells of another batch": (
        call_layer(None, LayerState(zeros(3, 5), None)),
        ValueError,
        "the cells of the state must have shape (B, H) = (4, 5), got (3, 5).",
    ),
    "layer: a context of another width": (
        call_layer(None, LayerState(zeros(4, 5), zeros(4, 3, 3))),
        ValueError,
        "the context of the state must have shape (B, k - 1, D) = (4, 1, 3), got (4, 3, 3).",
    ),
    "layer: a context read backwards": (
        call_layer(None, LayerState(zeros(4, 5), zeros(4, 1, 3)), layer={"reverse": True}),
        ValueError,
        "only a causal layer in the forward direction has a context.",
    ),
    "layer: an extra bias of another batch": (
        call_layer(None, extra_bias=zeros(1, 15)),
        ValueError,
        "QRNNLayer: extra_bias must have shape (B, gates * H) = (4, 15), got (1, 15).",
    ),
    "layer: lengths": (
        call_layer(lengths=[6, 6, 6, 9]),
        ValueError,
        ("a length of 9 is more than the number of time steps, T = 6"),
    ),
}


def check(action, kind, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)) as caught:
        action()
    # nn.LSTM raises RuntimeError for sizes and ValueError for some types: ours are both.
    assert caught.type in (kind, {ValueError: checks.ShapeError, TypeError: checks.ArgumentTypeError}[kind])
    assert "\n" not in str(caught.value), "one sentence or two, on one line"
    assert str(caught.value).startswith(("QRNN", "qrnn_layer")), "who says so"


@pytest.mark.parametrize(("action", "kind", "message"), BUILDING.values(), ids=BUILDING)
def test_building(action, kind, message):
    check(action, kind, message)


@pytest.mark.parametrize("gradients", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize(("action", "kind", "message"), CALLING.values(), ids=CALLING)
def test_guarantee_never_crashes_calling(action, kind, message, gradients):
    with torch.set_grad_enabled(gradients):
        check(action, kind, message)


def test_enough_wrong_calls_with_enough_different_messages():
    cases = {**BUILDING, **CALLING}
    told = set()
    for action, kind, _ in cases.values():
        with pytest.raises(kind) as caught:
            action()
        told.add(re.sub(r"\(.*?\)|[\d.-]+|got .*", "", str(caught.value)))
    assert len(cases) >= 60
    assert len(told) >= 25, "sizes and what came left out, so that a message counts once"
