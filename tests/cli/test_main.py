"""The command itself: help that teaches, and mistakes told in one line."""

import subprocess
import sys
from importlib.metadata import version

import pytest
import torch

from cli.command import here
from quasirnn.cli.main import user_errors
from quasirnn.errors import Failure

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
    "export",
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


# One process for all of them, as if each were typed.
EVERY_HELP = """
import contextlib, io, sys
from quasirnn.cli import main
from typer.main import get_command

def words(command, before=()):
    yield before
    for name, each in getattr(command, "commands", {}).items():
        yield from words(each, (*before, name))

main.add_task_commands()
for typed in list(words(get_command(main.app))):
    sys.argv = ["quasirnn", *typed, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main.main()
    assert f"Usage: {' '.join(sys.argv[:-1])}" in shown.getvalue(), typed
    assert not {"torch", "numpy"} & sys.modules.keys(), typed
    print(*typed)
"""


def test_help_needs_no_torch():
    result = subprocess.run([sys.executable, "-c", EVERY_HELP], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert {*COMMANDS, "plot states", "bench layer"} <= set(result.stdout.splitlines())


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
        (["bench", "layer", "--output", "missing/figures.json"], "the folder missing does not exist"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in here(*arguments).mistake


def test_a_mistake_of_a_process_is_one_line_and_exit_code_2(quasirnn):
    result = quasirnn("demo", "--minutes", "soon")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("quasirnn: Invalid value for '--minutes'")


def test_torchs_own_error_of_memory_is_one_line():
    """It has no class of its own on the CPU."""
    with pytest.raises(Failure) as caught, user_errors():
        torch.empty(2**46)
    assert str(caught.value) == (
        "out of memory while allocating 262,144.0 GB. Try a smaller batch_size, shorter texts (max_length), or a "
        "smaller model."
    )
    with pytest.raises(RuntimeError, match="another"), user_errors():
        raise RuntimeError("another")
