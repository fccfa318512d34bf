"""A few of the calls that `make sanitize` makes thousands of, on the kernels as they are built here."""

import random
from pathlib import Path

import pytest
import torch

from quasirnn.ops import backends
from sanitize import run


@pytest.mark.skipif(backends.kernels is None, reason="there are no kernels")
def test_guarantee_memory_safe_kernels_every_operator_is_called(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["run.py", "--shapes", "8"])
    assert run.main() == 0
    assert "0 findings" in capsys.readouterr().out


@pytest.mark.skipif(backends.kernels is None, reason="there are no kernels")
def test_no_operator_is_left_out():
    """Where a new one is added, it has to be called under the sanitizers too."""
    draw, names = random.Random(1), set()
    for _ in range(40):
        case = run.random_case(draw)
        names |= {name for name, _ in (run.arguments(case, torch.float32), run.backward_arguments(case, torch.float32))}
        calls = *run.int8_calls(draw), *run.elementwise_calls(torch.float32, draw), *run.lstm_calls(torch.float32, draw)
        names |= {name for name, _ in calls}
    names |= {"stack", "softmax_loss"}
    schemas = (Path(backends.__file__).parent / "schemas.inc").read_text()
    assert names == {line[1 : line.index("(")] for line in schemas.splitlines() if line[:1] == '"' and line[1] != " "}
