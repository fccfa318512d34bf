"""`quasirnn demo`: every task with both cells, one table for all, and nothing half-written."""

import dataclasses
import shlex
import signal
from datetime import datetime
from types import SimpleNamespace

import pytest

from cli.command import here
from quasirnn.cli import demo as command
from quasirnn.cli.demo import (
    default_minutes,
    print_examples,
    print_table,
    share_of_steps,
    what_fits,
)
from quasirnn.data import number_words, reviews, topics
from quasirnn.tasks import demo, sentiment, shipped
from quasirnn.tasks.demo import Part, Row, Shown, Speeds, steps_in_equal_time
from quasirnn.tasks.registry import find_task
from quasirnn.tasks.sentiment import TASK as SENTIMENT
from quasirnn.tasks.sentiment import Classification, WordRead

TASKS = ("sentiment", "language-model", "translation")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Small corpora, no installed models. Bags of words take seconds; `test_bag_of_words` sees what they reach."""
    monkeypatch.setattr(shipped, "models", dict)
    own = dataclasses.replace(SENTIMENT.demo, baselines=lambda tick: [Row("bag of words", 7, 61.0)])
    monkeypatch.setattr(type(SENTIMENT), "demo", own)
    monkeypatch.setattr(sentiment, "CANDIDATES", 5)
    monkeypatch.setattr(reviews, "SIZES", {"train": 300, "valid": 20, "test": 30})
    whole = topics.load()
    small = topics.Topics(whole.train[:20_000], whole.valid[:2000], whole.test[:2000])
    monkeypatch.setattr(topics, "load", lambda: small)
    pairs = number_words.load
    monkeypatch.setattr(number_words, "load", lambda part: pairs(part)[: 200 if part == "train" else 5])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def folders(path):
    return {each.name for each in path.iterdir() if each.is_dir()}


def typed_next(stdout):
    """The commands that are told at the end, without the program's name."""
    _, _, following = stdout.partition("Next:\n")
    return [shlex.split(line)[1:] for line in following.splitlines() if line.startswith("    ")]


def test_demo_compares_both_cells_on_each_task_and_says_what_to_type_next(quick, monkeypatch):
    monkeypatch.setattr(demo, "steps_in_equal_time", lambda steps, ratio: 1)
    result = here("demo", "--minutes", "0.01", "--seed", "3", "--out", "here it is")
    assert result.code == 0, result.stderr
    for words in ("QRNN", "LSTM", "bag of words", "% right", "bits/char", "% exact", "same training time", *TASKS):
        assert words in result.stdout
    assert "validation loss" in result.stderr
    assert "Run: here it is/sentiment-qrnn\n" in result.stderr
    assert "Run: here it is/sentiment-lstm\n" in result.stderr
    folder = quick / "here it is"
    assert folders(folder) == {f"{task}-{cell}" for task in TASKS for cell in ("qrnn", "lstm")}
    pictures = {path.name for path in folder.glob("*.png")}
    assert pictures == {f"{task}-curves.png" for task in TASKS} | {"sentiment-states.png", "translation-attention.png"}
    for name in pictures:
        assert f"here it is/{name}" in result.stdout

    commands = typed_next(result.stdout)
    assert [words[0] for words in commands] == ["classify", "generate", "translate", "serve"]
    for words in commands[:3]:
        assert here(*words).code == 0
    assert commands[-1][1:] == [f"here it is/{task}-qrnn" for task in TASKS]
    assert result.stdout.splitlines()[-1].endswith("'here it is/translation-qrnn'")


def test_the_demo_opens_with_what_installed_models_do(quick, monkeypatch, tiny_sentiment):
    installed = dataclasses.replace(SENTIMENT.demo, use=lambda model, folder, seed: Shown("It reads:", "good [100]"))
    monkeypatch.setattr(type(SENTIMENT), "demo", installed)
    monkeypatch.setattr(shipped, "models", lambda: {"reviews-en": tiny_sentiment / "qrnn"})
    result = here("demo", "--task", "sentiment", "--minutes", "0.01", "--no-lstm")
    assert result.code == 0, result.stderr
    assert result.stdout.startswith("reviews-en. It reads:\n\n    good [100]\n\n")
    assert "Now training models from scratch:" in result.stderr


def test_without_lstm_there_is_nothing_to_compare_and_every_call_has_its_folder(quick):
    for _ in range(2):
        result = here("demo", "--task", "sentiment", "--minutes", "0.01", "--no-lstm")
        assert result.code == 0, result.stderr
        report, _, _ = result.stdout.partition("The classifier reads")
        for words in ("LSTM", "equal", "times"):
            assert words not in report
    both = sorted((quick / "runs").iterdir())
    assert len(both) == 2
    for folder in both:
        assert folder.name.startswith("demo-2")
        assert folders(folder) == {"sentiment-qrnn"}
    (serve,) = [words for words in typed_next(result.stdout) if words[0] == "serve"]
    assert serve[1:] == [str(both[1].relative_to(quick) / "sentiment-qrnn")]


def test_two_demos_in_one_second_have_two_folders(tmp_path, monkeypatch):
    moment = datetime(2026, 11, 17, 12, 30, 5)
    monkeypatch.setattr(command, "datetime", SimpleNamespace(now=lambda: moment))
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        names.append(command.new_folder().name)
        (tmp_path / "runs" / names[-1]).mkdir(parents=True)
    assert names == ["demo-20261117-123005", "demo-20261117-123005-2", "demo-20261117-123005-3"]


@pytest.mark.parametrize(
    "interruption",
    [
        KeyboardInterrupt,
        signal.SIGTERM,
        *(pytest.param(each, marks=pytest.mark.full) for each in (demo.Interrupted, signal.SIGHUP)),
    ],
)
def test_interrupted_it_leaves_nothing(quick, monkeypatch, interruption):
    def interrupted(*_):
        if isinstance(interruption, signal.Signals):
            signal.raise_signal(interruption)
        raise interruption

    monkeypatch.setattr(sentiment, "telling_review", interrupted)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    result = here("demo", "--task", "sentiment", "--minutes", "0.01", "--no-lstm", "--out", "half")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.endswith("quasirnn: demo: interrupted; its files were removed.\n")
    assert list(quick.iterdir()) == []
    assert {number: signal.getsignal(number) for number in before} == before


def test_what_another_demo_is_writing_is_left_alone(quick):
    (quick / ".half").mkdir()
    (quick / ".half" / "mine").touch()
    result = here("demo", "--out", "half")
    assert result.mistake.startswith(".half: another demo is writing to this folder, or was killed.")
    assert (quick / ".half" / "mine").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "chess"), "--task chess: no such task; choose from sentiment, language-model, translation."),
        (("--minutes", "0"), "greater than or equal to 0.01"),
        (("--out", "."), ".: already exists. Choose another --out."),
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


def test_minutes_are_for_all_that_is_asked_for():
    for names, with_lstm in ((TASKS, True), (["translation"], True), (["sentiment"], False)):
        tasks = [find_task(name) for name in names]
        training, rest = default_minutes(tasks, with_lstm)
        assert share_of_steps(training + rest, tasks, with_lstm) == pytest.approx(1)
        assert share_of_steps(3 * training + rest, tasks, with_lstm) == pytest.approx(3)
        # Tests and pictures alone take longer than this.
        assert share_of_steps(rest / 10, tasks, with_lstm) == pytest.approx(rest / 20 / (training + rest))


MINUTES = SENTIMENT.demo.minutes[0]


@pytest.mark.parametrize(
    ("times", "seconds", "steps"),
    [(0.5, 1e-4, 600), (3, 1e-4, 3600), (1, 0.12, 600), (1, MINUTES * 60 / 800, 800)],
)
def test_steps_follow_the_minutes_and_the_machine_and_epochs_have_room_for_them(
    quick, monkeypatch, times, seconds, steps
):
    asked = {}

    def noted(task, request, *_):
        asked.update(override.split("=") for override in request.overrides)
        raise demo.Interrupted

    monkeypatch.setattr(demo, "train", noted)
    monkeypatch.setattr(command, "in_turns", lambda *_: Speeds({}, ratio=1.0, seconds=seconds))
    training, rest = default_minutes([SENTIMENT], True)
    arguments = ("--task", "sentiment", "--minutes", times * training + rest, "--out", "new")
    assert here("demo", *arguments).code == 1
    assert int(asked["max_steps"]) == pytest.approx(steps, abs=1)
    assert int(asked["epochs"]) >= 4 * max(1, steps / 1200)


@pytest.mark.parametrize(
    ("steps", "ratio", "expected"),
    [(1000, 4 / 3, 750), (750, 0.75, 1000), (1000, 1.0, 1000), (1, 3.0, 1)],
)
def test_the_lstm_gets_the_steps_it_makes_in_the_time_of_the_qrnn(steps, ratio, expected):
    assert steps_in_equal_time(steps, ratio) == expected


def test_speeds_are_taken_in_turns_and_the_ratio_pair_by_pair(quick):
    ticks = []
    speeds = command.in_turns(SENTIMENT, ["max_steps=9", "seed=3"], 4, lambda *tick: ticks.append(tick))
    assert speeds.items.keys() == {"qrnn", "lstm"}
    assert min(*speeds.items.values(), speeds.ratio, speeds.seconds) > 0
    assert ticks == [(number, 7) for number in range(1, 8)]


def part(task="sentiment", compared=True):
    rows = [
        Row("bag of words", 5, 60.0),
        Row("QRNN", 1000, 98.76, 1200, speed=3000.0, ratio=1.52 if compared else None, minutes=0.5),
        Row("LSTM", 1100, 91.5, 789, speed=2000.0, ratio=1.0, minutes=0.75),
    ]
    named = SimpleNamespace(name=task, unit="texts")
    shown = Shown("It says:", "first\n\nsecond")
    return Part(named, SENTIMENT.demo, rows if compared else rows[:2], shown, f"{task}-qrnn")


def test_one_table_has_quality_steps_and_speeds_side_by_side(capsys):
    print_table([part(), part("translation")])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines.count(["QRNN", "1,000", "98.76", "1,200", "3,000", "1.52", "0.50"]) == 2
    assert lines.count(["LSTM", "1,100", "91.50", "789", "2,000", "1.00", "0.75"]) == 2
    assert ["translation", "%", "right", "texts/s"] in lines
    print_table([part(compared=False)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["QRNN", "1,000", "98.76", "1,200", "3,000", "0.50"] in lines


def test_examples_keep_their_lines(capsys):
    print_examples([part()])
    assert capsys.readouterr().out == "It says:\n\n    first\n\n    second\n\n"


def test_a_review_has_its_probability_below_each_word():
    def read(word, positive):
        label = "pos" if positive > 0.5 else "neg"
        return WordRead(
            word, Classification(label, max(positive, 1 - positive), {"neg": 1 - positive, "pos": positive})
        )

    model = SimpleNamespace(
        words=lambda text: [read("a", 0.5), read("dull", 0.071), read("film", 0.04), read("?", 0.996)]
    )
    assert sentiment.word_by_word(model, "", "pos", width=12).split("\n") == [
        "a  dull film",
        "50 7    4",
        "",
        "?",
        "100",
        "",
        "pos, 99.6 %",
    ]


@pytest.mark.parametrize(
    ("minutes", "names", "with_lstm", "said"),
    [
        (10, TASKS, True, ""),
        (2, TASKS, False, "leaving out the LSTM"),
        (1.5, TASKS[:2], False, "leaving out the LSTM and translation"),
    ],
)
def test_a_short_time_leaves_out_what_it_is_not_enough_for_and_says_so(minutes, names, with_lstm, said):
    tasks = [find_task(name) for name in TASKS]
    chosen, lstm, note = what_fits(minutes, tasks, True, named=False)
    assert ([task.name for task in chosen], lstm) == (list(names), with_lstm)
    assert said in note
    assert share_of_steps(minutes, chosen, lstm) >= command.LEAST


def test_every_time_from_a_minute_on_is_enough_for_useful_models_or_said_to_be_too_short():
    tasks = [find_task(name) for name in TASKS]
    for minutes in (1, 1.5, 2, 3, 4, 5, 7, 30):
        chosen, lstm, _ = what_fits(minutes, tasks, True, named=False)
        assert share_of_steps(minutes, chosen, lstm) >= command.LEAST
    # Tasks that are named stay, and are told to be poor.
    assert what_fits(1, tasks[2:], True, named=True)[0] == tasks[2:]
    assert "leaving out the LSTM" in what_fits(1, tasks[2:], True, named=True)[2]
    assert "the models will be poor" in what_fits(1, tasks, False, named=True)[2]
    assert "too short to train useful models" in what_fits(0.1, tasks, True, named=False)[2]


def test_no_network_is_below_its_bag_of_words_without_a_word(capsys):
    rows = [
        Row("words", 7, 61.0),
        Row("pairs", 9, 80.0),
        Row("QRNN", 5, 79.0, 60, minutes=1),
        Row("LSTM", 5, 81.0, 60, minutes=1),
    ]
    part = Part(SENTIMENT, SENTIMENT.demo, rows, Shown("", ""), "run")
    command.print_notes([part], {"sentiment": 1.0}, None)
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "sentiment: after 60 steps, the QRNN is no better than pairs. It needs more steps: increase --minutes." in said
    )
    assert command.below_baselines([dataclasses.replace(part, rows=[rows[0], *rows[2:]])]) == []
