"""Every example runs with small settings and prints what it should."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = {
    "swap_lstm.py": (["--steps", "20"], ["LSTM", "QRNN", "after 20 steps"]),
    "streaming.py": (["--length", "30"], ["in 30 steps: largest difference"]),
    "denoise_stream.py": (
        ["--steps", "10", "--seconds", "1"],
        ["dB after", "same output as the whole sequence, real-time factor"],
    ),
    "forecast.py": (["--steps", "2"], ["LSTM", "QRNN", "a week ago"]),
    "word_language_model.py": (["--epochs", "1", "--words", "3000"], ["QRNN, epoch 1: validation perplexity"]),
    "packed_sequences.py": (["--count", "40", "--hidden", "8"], ["padded, sorted by length", "packed into one row"]),
    "variable_lengths.py": (["--hidden", "5"], ["output (11, 3, 10)", "all the same"]),
}


def test_every_example_is_run():
    # tagging.py is a task, not a program: see test_tagging.py; onnx_translate.py needs a model: tests/export.
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SETTINGS, "tagging.py", "onnx_translate.py"}


@pytest.mark.parametrize("example", SETTINGS)
def test_example(example, monkeypatch, capsys):
    arguments, promised = SETTINGS[example]
    monkeypatch.setattr(sys, "argv", [example, *arguments])
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    printed = capsys.readouterr().out
    for words in promised:
        assert words in printed
