"""The examples run as they are printed, with small settings, and say what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = {
    "swap_lstm.py": (["--steps", "20"], ["LSTM", "QRNN", "right after 20 steps"]),
    "streaming.py": (["--length", "30"], ["in 30 steps: largest difference"]),
    "variable_lengths.py": (["--hidden", "5"], ["output (11, 3, 10)", "all the same"]),
}


def test_every_example_is_run():
    # tagging.py is a task, not a program: see test_tagging.py.
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SETTINGS, "tagging.py"}


@pytest.mark.parametrize("example", SETTINGS)
def test_example(example):
    arguments, promised = SETTINGS[example]
    result = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / example), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    for words in promised:
        assert words in result.stdout
