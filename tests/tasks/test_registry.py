"""Tasks by name: those of the package, and those of files that the user names."""

import pytest

from cli.command import here
from quasirnn.errors import RunError, UserError
from quasirnn.tasks.registry import all_tasks, find_task

OWN = """
import typer
from quasirnn.errors import UserError
from quasirnn.tasks import sentiment

def shout(text: str) -> None:
    if not text.isupper():
        raise UserError("shout: louder.")
    print(text)

class Shouting(sentiment.SentimentTask):
    name = "shouting"
    commands = (shout,)
    plots = ()

TASK = Shouting()
"""


def test_a_task_that_there_is_not():
    with pytest.raises(
        RunError, match=r"^'langage-model': no such task; the tasks are senti.*; did you mean language-model\?$"
    ):
        find_task("langage-model")
    assert list(all_tasks()) == ["sentiment", "language-model", "translation"]
    assert all(find_task(name).name == name for name in all_tasks())


def test_a_task_of_a_file_has_its_command_and_its_errors_are_one_line(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.setenv("QUASIRNN_TASKS", str(tmp_path / "own.py"))
    assert find_task("shouting").unit == "texts"
    assert here("shout", "HELLO").stdout == "HELLO\n"
    assert here("shout", "hello").mistake == "shout: louder."
    assert here("train", "shouting", "--show").stdout.startswith("shouting, preset demo\n")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.py", None, "QUASIRNN_TASKS: .*none.py is not a Python file"),
        ("empty.py", "", "quasirnn_task_empty: must define TASK, an instance of a subclass of"),
    ],
)
def test_files_that_are_no_task(tmp_path, monkeypatch, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("QUASIRNN_TASKS", str(tmp_path / name))
    with pytest.raises(UserError, match=message):
        all_tasks()
    assert "TASK" in here("--version").mistake
