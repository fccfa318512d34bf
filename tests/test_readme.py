"""Every command and every Python example of README.md runs as it stands, with small data under the names it uses.

`bench`, `doctor` and `demo` have tests of their own.
"""

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cli.command import Process, here
from tasks.tiny_language_model import KEYS as LANGUAGE_MODEL_KEYS
from tasks.tiny_language_model import write_texts
from tasks.tiny_sentiment import keys as sentiment_keys
from tasks.tiny_sentiment import labelled_rows, write_labelled, write_vectors
from tasks.tiny_translation import keys as translation_keys
from tasks.tiny_translation import paired_rows, write_paired, write_pairs

README = Path(__file__).parents[1] / "README.md"
# Of each task, so that it trains in a moment.
SMALL = {
    "sentiment": [key for key in sentiment_keys("epochs=1", "max_steps=4") if not key.startswith("embedding_size")],
    "language-model": [*LANGUAGE_MODEL_KEYS.split(), "max_steps=4"],
    "translation": translation_keys("epochs=1", "max_steps=6"),
}
CHECKED_ELSEWHERE = ("bench", "doctor", "demo")

# One worker runs the commands for all of them.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("readme")]


def commands() -> list[str]:
    """The lines that a reader would type, in their order; a line that goes on is one."""
    text = README.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.split("\n") if line.startswith("    ")]
    return [re.sub(r"\s{2,}#.*|\s+# .*", "", line) for line in lines if re.match(r"(quasirnn|torchrun) ", line)]


def python_examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with all data that README names."""
    folder = tmp_path_factory.mktemp("readme")
    for split in ("train", "test"):
        for label in ("pos", "neg"):
            (folder / "aclImdb" / split / label).mkdir(parents=True)
        for number, (label, text) in enumerate(labelled_rows(split)):
            sort = "pos" if label == "good" else "neg"
            (folder / "aclImdb" / split / sort / f"{number}_{8 if sort == 'pos' else 2}.txt").write_text(text)
    write_vectors(folder / "glove.6B.100d.txt", size=8)
    (folder / "reviews.txt").write_text("The film is great.\nThe music is dull.\n")
    (folder / "review.txt").write_text("It's a great film, and the story is great.\n")
    (folder / "captions.txt").write_text("c d e\nf\n")
    write_texts(folder / "ptb")
    write_texts(folder / "my-texts")
    write_labelled(folder / "my-reviews")
    write_paired(folder / "multi30k")
    for split in ("train", "valid", "test"):
        write_pairs(folder / "my-pairs", split, paired_rows(split), ("fr", "en"))
    return folder


@pytest.fixture(scope="module")
def runs(place):
    """The same folder, with all its commands run in their order; what each of them gave, by command."""
    found = {}
    with contextlib.chdir(place):
        for command in commands():
            words = shlex.split(command)
            if words[0] == "quasirnn" and words[1] not in (*CHECKED_ELSEWHERE, "serve"):
                found[command] = here(*words[1:], *small(words))
    return place, found


def small(words: list[str]) -> list[str]:
    """What makes a training small, but what is said already; nothing of a run that is continued."""
    if words[1] != "train" or "--resume" in words:
        return []
    said = {word.partition("=")[0] for word in words if "=" in word} | (
        {"kernel_size", "zoneout"} if "lstm" in words else set()
    )
    return [key for key in SMALL[words[2]] if key.partition("=")[0] not in said]


def test_there_are_commands_and_examples():
    assert len(commands()) > 25
    assert len(python_examples()) >= 6


def test_every_command_ends_well(runs):
    _, found = runs
    assert len(found) > 20
    for command, result in found.items():
        assert result.code == 0, (command, result.stderr)


def test_python_examples_run(runs):
    folder, _ = runs
    for example in python_examples():
        if example.startswith("QRNN("):
            continue  # the signature, which tests/nn compares
        x, more = torch.randn(5, 2, 256), torch.randn(3, 2, 256)
        # A file that an example leaves open is its own affair.
        example = example.replace('open("reviews.txt")', 'Path("reviews.txt").read_text().splitlines()')
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
            exec(compile(example, str(README), "exec"), {"x": x, "more": more, "Path": Path})


def test_the_server_serves_what_the_readme_names(runs):
    folder, _ = runs
    served = [command for command in commands() if command.startswith("quasirnn serve")]
    assert len(served) == 2
    for number, command in enumerate(served):
        with contextlib.chdir(folder):
            server = Process(folder / f"serve-{number}.log", *shlex.split(command)[1:], "--port", "0")
        try:
            server.wait_for(lambda: "serving http://127.0.0.1:" in server.output)  # noqa: B023
            server.popen.send_signal(signal.SIGTERM)
            assert server.wait() == 0
        finally:
            server.popen.kill()


# tests/cli/test_train.py trains with two processes by default.
@pytest.mark.full
def test_torchrun_trains_as_the_readme_says(runs):
    folder, _ = runs
    one, two = [shlex.split(command) for command in commands() if command.startswith("torchrun")]
    assert one[one.index("-m") :][:4] == two[two.index("-m") :][:4] == ["-m", "quasirnn", "train", "language-model"]
    launcher = [sys.executable, "-m", "torch.distributed.run", *one[1:], *SMALL["language-model"]]
    done = subprocess.run(
        launcher, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "runs/ptb-2/model.safetensors").exists()


def test_pictures_and_documents_that_it_links_to_are_there():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (README.parent / target).exists(), target
