"""A QRNN's ONNX file under onnxruntime against the float64 loops of `ops.reference`."""

import numpy as np
import pytest
import torch

from export.sessions import run, session
from nn import reference_stack
from nn.reference_stack import assert_right, describe, parameters_of
from ops.cases import pairwise
from quasirnn import QRNN, quantize
from quasirnn.errors import UserError
from quasirnn.models import LanguageModel
from quasirnn.onnx import export

SWITCH = (False, True)
MODES = {
    "D": (1, 4, 9),
    "H": (7, 16, 33),
    "kernel_size": ((1,), (2,), (6,), (2, 1), (1, 3), (6, 2), (2, 6, 1)),
    "pooling": ("f", "fo", "ifo"),
    "zoneout": (0.0, 0.3),
    "dense": SWITCH,
    "bidirectional": SWITCH,
    "causal": SWITCH,
    "bias": SWITCH,
    "lengths": SWITCH,
    "batch_first": SWITCH,
}
SAMPLE = pairwise(3, T=(1, 2, 7, 40), B=(1, 3, 9), **MODES)
LONG = pairwise(4, T=(1, 2, 5, 31, 128, 500), B=(1, 2, 3, 4, 5, 6, 7, 8, 9), **MODES)
LAYER = ("kernel_size", "pooling", "zoneout", "dense", "bidirectional", "causal", "bias", "batch_first")


def build(case: dict) -> QRNN:
    return QRNN(case["D"], case["H"], len(case["kernel_size"]), **{name: case[name] for name in LAYER}).eval()


def initial_state(rnn: QRNN, B: int) -> torch.Tensor:
    """Random cells and contexts, with zeros behind the context of a narrow layer."""
    H = rnn.hidden_size
    c = torch.randn(len(rnn.layers), B, H + rnn.context_width)
    for n, layer in enumerate(rnn.layers):
        c[n, :, H + layer.context_size * layer.input_size :] = 0
    return c


def loops(rnn: QRNN, x, c, lengths, dtype) -> list[torch.Tensor]:
    """output, h_n and c_n by the reference."""
    H, parameters = rnn.hidden_size, parameters_of(rnn, dtype)
    x, c = x.to(dtype), c.to(dtype)
    contexts = None
    if rnn.causal and not rnn.bidirectional:
        widths = [(layer.kernel_size - 1, layer.input_size) for layer in rnn.layers]
        contexts = [c[n, :, H : H + k * D].reshape(c.shape[1], k, D) for n, (k, D) in enumerate(widths)]
    result = reference_stack.run(rnn, parameters, x, c[..., :H], contexts, lengths)
    c_n = result.cells
    if contexts is not None:
        padded = [torch.nn.functional.pad(p.flatten(1), (0, rnn.context_width - p[0].numel())) for p in result.contexts]
        c_n = torch.cat([c_n, torch.stack(padded)], dim=-1)
    return [value.detach() for value in (result.output, result.h_n, c_n)]


def check(case: dict, folder) -> float:
    """The worst error as a part of what is allowed."""
    rnn, T, B = build(case), case["T"], case["B"]
    x, c = torch.randn(T, B, case["D"]), initial_state(rnn, B)
    lengths = torch.randint(1, T + 1, (B,)) if case["lengths"] else None
    (file,) = export(rnn, folder / "layer.onnx", lengths=case["lengths"])
    given = {"input": x.transpose(0, 1) if rnn.batch_first else x, "c_0": c}
    if lengths is not None:
        given["lengths"] = lengths
    results = run(session(file), **given)
    if rnn.batch_first:
        results["output"] = results["output"].transpose(0, 1)
    plain, truth = (loops(rnn, x, c, lengths, dtype) for dtype in (torch.float32, torch.float64))
    names = ("output", "h_n", "c_n")
    return max(assert_right(name, results[name], p, t) for name, p, t in zip(names, plain, truth, strict=True))


@pytest.mark.parametrize("case", SAMPLE, ids=describe)
def test_guarantee_exports_agree_onnx(case, tmp_path, worst_cell):
    worst_cell("ONNX against float64", check(case, tmp_path), describe(case))


@pytest.mark.full
@pytest.mark.parametrize("case", LONG, ids=describe)
def test_guarantee_exports_agree_onnx_long(case, tmp_path, worst_cell):
    worst_cell("ONNX against float64, long", check(case, tmp_path), describe(case))


STREAMS = {name: choices for name, choices in MODES.items() if name not in ("bidirectional", "causal", "lengths")}
STREAMS |= {"bidirectional": (False,), "causal": (True,)}
CUTS = [
    *pairwise(5, T=(2, 9), B=(1, 3), **STREAMS),
    *(pytest.param(case, marks=pytest.mark.full) for case in pairwise(6, T=(2, 31, 128, 500), B=(1, 4, 9), **STREAMS)),
]


@pytest.mark.parametrize("case", CUTS, ids=describe)
def test_a_sequence_cut_anywhere_continues(case, tmp_path):
    rnn, T, B = build({**case, "batch_first": False}), case["T"], case["B"]
    runner = session(*export(rnn, tmp_path / "layer.onnx"))
    x, c = torch.randn(T, B, case["D"]), initial_state(rnn, B)
    whole = run(runner, input=x, c_0=c)
    for cut in range(1, T):
        first = run(runner, input=x[:cut], c_0=c)
        second = run(runner, input=x[cut:], c_0=first["c_n"])
        torch.testing.assert_close(torch.cat([first["output"], second["output"]]), whole["output"], rtol=0, atol=5e-6)
        torch.testing.assert_close(second["c_n"], whole["c_n"], rtol=0, atol=5e-6)


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_steps_give_the_whole(pooling, tmp_path):
    rnn = QRNN(3, 5, 3, kernel_size=(3, 1, 2), pooling=pooling, zoneout=0.2, dense=True).eval()
    runner = session(*export(rnn, tmp_path / "step.onnx", step=True))
    x, c = torch.randn(9, 2, 3), initial_state(rnn, 2)
    output, _, c_n = loops(rnn, x, c, None, torch.float64)
    for t in range(9):
        result = run(runner, input=x[t], c_0=c)
        c = result["c_n"]
        torch.testing.assert_close(result["output"], output[t].float(), rtol=0, atol=1e-6)
    torch.testing.assert_close(c, c_n.float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"causal": False, "kernel_size": 3}])
def test_padding_has_no_effect(options, tmp_path):
    rnn = QRNN(3, 4, 2, **options).eval()
    runner = session(*export(rnn, tmp_path / "layer.onnx", lengths=True))
    x, lengths, c = torch.randn(6, 3, 3), torch.tensor([6, 1, 4]), initial_state(rnn, 3)
    clean = run(runner, input=x, c_0=c, lengths=lengths)
    x[torch.arange(6)[:, None] >= lengths] = torch.nan
    for name, value in run(runner, input=x, c_0=c, lengths=lengths).items():
        assert torch.equal(value, clean[name]), name


def test_only_standard_operators_and_one_loop_per_layer(tmp_path):
    onnx = pytest.importorskip("onnx")
    rnn = QRNN(3, 4, 2)
    operators = [node.op_type for node in onnx.load(*export(rnn, tmp_path / "layer.onnx")).graph.node]
    assert operators.count("Scan") == 2
    model = onnx.load(*export(rnn, tmp_path / "step.onnx", step=True))
    assert not {"Scan", "Loop", "LSTM"} & {node.op_type for node in model.graph.node}
    assert {node.domain for node in model.graph.node} == {""}


def test_int8_by_onnxruntime(tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    rnn = QRNN(32, 64, 2).eval()
    file, small = tmp_path / "layer.onnx", tmp_path / "int8.onnx"
    export(rnn, file)
    # Weights of seven bits: a CPU without VNNI adds pairs of products in 16 bits, and eight would overflow.
    quantization.quantize_dynamic(file, small, reduce_range=True)
    assert small.stat().st_size < 0.45 * file.stat().st_size
    x, c = torch.randn(20, 2, 32), torch.zeros(2, 2, 64 + rnn.context_width)
    whole, quantised = (run(session(model), input=x, c_0=c)["output"] for model in (file, small))
    assert 0 < (whole - quantised).abs().max() < 0.05 * whole.abs().max()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (QRNN(2, 2, bidirectional=True), {"step": True}, "causal network of one direction"),
        (QRNN(2, 2), {"step": True, "lengths": True}, "no lengths"),
        (quantize(QRNN(2, 2)), {}, "int8 copy"),
        (LanguageModel(5, hidden_size=2, document_start=0), {}, "at the start of a document"),
        (torch.nn.LSTM(2, 2), {}, "LSTM cannot be exported to ONNX"),
        (torch.nn.LSTM(2, 2), {"lengths": True}, "is for a QRNN"),
    ],
)
def test_what_cannot_be_exported(model, options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        export(model, tmp_path / "model.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_without_the_package_one_line_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install 'quasirnn\[onnx\]'"):
        export(QRNN(2, 2), tmp_path / "model.onnx")


def test_weights_are_stored_as_float32(tmp_path):
    rnn = QRNN(2, 3).double()
    runner = session(*export(rnn, tmp_path / "layer.onnx"))
    result = runner.run(["output"], {"input": np.zeros((1, 1, 2), "f"), "c_0": np.zeros((1, 1, 5), "f")})
    assert result[0].dtype == np.float32


def test_a_pooling_of_the_users_own_is_refused(tmp_path):
    rnn = QRNN(2, 2)
    rnn.layers[0].pooling = "bounded"
    with pytest.raises(UserError, match="pooling 'bounded' is not supported in ONNX"):
        export(rnn, tmp_path / "model.onnx")
