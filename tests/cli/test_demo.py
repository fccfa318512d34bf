import shlex

import pytest


@pytest.mark.slow
def test_demo_compares_both_and_says_what_to_type_next(quasirnn):
    result = quasirnn("demo", "--seconds", "1", "--threads", "1", "--seed", "3")
    assert result.returncode == 0, result.stderr
    for words in ("QRNN", "nn.LSTM", "bits/character", "characters/s", "parameters", "The QRNN writes:"):
        assert words in result.stdout
    assert "bits/character" in result.stderr, "progress goes to standard error, as plain lines where it is no terminal"

    suggested = [line for line in result.stdout.splitlines() if " doctor " in line]
    assert len(suggested) == 1
    program, command = shlex.split(suggested[0])[:2]
    assert program.endswith("quasirnn")
    assert quasirnn(command).returncode == 0
