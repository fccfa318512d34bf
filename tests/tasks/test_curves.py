"""From the records of runs to their picture: which figure, which values, and what is said where there is none."""

import math

import pytest

from quasirnn.plots import figure as frame
from quasirnn.tasks import curves
from quasirnn.tasks.curves import draw_curves, draw_curves_of
from quasirnn.tasks.run_folder import RunError
from tasks.recorded_run import LANGUAGE_MODEL, SENTIMENT, START, recorded, trained, validated


@pytest.fixture
def drawn(monkeypatch):
    """What would be drawn: curves and options of each call."""
    calls = []
    monkeypatch.setattr(curves, "learning_curves", lambda path, curves, **options: calls.append((curves, options)))
    return calls


def test_a_language_model_has_perplexity_on_a_logarithmic_scale(tmp_path, drawn):
    run = recorded(tmp_path / "run", LANGUAGE_MODEL)
    assert draw_curves([run], tmp_path / "a.png", references={"paper": 78.3}) == "perplexity"
    ((curve,), options) = drawn[0]
    assert curve.name == "run"
    assert curve.valid_epochs.tolist() == [1.0, 2.0]
    assert curve.valid.tolist() == [244.7, 148.4]
    assert curve.train_epochs.tolist() == [0.5, 1.5]
    assert curve.train.tolist() == [math.exp(7.0), math.exp(5.25)]
    assert options == {
        "figure": "perplexity",
        "unit": "per token",
        "title": "Language model, own data: perplexity by epoch",
        "higher_is_better": False,
        "logarithmic": True,
        "references": {"paper": 78.3},
    }


def test_a_classifier_has_accuracy_of_which_more_is_better(tmp_path, drawn):
    run = recorded(tmp_path / "run", SENTIMENT, "sentiment")
    assert draw_curves([run], tmp_path / "a.png") == "accuracy"
    ((curve,), options) = drawn[0]
    assert curve.valid.tolist() == [0.81, 0.79]
    assert len(curve.train) == 0
    assert (options["higher_is_better"], options["logarithmic"]) == (True, False)
    assert draw_curves([run], tmp_path / "a.png", "loss") == "loss"
    assert drawn[1][0][0].train.tolist() == [0.7]


def test_before_the_first_validation_there_is_training(tmp_path, drawn):
    run = recorded(tmp_path / "run", LANGUAGE_MODEL[:2])
    assert draw_curves([run], tmp_path / "a.png") == "perplexity"
    run = recorded(tmp_path / "other", SENTIMENT[:2], "sentiment")
    assert draw_curves([run], tmp_path / "a.png") == "loss"


def test_several_runs_have_what_all_of_them_have(tmp_path, drawn):
    run = recorded(tmp_path / "lm", LANGUAGE_MODEL)
    without = [START, validated(10, loss=5.5), validated(20, loss=5.0)]
    assert draw_curves([run, recorded(tmp_path / "loss", without)], tmp_path / "a.png") == "loss"
    other = recorded(tmp_path / "other", [START, validated(10, chrf=40.0)])
    with pytest.raises(RunError, match=r"no metric in common: .*lm has bits, loss, perplexity; .*other has chrf\."):
        draw_curves([run, other], tmp_path / "a.png")


def test_runs_of_different_tasks_are_refused(tmp_path, drawn):
    runs = [recorded(tmp_path / "lm", LANGUAGE_MODEL), recorded(tmp_path / "sentiment", SENTIMENT, "sentiment")]
    with pytest.raises(RunError, match=r"to different tasks, language-model and sentiment\. Plot runs of one"):
        draw_curves(runs, tmp_path / "a.png")
    assert drawn == []


def test_runs_of_one_name_are_told_apart(tmp_path, drawn):
    runs = [recorded(tmp_path / folder / "run", LANGUAGE_MODEL) for folder in ("a", "b")]
    draw_curves([*runs, recorded(tmp_path / "other", LANGUAGE_MODEL)], tmp_path / "a.png")
    assert [curve.name for curve in drawn[0][0]] == [str(runs[0].path), str(runs[1].path), "other"]


def test_records_are_read_with_distrust(tmp_path, drawn):
    odd = [
        START,
        trained(1, loss=None),
        trained(2, loss="low"),
        trained(3, loss=1e9),
        trained(4, loss=True),
        trained(5, loss=10**400),
        validated(10, perplexity=None, loss=5.0),
        validated(20, perplexity=90.0, loss=[]),
    ]
    draw_curves([recorded(tmp_path / "run", odd)], tmp_path / "a.png")
    curve = drawn[0][0][0]
    assert curve.train.tolist() == [math.exp(700)]
    assert curve.valid.tolist() == [90.0]


@pytest.mark.parametrize("steps_per_epoch", [None, 0, -1, "ten", True])
def test_without_epochs_there_is_no_axis(steps_per_epoch, tmp_path):
    records = [{**START, "steps_per_epoch": steps_per_epoch}, *LANGUAGE_MODEL[1:]]
    with pytest.raises(RunError, match=r"metrics.jsonl: its first line does not have steps_per_epoch"):
        draw_curves([recorded(tmp_path / "run", records)], tmp_path / "a.png")


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(RunError, match=r"metrics.jsonl: nothing recorded yet"):
        draw_curves([recorded(tmp_path / "new", [START])], tmp_path / "a.png")
    with pytest.raises(RunError, match=r"run: has no metric bleu\. It has bits, loss, perplexity\."):
        draw_curves([recorded(tmp_path / "run", LANGUAGE_MODEL)], tmp_path / "a.png", "bleu")


def test_the_end_of_a_run_has_its_picture(tmp_path):
    run = recorded(tmp_path / "run", LANGUAGE_MODEL)
    assert draw_curves_of(run) is None
    assert (run.path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_end_of_a_run_does_not_fail_for_want_of_a_picture(tmp_path, monkeypatch):
    run = recorded(tmp_path / "run", LANGUAGE_MODEL)
    assert draw_curves_of(recorded(tmp_path / "new", [START])).startswith("The learning curves were not plotted: ")

    def full(path, *arguments, **options):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(curves, "learning_curves", full)
        assert "No space left" in draw_curves_of(run)
    with monkeypatch.context() as patch:
        patch.setattr(frame.importlib.util, "find_spec", lambda name: None)
        note = draw_curves_of(run)
    assert note == "The learning curves were not plotted: plotting needs matplotlib: pip install 'quasirnn[plot]'"
