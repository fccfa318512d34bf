"""The command itself: help that teaches, and mistakes told in one line."""

from importlib.metadata import version

import pytest


def test_version(quasirnn):
    result = quasirnn("--version")
    assert (result.returncode, result.stdout) == (0, f"quasirnn {version('quasirnn')}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command_and_where_to_start(quasirnn, arguments):
    result = quasirnn(*arguments)
    assert result.returncode == 0
    for word in ("doctor", "demo", "bench", "Start with quasirnn doctor"):
        assert word in result.stdout


@pytest.mark.parametrize("command", [["doctor"], ["demo"], ["bench"], ["bench", "layer"]])
def test_every_command_has_help(quasirnn, command):
    result = quasirnn(*command, "--help")
    assert result.returncode == 0
    assert f"Usage: quasirnn {' '.join(command)}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmo"], "No such command 'dmo'. Did you mean 'demo'?"),
        (["demo", "--second", "3"], "No such option: --second"),
        (["demo", "--seconds", "soon"], "Invalid value for '--seconds'"),
        (["demo", "--seconds", "-1"], "Invalid value for '--seconds'"),
        (["demo", "--threads", "0"], "Invalid value for '--threads'"),
        (["demo", "--seed"], "--seed"),
        (["doctor", "please"], "please"),
        (["bench", "layer", "--output", "missing/figures.json"], "there is no folder missing"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(quasirnn, arguments, message):
    result = quasirnn(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("quasirnn: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
