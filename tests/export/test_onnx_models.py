"""Whole models as ONNX files under onnxruntime, against the models in float64; the command; the decoding example."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import quasirnn
from cli.command import here
from export.sessions import run, session
from quasirnn.models import LanguageModel, SequenceClassifier, Translator
from quasirnn.onnx import export

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests/golden/runs"


def close(ours, truth):
    torch.testing.assert_close(ours, truth.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("readout", ["mean", "max-mean-last"])
def test_classifier(readout, bidirectional, tmp_path):
    model = SequenceClassifier(
        30, 3, hidden_size=7, num_layers=2, embedding_size=5, zoneout=0.1, readout=readout, bidirectional=bidirectional
    ).eval()
    runner = session(*export(model, tmp_path / "model.onnx"))
    tokens, lengths = torch.randint(1, 30, (9, 4)), torch.tensor([9, 1, 4, 8])
    with torch.no_grad():
        close(run(runner, tokens=tokens, lengths=lengths)["logits"], model.double()(tokens, lengths))


@pytest.mark.parametrize("options", [{}, {"kernel_size": (3, 1), "pooling": "ifo", "embedding_size": 4}])
def test_language_model_whole_and_by_steps(options, tmp_path):
    model = LanguageModel(20, hidden_size=6, zoneout=0.2, **options).eval()
    tokens = torch.randint(20, (8, 3))
    whole = session(*export(model, tmp_path / "model.onnx"))
    step = session(*export(model, tmp_path / "step.onnx", step=True))
    state = torch.zeros(2, 3, 6 + model.rnn.context_width)
    with torch.no_grad():
        logits, (_, c_n) = model.double()(tokens)
    result = run(whole, tokens=tokens, state=state)
    close(result["logits"], logits)
    close(result["next_state"], c_n)
    for t in range(8):
        result = run(step, token=tokens[t], state=state)
        state = result["next_state"]
        close(result["logits"], logits[t])
    close(state, c_n)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("readout", ["mean", "max-mean-last"])
def test_classifier_on_lstms(readout, bidirectional, dense, tmp_path):
    options = {"readout": readout, "bidirectional": bidirectional, "dense": dense}
    model = SequenceClassifier(30, 3, hidden_size=7, num_layers=2, embedding_size=5, cell="lstm", **options).eval()
    runner = session(*export(model, tmp_path / "model.onnx"))
    tokens, lengths = torch.randint(1, 30, (9, 4)), torch.tensor([9, 1, 4, 8])
    with torch.no_grad():
        truth = model.double()(tokens, lengths)
    close(run(runner, tokens=tokens, lengths=lengths)["logits"], truth)


@pytest.mark.parametrize("options", [{}, {"locked_dropout": True, "dropout": 0.1}, {"gate_bias": False}], ids=str)
def test_language_model_on_lstms_whole_and_by_steps(options, tmp_path):
    model = LanguageModel(20, hidden_size=6, cell="lstm", **options).eval()
    tokens = torch.randint(20, (8, 3))
    whole = session(*export(model, tmp_path / "model.onnx"))
    step = session(*export(model, tmp_path / "step.onnx", step=True))
    state = torch.zeros(2, 3, 12)
    with torch.no_grad():
        logits, (h_n, c_n) = model.double()(tokens)
    result = run(whole, tokens=tokens, state=state)
    close(result["logits"], logits)
    close(result["next_state"], torch.cat([h_n, c_n], dim=-1))
    for t in range(8):
        result = run(step, token=tokens[t], state=state)
        state = result["next_state"]
        close(result["logits"], logits[t])
    close(state, torch.cat([h_n, c_n], dim=-1))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "f", "kernel_size": 3},
        {"pooling": "ifo", "attend": "cells", "init_decoder": True, "embedding_size": 3},
        {"zoneout": 0.1, "num_layers": 3},
    ],
)
def test_translator_in_two_files_with_beams(options, tmp_path):
    model = Translator(17, **{"hidden_size": 6, "num_layers": 2, **options}).eval()
    files = export(model, tmp_path / "model.onnx")
    assert [file.name for file in files] == ["model.encoder.onnx", "model.step.onnx"]
    encoder, step = map(session, files)
    source, lengths, beams = torch.randint(3, 17, (9, 3)), torch.tensor([9, 2, 5]), 2
    encoded = run(encoder, source=source, lengths=lengths)
    state = encoded.pop("state").repeat_interleave(beams, 1)
    model = model.double()
    with torch.no_grad():
        truth = model.encode(source, lengths)
        true_state = model.begin(truth).repeat(beams)
        for _ in range(4):
            token = torch.randint(17, (3 * beams,))
            expected, true_state, attention = model.step(token, true_state, truth)
            result = run(step, token=token, state=state, lengths=lengths, **encoded)
            state = result["next_state"]
            close(result["log_probabilities"], expected)
            close(result["attention"], attention)


@pytest.mark.parametrize(
    "name", ["sentiment-qrnn", "language-model-qrnn", "translation-qrnn", "sentiment-lstm", "language-model-lstm"]
)
def test_the_command_exports_a_run(name, tmp_path):
    result = here("export", RUNS / name, "--onnx", tmp_path / "model.onnx")
    assert (result.code, result.stderr) == (0, "")
    for file in result.stdout.splitlines():
        session(Path(file))
    assert sorted(map(str, tmp_path.iterdir())) == sorted(result.stdout.splitlines())


@pytest.mark.parametrize("name", ["sentiment-qrnn", "language-model-qrnn", "translation-qrnn", "sentiment-lstm"])
def test_int8_by_onnxruntime(name, tmp_path):
    """Dynamic quantisation runs on the file of every model, and what comes out is near."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    for file in export(quasirnn.load(RUNS / name).model, tmp_path / "model.onnx"):
        small = file.with_suffix(".int8.onnx")
        quantization.quantize_dynamic(file, small, reduce_range=True)
        whole, quantised = session(file), session(small)
        sizes, given = {"T": 6, "S": 6, "B": 2, "N": 2}, {}
        for each in whole.get_inputs():
            shape = [sizes.get(size, size) for size in each.shape]
            given[each.name] = torch.randn(shape) if "float" in each.type else torch.randint(1, 6, shape)
        for (name, value), near in zip(run(whole, **given).items(), run(quantised, **given).values(), strict=True):
            assert (value - near).abs().max() <= 0.1 * value.abs().max() + 1e-3, name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sentiment-qrnn"], "--onnx FILE"),
        (["sentiment-qrnn", "--onnx", "model.onnx", "--step"], "has no single step"),
        (["translation-lstm", "--onnx", "model.onnx"], "translators with LSTMs cannot be exported to ONNX"),
        (["no-run", "--onnx", "model.onnx"], "no-run"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in here("export", RUNS / arguments[0], *arguments[1:]).mistake
    assert not list(tmp_path.iterdir())


def test_the_example_translates_as_the_package_does(tmp_path):
    """With numpy and onnxruntime alone: torch and quasirnn cannot be imported there."""
    run_folder = RUNS / "translation-qrnn"
    file = tmp_path / "model.onnx"
    pipeline = quasirnn.load(run_folder)
    export(pipeline.model, file)
    texts = ["zwei", "drei und vier", "x"]
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in ("torch", "quasirnn"):
        (blocked / f"{name}.py").write_text("raise ImportError('not here')")
    shutil.copy(ROOT / "examples/onnx_translate.py", blocked)
    result = subprocess.run(
        [sys.executable, str(blocked / "onnx_translate.py"), str(run_folder), str(file), *texts],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stderr == ""
    assert result.stdout.splitlines() == [best.text for (best,) in pipeline.translate_all(texts, beam=1)]
