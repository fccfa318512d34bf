"""`quasirnn demo`: every task with both cells, a table each, and nothing half-written."""

import shlex

import pytest

from cli.command import here
from quasirnn.cli.demo import TASKS, print_part
from quasirnn.data import number_words, reviews, topics
from quasirnn.tasks import demo, sentiment_demo
from quasirnn.tasks.demo import Part, Row


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Small corpora. Bags of words take seconds to fit; what they come to is seen in `test_bag_of_words`."""
    monkeypatch.setattr(sentiment_demo, "bags", lambda: [Row("bag of words", 7, 61.0)])
    monkeypatch.setattr(reviews, "SIZES", {"train": 300, "valid": 20, "test": 30})
    whole = topics.load()
    small = topics.Topics(whole.train[:20_000], whole.valid[:2000], whole.test[:2000])
    monkeypatch.setattr(topics, "load", lambda: small)
    pairs = number_words.load
    monkeypatch.setattr(number_words, "load", lambda part: pairs(part)[: 200 if part == "train" else 5])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_demo_trains_both_cells_on_each_task_and_says_what_to_type_next(quick):
    result = here("demo", "--minutes", "0.01", "--seed", "3", "--out", "here it is")
    assert result.code == 0, result.stderr
    for words in ("QRNN", "LSTM", "bag of words", "% of unseen", "bits a character", *TASKS):
        assert words in result.stdout
    assert "validation loss" in result.stderr
    assert "Run: here it is/sentiment-qrnn\n" in result.stderr
    folder = quick / "here it is"
    runs = {path.name for path in folder.iterdir() if path.is_dir()}
    assert runs == {f"{task}-{cell}" for task in TASKS for cell in ("qrnn", "lstm")}
    pictures = {path.name for path in folder.glob("*.png")}
    assert pictures == {f"{task}-curves.png" for task in TASKS} | {"sentiment-states.png", "translation-attention.png"}
    for name in pictures:
        assert f"here it is/{name}" in result.stdout

    _, _, following = result.stdout.partition("Next:\n")
    commands = [shlex.split(line)[1:] for line in following.splitlines()]
    assert [command[0] for command in commands] == ["classify", "generate", "translate", "doctor", "--help"]
    for command in commands[:3]:
        assert here(*command).code == 0


def test_demo_of_one_task_without_lstm_in_a_new_folder(quick):
    result = here("demo", "--task", "sentiment", "--minutes", "0.01", "--no-lstm")
    assert result.code == 0, result.stderr
    assert "LSTM" not in result.stdout
    (folder,) = (quick / "runs").iterdir()
    assert folder.name.startswith("demo-2")
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"sentiment-qrnn"}


@pytest.mark.parametrize("raised", [demo.Interrupted, KeyboardInterrupt])
def test_interrupted_it_leaves_nothing(quick, monkeypatch, raised):
    def interrupted(*_):
        raise raised

    monkeypatch.setattr(sentiment_demo, "telling_review", interrupted)
    result = here("demo", "--task", "sentiment", "--minutes", "0.01", "--no-lstm", "--out", "half")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.endswith("quasirnn: demo: interrupted; nothing was left behind.\n")
    assert list(quick.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "chess"), "--task chess: there is sentiment, language-model, translation."),
        (("--minutes", "0"), "greater than or equal to 0.01"),
        (("--out", "."), ".: is there already; give another --out."),
    ],
)
def test_bad_arguments_are_told_in_one_line(quick, arguments, message):
    result = here("demo", *arguments)
    assert (result.code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_signal_in_a_training_ends_the_demo(quick, monkeypatch):
    class Stopped:
        reason = "signal"

    real = demo.train

    def stopped(*arguments, **options):
        trained = real(*arguments, **options)
        object.__setattr__(trained, "outcome", Stopped)
        return trained

    monkeypatch.setattr(demo, "train", stopped)
    result = here("demo", "--task", "language-model", "--minutes", "0.01", "--out", "half")
    assert result.code == 1
    assert list(quick.iterdir()) == []


def test_the_table_compares_the_speeds(capsys):
    rows = [
        Row("bag", 5, 60.0),
        Row("QRNN", 1000, 98.76, speed=300.0, minutes=0.5),
        Row("LSTM", 1100, 97.0, speed=200.0),
    ]
    print_part(Part("sentiment", "% right", "texts", 1200, rows, "It says:", "first\n\nsecond", []))
    shown = capsys.readouterr().out
    assert "1,200 steps each; the QRNN's speed is 1.50 times the LSTM's." in shown
    assert "98.76" in shown
    assert "texts/s" in shown
    assert shown.endswith("It says:\n\n    first\n\n    second\n\n")
