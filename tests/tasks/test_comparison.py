"""Runs side by side: what is one row, what its figures are, and what a record without weights is enough for."""

import json

import pytest

from quasirnn.errors import UserError
from quasirnn.tasks import comparison
from quasirnn.tasks.evaluation import as_columns
from quasirnn.tasks.language_model import TASK
from quasirnn.tasks.run_folder import Run, Training, create
from tasks.recorded_run import LANGUAGE_MODEL, SENTIMENT, START, recorded, validated

CONFIG = {"format": 1, "model": "LanguageModel", "vocabulary_size": 10, "hidden_size": 8, "num_layers": 1}


def made(path, *, cell: str = "qrnn", perplexity: float = 100.0, sha256: str = "a", **changes) -> Run:
    """A run of three validations, the second the best."""
    settings = TASK.presets["demo"].for_cell(cell).model_copy(update={"max_steps": None, "epochs": 5, **changes})
    corpus = {"name": "mine", "sha256": sha256}
    run = create(path, training=Training(TASK.name, "demo", settings, corpus=corpus), config={**CONFIG, "cell": cell})
    figures = (2 * perplexity, perplexity, 1.5 * perplexity)
    records = [START, *(validated(10 * n, perplexity=value) for n, value in enumerate(figures, 1))]
    records.append({"event": "stop", "step": 30, "epoch": 3, "minutes": 2.0, "reason": "signal"})
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def rows_of(*runs: Run) -> list[comparison.Row]:
    return comparison.compare([comparison.read_entry(run) for run in runs])


def test_seeds_are_one_row_with_mean_and_deviation(tmp_path):
    seeds = [made(tmp_path / f"lm-{seed}-a", seed=seed, perplexity=90.0 + seed) for seed in (1, 2, 3)]
    other = made(tmp_path / "lstm", cell="lstm")
    rows = rows_of(seeds[0], other, *seeds[1:])
    assert [row.name for row in rows] == ["lm-{1,2,3}-a", "lstm"]
    assert [row.label for row in rows] == ["QRNN 2 x 192", "LSTM 2 x 192, equal units"]
    head, first, second = comparison.table(rows)
    assert head[-1] == "validation perplexity"
    assert dict(zip(head, first, strict=True))["validation perplexity"] == "92.00 ± 1.00"
    assert dict(zip(head, second, strict=True)) | {"parameters": ""} == {
        "run": "lstm",
        "model": "LSTM 2 x 192, equal units",
        "parameters": "",
        "seeds": "1",
        "epochs": "3 of 5",
        "best epoch": "2",
        "minutes": "2.0",
        "validation perplexity": "100.00",
    }


def test_settings_that_differ_are_named(tmp_path):
    rows = rows_of(made(tmp_path / "a"), made(tmp_path / "b", zoneout=0.1), made(tmp_path / "c", cell="lstm"))
    assert [row.label for row in rows] == [
        "QRNN 2 x 192, zoneout=0.0",
        "QRNN 2 x 192, zoneout=0.1",
        "LSTM 2 x 192, equal units",
    ]


def test_parameters_are_counted_without_weights(tmp_path):
    from quasirnn.models import LanguageModel

    run = made(tmp_path / "run")
    expected = sum(each.numel() for each in LanguageModel(10, hidden_size=8, num_layers=1).parameters())
    assert comparison.read_entry(run).parameters == expected
    run.config.unlink()
    assert comparison.read_entry(run).parameters is None


def test_saved_figures_of_the_same_corpus_are_shown(tmp_path):
    runs = [made(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b"))]
    assert comparison.notes(rows_of(*runs)) == ["no run has test results; `quasirnn evaluate RUN --save` records them."]
    (runs[0].path / comparison.TEST).write_text(json.dumps({"corpus": "mine", "split": "test", "perplexity": 80.0}))
    (runs[1].path / comparison.TEST).write_text(json.dumps({"corpus": "other", "split": "test", "perplexity": 1.0}))
    (row,) = rows_of(*runs)
    assert row.values("test perplexity") == [80.0]
    assert comparison.notes([row])[0].startswith("b: no test results")


def test_seeds_that_hold_out_other_rows_are_pointed_out(tmp_path):
    (row,) = rows_of(made(tmp_path / "a", seed=1), made(tmp_path / "b", seed=2, sha256="b"))
    assert "every seed holds out different rows" in comparison.notes([row])[0]


def test_a_run_without_validation_has_no_figures(tmp_path):
    (row,) = rows_of(recorded(tmp_path / "new", [START]))
    assert row.entries[0].figures == {}
    assert json.loads(json.dumps(row.to_json(), allow_nan=False))["runs"][0]["best_epoch"] is None


def test_tasks_are_not_mixed(tmp_path):
    runs = recorded(tmp_path / "a", LANGUAGE_MODEL), recorded(tmp_path / "b", SENTIMENT, "sentiment")
    runs[1].config.unlink()
    with pytest.raises(UserError, match=r"to different tasks, language-model and sentiment\. Compare runs of one task"):
        rows_of(*runs)


def test_both_forms_of_the_table():
    lines = [["run", "model", "loss"], ["a|b", "QRNN", "1.0"]]
    assert comparison.as_markdown(lines) == ["| run | model | loss |", "|---|---|---:|", "| a\\|b | QRNN | 1.0 |"]
    assert as_columns(lines, names=2) == ["run  model  loss", "a|b  QRNN    1.0"]
