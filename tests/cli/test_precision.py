"""`--precision`: every command that uses a model computes in bfloat16 or int8, nearly to the same results."""

import pytest
import torch

import quasirnn
from cli.command import as_json, here
from quasirnn.serving.loaded import load_models
from tasks.tiny_translation import train_runs

LOWER = ["bfloat16", "int8"]


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp() / "translation")


def types(run, precision):
    return {parameter.dtype for parameter in quasirnn.load(run, precision=precision).model.parameters()}


@pytest.mark.parametrize("precision", LOWER)
def test_a_language_model(tiny_runs, precision):
    run = tiny_runs / "word"
    before, after = as_json("evaluate", run), as_json("evaluate", run, "--precision", precision)
    assert after["perplexity"] != before["perplexity"]
    assert after["perplexity"] == pytest.approx(before["perplexity"], rel=0.03)
    assert here("generate", run, "--length", "3", "--seed", "1", "--precision", precision).code == 0
    assert as_json("score", run, "a b", "--precision", precision)["items"]
    assert types(run, precision) & {torch.bfloat16, torch.int8}


@pytest.mark.parametrize("precision", LOWER)
def test_a_classifier(tiny_sentiment, precision):
    run, text = tiny_sentiment / "qrnn", "the film is dull"
    (before,) = as_json("classify", run, text)["items"]
    (after,) = as_json("classify", run, text, "--precision", precision)["items"]
    assert after["probability"] == pytest.approx(before["probability"], abs=0.03)
    assert here("classify", run, "--words", text, "--precision", precision).code == 0


@pytest.mark.parametrize("precision", LOWER)
def test_a_translator(translators, precision):
    run = translators / "qrnn"
    before, after = as_json("evaluate", run), as_json("evaluate", run, "--precision", precision)
    assert after["loss"] == pytest.approx(before["loss"], rel=0.03)
    assert here("translate", run, "c d", "--precision", precision).code == 0


@pytest.mark.parametrize("precision", LOWER)
def test_a_server_continues_the_state_of_a_reader(tiny_sentiment, precision):
    (loaded,) = load_models([tiny_sentiment / "qrnn"], precision).loaded
    states = loaded.model.client_states
    reader = loaded.model.reader()
    reader.read("the film")
    again = loaded.model.reader(states.unpack(states.pack(reader.reading)))
    assert again.read("is dull")[-1] == reader.read("is dull")[-1]


def test_what_cannot_be_had(tiny_runs, tiny_sentiment, tmp_path):
    small = tmp_path / "small"
    assert here("quantize", tiny_runs / "word", "--out", small).code == 0
    assert as_json("evaluate", small, "--precision", "int8") | {"run": ""} == as_json("evaluate", small) | {"run": ""}
    assert ("is an int8 copy; for float32, use the original run") in here(
        "evaluate", small, "--precision", "float32"
    ).mistake
    mistake = here("evaluate", tiny_runs / "word", "--precision", "int4").mistake
    assert mistake == "precision: must be one of float32, bfloat16, int8, got 'int4'."
    assert "is for QRNN models only" in here("classify", tiny_sentiment / "lstm", "a", "--precision", "int8").mistake
