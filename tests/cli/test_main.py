"""The command itself: help that teaches, and mistakes told in one line."""

from importlib.metadata import version

import pytest

from cli.command import here

COMMANDS = (
    "doctor",
    "demo",
    "train",
    "evaluate",
    "classify",
    "generate",
    "score",
    "translate",
    "plot",
    "serve",
    "bench",
)


def test_version(quasirnn):
    result = quasirnn("--version")
    assert (result.returncode, result.stdout) == (0, f"quasirnn {version('quasirnn')}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command_and_where_to_start(monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "100")
    result = here(*arguments)
    assert result.code == 0
    for word in (*COMMANDS, "Start with quasirnn doctor"):
        assert word in result.stdout


@pytest.mark.parametrize(
    "command",
    [
        *([command] for command in COMMANDS),
        *(["plot", kind] for kind in ("curves", "states", "confusion", "attention")),
        *(["bench", kind] for kind in ("layer", "floor", "step", "scale", "train-step", "task", "softmax", "decoding")),
    ],
    ids=" ".join,
)
def test_every_command_has_help(command):
    result = here(*command, "--help")
    assert result.code == 0
    assert f"Usage: quasirnn {' '.join(command)}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmo"], "No such command 'dmo'. Did you mean 'demo'?"),
        (["demo", "--minute", "3"], "No such option: --minute"),
        (["demo", "--minutes", "soon"], "Invalid value for '--minutes'"),
        (["demo", "--minutes", "-1"], "Invalid value for '--minutes'"),
        (["demo", "--threads", "0"], "Invalid value for '--threads'"),
        (["demo", "--seed"], "--seed"),
        (["doctor", "please"], "please"),
        (["bench", "layer", "--output", "missing/figures.json"], "there is no folder missing"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in here(*arguments).mistake


def test_a_mistake_of_a_process_is_one_line_and_exit_code_2(quasirnn):
    result = quasirnn("demo", "--minutes", "soon")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("quasirnn: Invalid value for '--minutes'")
