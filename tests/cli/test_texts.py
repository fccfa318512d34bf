"""Commands that read texts, `classify`, `score` and `translate`: any bytes, from anywhere, any number of lines."""

import os
import subprocess
import sys

import pytest

from cli.command import SCRIPT, as_json, here, run_script
from cli.texts_as_they_come import TEXTS
from quasirnn.tasks import console, sentiment, translation
from quasirnn.tasks.translation import Decoder, Translation
from tasks.tiny_translation import train_runs

# By command: its ways of printing, and how its lines are known.
WAYS = {
    "classify": ([], ["--json"], ["--words"]),
    "score": ([], ["--json"]),
    "translate": ([], ["--json"], ["--n-best", "2"]),
}
every_way = pytest.mark.parametrize(
    ("command", "how"),
    [(command, how) for command, ways in WAYS.items() for how in ways],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)


@pytest.fixture
def run(request, tiny_runs, tiny_sentiment, tmp_path_factory, monkeypatch):
    """A run for the command of the test. Translations that do not end are cut off soon."""
    command = request.getfixturevalue("command")
    monkeypatch.setattr(translation, "MOST_TIMES", 0)
    monkeypatch.setattr(translation, "MOST_MORE", 6)
    if command == "translate":
        return train_runs(tmp_path_factory.getbasetemp() / "translation") / "qrnn"
    return tiny_sentiment / "qrnn" if command == "classify" else tiny_runs / "word"


@pytest.mark.parametrize("source", ["file", "standard input"])
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("command", WAYS)
def test_guarantee_text_as_it_comes(command, run, tmp_path, name, source):
    content, expected = TEXTS[name]
    if (command, name) == ("translate", "long line"):
        content, expected = content[:2400], [expected[0][:2400]]
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    arguments, stdin, called = (["--file", file], b"", str(file)) if source == "file" else ([], content, source)
    if command == "translate":
        arguments += ["--beam", 2]
    if isinstance(expected, list):
        items = as_json(command, run, *arguments, stdin=stdin)["items"]
        assert [item["text"] for item in items] == expected
        lines = here(command, run, *arguments, stdin=stdin).stdout.splitlines()
        others = {"translate": 0, "classify": 1, "score": 1 + (len(expected) > 1)}[command]
        assert len(lines) == len(expected) + others
        return
    for how in WAYS[command]:
        result = here(command, run, *arguments, *how, stdin=stdin)
        assert result.code == 2
        assert result.stderr.startswith(f"quasirnn: {called}{expected}")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["c d", "--file", "x.txt"], "TEXT and --file: give one of them."),
        (["--file", "x.txt"], "x.txt: not found."),
        (["--file", "."], ".: is a directory."),
        (["c \udcff"], "'c \\udcff': not valid UTF-8."),
    ],
)
@pytest.mark.parametrize("command", WAYS)
def test_texts_that_cannot_be_read(command, run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    for how in WAYS[command]:
        assert message in here(command, run, *arguments, *how).mistake


@every_way
def test_lines_are_printed_as_they_come(command, run, monkeypatch, how):
    """Of a million lines no more are read than a pool ahead of what is printed, nor kept."""
    for module in (sentiment, translation):
        monkeypatch.setattr(module, "POOL", 8)
    said = Translation("said", 0.0, 0.0, True)
    monkeypatch.setattr(Decoder, "translate", lambda self, texts, n_best, **_: [[said] * n_best for _ in texts])
    times, ahead = (2 if "--n-best" in how else 1), []
    mark = "said" if command == "translate" else "film"

    def many(arguments, file):
        for read in range(1, 101):
            ahead.append(read - sys.stdout.getvalue().count(mark) / times)
            yield "great film"

    monkeypatch.setattr(console, "read_texts", many)
    batch = [] if command == "score" else ["--batch-size", 4]
    assert here(command, run, *batch, *how).code == 0
    assert len(ahead) == 100
    assert max(ahead) <= 9


@every_way
def test_a_reader_who_has_had_enough_ends_the_command_quietly(command, run, tmp_path, how):
    (tmp_path / "many.txt").write_text("c\n" * 40)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as nobody:
        result = here(command, run, "--file", tmp_path / "many.txt", *how, stdout=nobody)
    assert (result.code, result.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("command", WAYS)
def test_bytes_in_and_bytes_out_through_real_pipes(command, run):
    done = run_script(command, run, "--json", stdin="\ufeffthe café\r\nthe dull film".encode())
    assert (done.returncode, done.stderr) == (0, b"")
    again = run_script(command, run, "--json", "the café", "the dull film")
    assert done.stdout == again.stdout
    done = run_script(command, run, stdin=b"the cat\n\xff\n")
    assert done.returncode == 2
    assert done.stderr.startswith(b"quasirnn: standard input:2: byte 1 of the line (0xff) is not UTF-8.")


@pytest.mark.slow
@pytest.mark.full
@every_way
def test_a_reader_who_has_had_enough_ends_the_process_quietly(command, run, tmp_path, how):
    (tmp_path / "many.txt").write_text("the film is dull\n" * 1_000_000)
    with subprocess.Popen(
        [SCRIPT, command, run, "--file", tmp_path / "many.txt", *how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        # Lines appear while they are read: all of them would take minutes.
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.wait(300) == 0
        assert process.stderr.read() == b""
