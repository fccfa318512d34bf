"""Converted weights against float64 loops of the other projects' own equations, on state dicts in their layout."""

import random

import pytest
import torch
from torch import Tensor

import quasirnn
from cli.command import here
from quasirnn import QRNN
from quasirnn.errors import UserError
from quasirnn.export.convert_run import _vocabulary
from quasirnn.models import LanguageModel

CONFIGURATIONS = range(50)


def linear(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, columns) / columns**0.5, torch.randn(rows) / 2


def their_layer(weight: Tensor, bias: Tensor, window: int, gates: int, x: list[Tensor], zoneout: float) -> list[Tensor]:
    """One layer of pytorch-qrnn in eval mode, a step at a time: F = 1 writes, the newest input comes first."""
    outputs, c, before = [], torch.zeros(len(x[0]), len(bias) // gates, dtype=torch.float64), torch.zeros_like(x[0])
    for now in x:
        source = now if window == 1 else torch.cat([now, before], dim=1)
        z, f, *o = (source @ weight.double().T + bias.double()).chunk(gates, dim=1)
        write = torch.sigmoid(f) * (1 - zoneout)
        c = write * torch.tanh(z) + (1 - write) * c
        outputs.append(torch.sigmoid(o[0]) * c if o else c)
        before = now
    return outputs


@pytest.mark.parametrize("seed", CONFIGURATIONS)
def test_layers_of_pytorch_qrnn_and_fastai(seed, tmp_path):
    choice = random.Random(seed)
    D, H, count = choice.randint(1, 9), choice.randint(1, 9), choice.randint(1, 3)
    gates, p = choice.choice((2, 3)), choice.choice((0.0, 0.2))
    windows = [choice.choice((1, 2)) for _ in range(count)]
    widths = [D] + [H] * (count - 1)
    parts = [linear(gates * H, window * width) for window, width in zip(windows, widths, strict=True)]
    state = {}
    for n, (weight, bias) in enumerate(parts):
        prefix = f"layers.{n}." if count > 1 or choice.random() < 0.5 else ""
        state |= {f"{prefix}linear.weight": weight, f"{prefix}linear.bias": bias}
    file = tmp_path / "layers.pt"
    torch.save(state, file)
    rnn = quasirnn.convert(file, input_size=D, hidden_size=H, zoneout=p)
    assert isinstance(rnn, QRNN)
    assert (rnn.kernel_sizes, rnn.pooling) == (tuple(windows), "f" if gates == 2 else "fo")
    x = torch.randn(6, 2, D)
    expected = list(x.double())
    for (weight, bias), window in zip(parts, windows, strict=True):
        expected = their_layer(weight, bias, window, gates, expected, p)
    torch.testing.assert_close(rnn(x)[0], torch.stack(expected).float(), rtol=0, atol=1e-6)


def language_model_state(choice: random.Random, layout: str, tied: bool) -> tuple[dict, list, Tensor, Tensor, Tensor]:
    """A state dict in a project's layout, weight drop's dropped copy included; its layers, embedding and decoder."""
    V, D, H, count = choice.randint(5, 12), choice.randint(2, 7), choice.randint(2, 9), choice.randint(1, 3)
    sizes = [H] * (count - 1) + [D]
    parts = []
    for n, size in enumerate(sizes):
        parts.append(linear(3 * size, (2 if n == 0 else 1) * (D if n == 0 else sizes[n - 1])))
    embedding, bias = torch.randn(V, D), torch.randn(V)
    decoder = embedding if tied else torch.randn(V, D)
    before = "" if layout == "awd-lstm-lm" else "0."
    state = {f"{before}encoder.weight": embedding}
    if layout != "awd-lstm-lm":
        state["0.encoder_dp.emb.weight"] = embedding
    for n, (weight, own_bias) in enumerate(parts):
        dropped = torch.nn.functional.dropout(weight, 0.5)
        if layout == "awd-lstm-lm":
            stem = f"rnns.{n}.linear.module."
            state |= {f"{stem}bias": own_bias, f"{stem}weight_raw": weight, f"{stem}weight": dropped}
        else:
            stem = f"0.rnns.{n}.{'layers.0.' if layout == 'fastai 2' else ''}linear."
            state |= {f"{stem}weight_raw": weight, f"{stem}module.weight": dropped, f"{stem}module.bias": own_bias}
    after = "" if layout == "awd-lstm-lm" else "1."
    state |= {f"{after}decoder.weight": decoder, f"{after}decoder.bias": bias}
    return state, parts, embedding, decoder, bias


@pytest.mark.parametrize("layout", ["awd-lstm-lm", "fastai 1", "fastai 2"])
@pytest.mark.parametrize("seed", CONFIGURATIONS)
def test_language_models(layout, seed):
    choice = random.Random(f"{seed} {layout}")
    state, parts, embedding, decoder, bias = language_model_state(choice, layout, tied=choice.random() < 0.5)
    model = quasirnn.convert(state)
    assert isinstance(model, LanguageModel)
    tokens = torch.randint(len(embedding), (6, 2))
    x = [embedding.double()[step] for step in tokens]
    for n, (weight, own_bias) in enumerate(parts):
        x = their_layer(weight, own_bias, 2 if n == 0 else 1, 3, x, 0.0)
    expected = torch.stack(x) @ decoder.double().T + bias.double()
    logits, _ = model(tokens)
    torch.testing.assert_close(logits, expected.float(), rtol=1e-6, atol=1e-6 * max(1.0, expected.abs().max().item()))


def test_the_command_makes_a_run(tmp_path):
    state, *_ = language_model_state(random.Random(1), "awd-lstm-lm", tied=True)
    size = len(state["decoder.bias"])
    tokens = ["<eos>", "<unk>", *(f"word{n}" for n in range(size - 2))]
    (tmp_path / "tokens.txt").write_text("\n".join(tokens) + "\n")
    torch.save(state, tmp_path / "model.pt")
    typed = ("convert", tmp_path / "model.pt", "--out", tmp_path / "run", "--vocabulary", tmp_path / "tokens.txt")
    result = here(*typed)
    assert (result.code, result.stderr) == (0, "")
    pipeline = quasirnn.load(tmp_path / "run")
    ids = torch.tensor([[2], [3], [0]])
    assert torch.equal(pipeline.model(ids)[0], quasirnn.convert(state)(ids)[0])
    assert pipeline.score("word0 word1\n").tokens == 3
    assert here("generate", tmp_path / "run", "--length", "5", "--seed", "1").code == 0
    assert "already exists" in here(*typed).mistake


def test_vocabularies_of_fastai_are_filled_up(tmp_path):
    file = tmp_path / "tokens.txt"
    file.write_text("xxunk\nxxbos\nword\nxxfake\nxxfake\n")
    vocabulary = _vocabulary(file, 5)
    assert vocabulary.encode("word xxfake\n").tolist() == [2, 0, 1]


@pytest.mark.parametrize("wrong", ["word\nword", "two words\n", "\n"])
def test_tokens_that_cannot_be_told_apart_are_refused(tmp_path, wrong):
    file = tmp_path / "tokens.txt"
    file.write_text("xxunk\nxxbos\n" + wrong)
    with pytest.raises(UserError, match=r'tokens\.txt: "tokens"'):
        _vocabulary(file, 2 + len(wrong.splitlines()))


@pytest.mark.parametrize(
    ("state", "options", "message"),
    [
        ({}, {}, "no QRNN layers"),
        ({"linear.weight": torch.ones(6, 4), "linear.bias": torch.ones(6)}, {}, "only layers"),
        ({"linear.weight": torch.ones(6, 4), "linear.bias": torch.ones(5)}, {}, "layer 0: needs"),
        (
            {"linear.weight": torch.ones(6, 4), "linear.bias": torch.ones(6)},
            {"input_size": 3, "hidden_size": 2},
            r"is not \(gates \* H, window \* D\)",
        ),
        ({"layers_bwd.0.linear.weight": torch.ones(6, 4)}, {}, "bidirectional"),
        (
            {
                f"{side}.layers.0.linear.{part}": torch.ones(6, 4)[:, 0] if part == "bias" else torch.ones(6, 4)
                for side in ("encoder", "decoder")
                for part in ("weight", "bias")
            },
            {"input_size": 2, "hidden_size": 2},
            r"several stacks: decoder\.layers\.0\.\* and encoder\.layers\.0\.\*",
        ),
    ],
)
def test_other_state_dicts_are_refused(state, options, message):
    with pytest.raises(UserError, match=message):
        quasirnn.convert(state, **options)


def test_files_that_are_programs_or_nothing_are_refused(tmp_path):
    torch.save(QRNN(2, 2), tmp_path / "whole.pt")
    with pytest.raises(UserError, match="which can run code"):
        quasirnn.convert(tmp_path / "whole.pt")
    (tmp_path / "text.pt").write_text("no tensors")
    with pytest.raises(UserError, match="more than tensors"):
        quasirnn.convert(tmp_path / "text.pt")
    with pytest.raises(UserError, match="No such file"):
        quasirnn.convert(tmp_path / "missing.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UserError, match="is not a state dict"):
        quasirnn.convert(tmp_path / "list.pt")
