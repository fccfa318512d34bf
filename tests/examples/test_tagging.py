"""A fourth task in one file, examples/tagging.py, used as a user would use it: through the command and the server."""

import contextlib
import hashlib
import io
import json
import os
import re
import signal
import sys
from pathlib import Path
from unittest import mock

import httpx
import pytest
import torch

import quasirnn
from cli.command import Process
from quasirnn.cli.main import main
from quasirnn.tasks import registry

ROOT = Path(__file__).parents[2]
TAGGING = ROOT / "examples" / "tagging.py"
# 400 steps with a checkpoint after each tenth: time enough for a kill in between.
LONG = ("epochs=10", "max_steps=400", "checkpoint_every=10", "hidden_size=8", "embedding_size=8", "dropout=0.1")

pytestmark = pytest.mark.xdist_group("tagging")  # one training serves most tests


@pytest.fixture(autouse=True, scope="module")
def _known():
    with mock.patch.dict(os.environ, {registry.VARIABLE: str(TAGGING)}):
        yield


def here(*arguments: object) -> tuple[int, str, str]:
    """`quasirnn ARGUMENTS` in this process: exit code, printed, said."""
    printed, said = io.StringIO(), io.StringIO()
    with (
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
    code, _, said = here("train", "tagging", "--out", folder)
    assert code == 0, said
    assert "tagging, preset demo: QRNN" in said
    return folder


@pytest.fixture
def tagger(run):
    return quasirnn.load(run)


def test_it_learns_what_no_word_alone_can_tell(run):
    figures = json.loads(here("evaluate", run, "--json")[1])
    # A word's most frequent tag is right for 75.65 % of the words.
    assert figures["accuracy"] > 99
    assert (figures["corpus"], figures["split"], figures["texts"]) == ("small-grammar", "test", 500)
    assert re.fullmatch(
        r"small-grammar, valid: accuracy 99\.\d\d %, .* texts without a mistake\n",
        here("evaluate", run, "--split", "valid")[1],
    )


def test_it_can_be_fine_tuned(run, tmp_path):
    """Sizes are those of the source, and after a step it is nearly as good as before."""
    code, _, said = here("train", "tagging", "--from", run, "--out", tmp_path / "run", "max_steps=1")
    assert code == 0, said
    settings = json.loads((tmp_path / "run" / "training.json").read_text())["settings"]
    assert (settings["hidden_size"], settings["embedding_size"]) == (32, 32)
    assert "all of them" in said
    assert float(re.search(r"accuracy ([0-9.]+)", said)[1]) > 80
    code, _, said = here("train", "tagging", "--from", run, "--out", tmp_path / "other", "embedding_size=8")
    assert (code, said.count("\n")) == (2, 1)


def test_the_baseline_of_the_demo(tagger):
    (row,) = tagger.definition.demo.baselines(lambda done, of: None)
    assert (row.name, round(row.quality, 2)) == ("most frequent tag", 75.65)


@pytest.mark.parametrize(("steps", "accuracy"), [(10, 20), pytest.param(150, 97, marks=pytest.mark.full)])
def test_an_lstm_is_one_flag_away(tmp_path, steps, accuracy):
    _, _, said = here("train", "tagging", "--cell", "lstm", "--out", tmp_path / "run", f"max_steps={steps}")
    assert "LSTM, 2 layers of 32" in said
    assert json.loads(here("evaluate", tmp_path / "run", "--json")[1])["accuracy"] > accuracy


# By default the engine and the language model are killed.
@pytest.mark.full
def test_killed_and_resumed_it_ends_with_the_same_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert here("train", "tagging", "--out", whole, *LONG)[0] == 0
    process = Process(tmp_path / "output.txt", "train", "tagging", "--out", killed, *LONG)
    process.wait_for(lambda: any(killed.glob("checkpoint/step-*")))
    process.popen.kill()
    assert process.wait() == -signal.SIGKILL
    assert here("train", "tagging", "--out", killed, "--resume")[0] == 0
    events = [json.loads(line) for line in (killed / "metrics.jsonl").read_text().splitlines()]
    assert [0 < each["step"] < 400 for each in events if each["event"] == "resume"] == [True]
    assert weights(killed) == weights(whole)


def test_its_command_tags_texts_line_by_line(run, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the light watch here\n\nthe light watch play here\n")
    assert here("tag", run, "--file", file)[1].splitlines() == [
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


def test_its_endpoint(run, tmp_path):
    server = Process(tmp_path / "output.txt", "serve", run, "--port", 0, "--workers", 1)
    try:
        server.wait_for(lambda: "(Ctrl-C ends it)" in server.output)
        address = server.output.partition("serving ")[2].split()[0]
        with httpx.Client(base_url=address, timeout=300) as client:
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
        server.popen.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    finally:
        server.popen.kill()


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
    assert "training.json: must name 7 different tags, as the model has, got ['DET']." in said


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
