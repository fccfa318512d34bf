"""What is read, how it is numbered, and where a short training ends, for every layout, task and cell."""

import platform
from pathlib import Path

import pytest
from safetensors.torch import load_file

from golden.cases import CORPORA, RUNS
from golden.command import (
    WEIGHTS,
    assert_same,
    assert_same_weights,
    described,
    evaluated,
    hashes,
    metrics,
    quasirnn,
)

CASES = CORPORA | RUNS
# Python; no other case depends on its version.
MADE_WITH = "3.11.7"


@pytest.mark.parametrize("name", CASES)
def test_training(name, values, same_machine):
    case, run = CASES[name], Path(name)
    expected = values["corpora" if name in CORPORA else "runs"][name]
    quasirnn(*case.command, "--out", name)

    if name == "language-model-built-in" and platform.python_version() != MADE_WITH:
        pytest.skip("the built-in corpus is the text of Python's own topics, which another Python has in other words")
    found = described(run)
    assert found["vocabulary"] == expected["vocabulary"]
    for what in ("preset", "corpus", "config"):
        assert_same(found[what], expected[what], place=what)
    if same_machine:
        assert hashes(run) == expected["sha256"]
    else:
        assert_same_weights(load_file(run / "model.safetensors"), load_file(WEIGHTS / f"{name}.safetensors"))
    rounding = 1e-4 if same_machine else 1e-2
    assert_same(metrics(run), expected["metrics"], rounding)
    # A translation is made of choices, which weights that are a little different may not share.
    if case.evaluation and (same_machine or case.task != "translation"):
        assert_same(evaluated(run, case.evaluation), expected["test"], rounding)
