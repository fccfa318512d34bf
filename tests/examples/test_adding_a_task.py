"""docs/adding-a-task.md quotes examples/tagging.py and shows commands that exist."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-task.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "examples" / "tagging.py").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_there_are_blocks():
    assert len(BLOCKS) > 4


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.strip().splitlines()[0])
def test_every_block_is_the_files_own(block):
    assert block in EXAMPLE


def test_the_commands_are_those_that_the_tests_of_the_task_run():
    (shell,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    tests = (Path(__file__).parent / "test_tagging.py").read_text(encoding="utf-8")
    export, *commands = map(shlex.split, shell.splitlines())
    assert export == ["export", "QUASIRNN_TASKS=examples/tagging.py"]
    for program, name, *_ in commands:
        assert program == "quasirnn"
        assert re.search(rf'(here\(|Process\(tmp_path / "output.txt", )"{name}"', tests), name


def test_every_method_that_a_task_must_have_is_named():
    from quasirnn.tasks.task import Task

    for name in Task.__abstractmethods__:
        assert f"`{name}`" in PAGE, name
