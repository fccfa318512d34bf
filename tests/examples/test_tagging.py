"""A fourth task in one file, examples/tagging.py, used as a user would use it: through the command and the server."""

import contextlib
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import httpx
import pytest
import torch

import quasirnn
from quasirnn.cli.main import main
from quasirnn.tasks import registry

ROOT = Path(__file__).parents[2]
TAGGING = ROOT / "examples" / "tagging.py"
# 400 steps with a checkpoint after each tenth: time enough for a kill in between.
LONG = ("epochs=10", "max_steps=400", "checkpoint_every=10", "hidden_size=8", "embedding_size=8", "dropout=0.1")
WAIT = 300  # seconds; only keeps a hanging test from hanging for ever

pytestmark = pytest.mark.xdist_group("tagging")  # one training serves most tests


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "QUASIRNN_TASKS": str(TAGGING)}


def start(*arguments: object, **options) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "quasirnn", *map(str, arguments)]
    return subprocess.Popen(
        words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def command(*arguments: object) -> tuple[str, str]:
    """`quasirnn ARGUMENTS` to its end: what it printed, and what it said on standard error."""
    process = start(*arguments)
    printed, said = process.communicate(timeout=WAIT)
    assert process.returncode == 0, said
    return printed, said


def here(*arguments: object) -> tuple[int, str, str]:
    """The same in this process, which takes a fraction of the time: exit code, printed, said."""
    printed, said = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {registry.VARIABLE: str(TAGGING)}),
        mock.patch.object(sys, "argv", ["quasirnn", *map(str, arguments)]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(said),
        pytest.raises(SystemExit) as end,
    ):
        main()
    return end.value.code or 0, printed.getvalue(), said.getvalue()


def weights(run: Path) -> dict[str, str]:
    """The best model, and the last state of training."""
    last = max((run / "checkpoint").glob("step-*"))
    files = [run / "model.safetensors", *sorted(last.glob("*.safetensors"))]
    assert len(files) > 1
    return {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Trained with the preset demo."""
    folder = tmp_path_factory.mktemp("tagging") / "run"
    _, said = command("train", "tagging", "--out", folder)
    assert "tagging, preset demo: QRNN" in said
    return folder


@pytest.fixture
def tagger(run, monkeypatch):
    monkeypatch.setenv(registry.VARIABLE, str(TAGGING))
    return quasirnn.load(run)


def test_it_learns_what_no_word_alone_can_tell(run):
    figures = json.loads(command("evaluate", run, "--json")[0])
    # A word's most frequent tag is right for 75.65 % of the words.
    assert figures["accuracy"] > 99
    assert (figures["corpus"], figures["split"], figures["texts"]) == ("small-grammar", "test", 500)
    assert re.fullmatch(
        r"small-grammar, valid: accuracy 99\.\d\d %, .* texts without a mistake\n",
        here("evaluate", run, "--split", "valid")[1],
    )


def test_the_baseline_of_the_demo(tagger):
    (row,) = tagger.definition.demo.baselines(lambda done, of: None)
    assert (row.name, round(row.equal_steps, 2)) == ("most frequent tag", 75.65)


def test_an_lstm_is_one_flag_away(tmp_path):
    _, _, said = here("train", "tagging", "--cell", "lstm", "--out", tmp_path / "run", "max_steps=150")
    assert "LSTM, 2 layers of 32" in said
    assert json.loads(here("evaluate", tmp_path / "run", "--json")[1])["accuracy"] > 97


def test_killed_and_resumed_it_ends_with_the_same_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command("train", "tagging", "--out", whole, *LONG)
    process, limit = start("train", "tagging", "--out", killed, *LONG), time.monotonic() + WAIT
    while not list(killed.glob("checkpoint/step-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    command("train", "tagging", "--out", killed, "--resume")
    events = [json.loads(line) for line in (killed / "metrics.jsonl").read_text().splitlines()]
    assert [0 < each["step"] < 400 for each in events if each["event"] == "resume"] == [True]
    assert weights(killed) == weights(whole)


def test_its_command_tags_texts_line_by_line(run, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the light watch here\n\nthe light watch play here\n")
    assert command("tag", run, "--file", file)[0].splitlines() == [
        "the/DET light/NOUN watch/VERB here/ADV",
        "",
        "the/DET light/ADJ watch/NOUN play/VERB here/ADV",
    ]
    printed = json.loads(here("tag", run, "they fish", "--json")[1])
    assert printed == {"items": [{"text": "they fish", "words": ["they", "fish"], "tags": ["PRON", "VERB"]}]}
    assert "Tag every word" in here("--help")[1]


def test_many_texts_give_what_each_gives_alone(tagger):
    texts = ["a dog see the river", "", "we run fast", "the cold cold here", "they light the old light near a man"]
    assert list(tagger.tag_all(texts)) == [tagger.tag(text) for text in texts]


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_padding_has_no_effect(tagger, cell):
    torch.manual_seed(1)
    options = {"kernel_size": 2} if cell == "qrnn" else {}
    model = type(tagger.model)(9, 3, hidden_size=4, num_layers=2, embedding_size=4, cell=cell, **options).eval()
    tokens, lengths = torch.tensor([[1, 2], [3, 4], [5, 0]]), torch.tensor([3, 2])
    alone = model(tokens[:2, 1:], lengths[1:])
    torch.testing.assert_close(model(tokens, lengths)[:2, 1:], alone)
    tags = torch.tensor([[0, 1], [2, 0], [1, -100]])
    expected = sum(model(tokens[:n, [b]], lengths[[b]], tags[:n, [b]]) for b, n in enumerate([3, 2]))
    torch.testing.assert_close(model(tokens, lengths, tags), expected)


def test_its_endpoint(run):
    process = start("serve", run, "--port", 0, "--workers", 1)
    try:
        for line in process.stderr:
            if "(Ctrl-C ends it)" in line:
                break
        with httpx.Client(base_url=line.partition("serving ")[2].split()[0], timeout=WAIT) as client:
            answer = client.post("/tag", json={"texts": ["the light watch here", "they fish"]})
            assert (answer.status_code, answer.json()["results"]) == (
                200,
                [
                    {"words": ["the", "light", "watch", "here"], "tags": ["DET", "NOUN", "VERB", "ADV"]},
                    {"words": ["they", "fish"], "tags": ["PRON", "VERB"]},
                ],
            )
            assert client.post("/tag", json={"texts": ["a", " "]}).json()["field"] == "texts"
            assert client.post("/tag", json={"texts": []}).status_code in (400, 422)
            assert client.post("/classify", json={"texts": ["a"]}).status_code != 200
            told = client.get("/models").json()
            assert told["models"][0]["task"] == "tagging"
            assert told["models"][0]["tags"] == ["ADJ", "ADV", "DET", "NOUN", "PREP", "PRON", "VERB"]
            assert told["limits"]["tag_texts"] == 64
            assert "/tag" in client.get("/openapi.json").json()["paths"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
    finally:
        process.kill()
        process.communicate()


def test_data_of_ones_own_and_mistakes_in_them(tmp_path):
    rows = [f"the {word} run\tD N V" for word in "abcdefghijklmnopqrst"]
    (tmp_path / "train.tsv").write_text("text\ttags\n" + "\n".join(rows) + "\n")
    (tmp_path / "wrong.tsv").write_text("text\ttags\nthe a run\tD N\n")
    (tmp_path / "other.tsv").write_text("text\ttags\nthe a run\tD N X\n")
    out = tmp_path / "run"
    keys = ("hidden_size=8", "num_layers=1", "epochs=1")
    _, _, said = here("train", "tagging", "--data", tmp_path, "--out", out, *keys)
    assert "preset fast" in said
    assert "train.tsv" in json.loads((out / "training.json").read_text())["corpus"]["splits"]["train"]["files"][0]
    for split, mistake in (
        ("wrong", "wrong.tsv:2: 3 words have 2 tags; give one for each, with spaces between."),
        ("other", "other.tsv:2: the tag 'X' is not one of those in training: D, N, V."),
    ):
        code, printed, said = here("evaluate", out, "--split", split)
        assert (code, printed, said.count("\n")) == (2, "", 1)
        assert said.startswith("quasirnn: ")
        assert said.endswith(f"{mistake}\n")


def test_a_damaged_run_is_one_line(run, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in run.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    training = json.loads((run / "training.json").read_text())
    training["corpus"]["tags"] = ["DET"]
    (copy / "training.json").write_text(json.dumps(training))
    code, _, said = here("tag", copy, "the dog")
    assert (code, said.count("\n")) == (2, 1)
    assert '"tags" must be 7 different names.' in said


def test_a_run_needs_its_task(run, monkeypatch):
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    with pytest.raises(ValueError, match="tagging: no such task"):
        quasirnn.load(run)
    monkeypatch.setenv(registry.VARIABLE, "examples/nothing.py")
    with pytest.raises(ValueError, match=r"QUASIRNN_TASKS: examples/nothing.py is not a Python file"):
        quasirnn.load(run)


def test_no_file_of_the_package_knows_the_task():
    files = [file for file in (ROOT / "src").rglob("*") if file.suffix in (".py", ".js", ".html")]
    assert files
    assert not [file for file in files if re.search(r"\btagging\b(?!\.py)", file.read_text(encoding="utf-8"))]
