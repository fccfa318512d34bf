"""Two runs after equal epochs, in equal time and on test, from their records alone."""

import json

import numpy as np
import pytest

from quasirnn.errors import RunError, UserError
from quasirnn.tasks.comparison import TEST, read_entry
from quasirnn.tasks.evaluation import Rows
from quasirnn.tasks.head_to_head import head_to_head, table
from quasirnn.tasks.saved_rows import path_of, read_rows, save_rows
from quasirnn.tasks.sentiment import accuracy_of
from tasks.recorded_run import START, recorded, validated

SLOW = [START, validated(10, accuracy=80.0), validated(20, accuracy=90.0)]
FAST = [START, *(validated(10 * n, accuracy=value) for n, value in enumerate((70.0, 84.0, 88.0, 86.0), 1))]


def ended(records, minutes):
    return [*records, {"event": "stop", "step": records[-1]["step"], "minutes": minutes, "reason": "finished"}]


def rows(right):
    right = np.asarray(right, float)
    return Rows(np.stack([right, np.ones_like(right)], 1), accuracy_of, right, "accuracy", "texts", "same")


@pytest.fixture
def fast_and_slow(tmp_path):
    runs = [
        recorded(tmp_path / "fast", ended(FAST, 8.0), "sentiment"),
        recorded(tmp_path / "slow", ended(SLOW, 6.0), "sentiment"),
    ]
    for run in runs:
        # It is a language model's; a record without one has no number of parameters.
        run.config.unlink()
    return runs


def test_equal_epochs_and_equal_time(fast_and_slow):
    fast, slow = map(read_entry, fast_and_slow)
    by_record = {stage.name: (stage.first, stage.second) for stage in head_to_head(fast, slow)}
    # Two epochs of the slow one take six minutes, in which the fast one trains three.
    assert by_record == {
        "validation accuracy, 2 epochs each": (84.0, 90.0),
        "validation accuracy, equal time: 3 and 2 epochs": (88.0, 90.0),
    }
    by_speed = head_to_head(fast, slow, speed=4.0)[1]
    assert by_speed.name == "validation accuracy, equal time: 4 and 1 epochs"
    assert (by_speed.first, by_speed.second) == (88.0, 80.0), "the best validation so far, as that model is kept"
    other_way = head_to_head(slow, fast, speed=0.25)[1]
    assert other_way.name == "validation accuracy, equal time: 1 and 4 epochs"


def test_on_test_with_the_interval_where_both_saved_their_rows(fast_and_slow):
    right = [1] * 60 + [0] * 40, [1] * 40 + [0] * 60
    for run, ones in zip(fast_and_slow, right, strict=True):
        figures = {"corpus": None, "accuracy": float(sum(ones))}
        (run.path / TEST).write_text(json.dumps(figures))
    entries = [read_entry(run) for run in fast_and_slow]
    assert entries[0].test["accuracy"] == 60.0
    assert table(*entries, head_to_head(*entries))[-1] == ["test accuracy", "60.00", "40.00", "+20.00", ""]
    for run, ones in zip(fast_and_slow, right, strict=True):
        save_rows(run.path, "test", rows(ones))
    tested = head_to_head(*entries)[-1]
    assert tested.difference is not None
    assert tested.difference.low < 20 < tested.difference.high
    assert tested.line()[-1].startswith("+1")
    assert tested.to_json()["interval"] == [tested.difference.low, tested.difference.high]


def test_rows_are_read_back_as_they_were(tmp_path):
    draw = np.random.default_rng(1)
    nats, counts = draw.random(12).astype(np.float32), np.full(12, 100)
    saved = Rows(np.stack([nats, counts], 1), accuracy_of, -nats, "perplexity", "blocks", "abc")
    save_rows(tmp_path, "test", saved)
    read = read_rows(tmp_path, "test", accuracy_of)
    assert read is not None
    np.testing.assert_array_equal(read.statistics.astype(np.float32), saved.statistics.astype(np.float32))
    np.testing.assert_array_equal(read.scores.astype(np.float32), saved.scores)
    assert (read.name, read.unit, read.sha256) == ("perplexity", "blocks", "abc")
    assert read_rows(tmp_path, "valid", accuracy_of) is None


def test_rows_that_are_all_alike_keep_their_number(tmp_path):
    save_rows(tmp_path, "test", rows([1] * 10))
    read = read_rows(tmp_path, "test", accuracy_of)
    assert read is not None
    assert read.statistics.tolist() == [[1.0, 1.0]] * 10
    save_rows(tmp_path, "test", None)
    assert read_rows(tmp_path, "test", accuracy_of) is None, "those of another evaluation must not stay behind"


def test_a_run_without_a_step_or_with_a_figure_that_is_not_finite(tmp_path, fast_and_slow):
    empty = recorded(tmp_path / "empty", ended([START], 0.5), "sentiment")
    bad = recorded(tmp_path / "bad", ended([START, validated(10, accuracy=None)], 1.0), "sentiment")
    for run in (empty, bad):
        run.config.unlink()
        for pair in ((run, fast_and_slow[0]), (fast_and_slow[0], run)):
            assert head_to_head(*map(read_entry, pair)) == []


def test_rows_of_other_data_give_no_interval(fast_and_slow):
    for run, right in zip(fast_and_slow, ([1, 0], [1, 0, 1]), strict=True):
        (run.path / TEST).write_text(json.dumps({"corpus": None, "accuracy": 50.0}))
        save_rows(run.path, "test", rows(right))
    assert head_to_head(*map(read_entry, fast_and_slow))[-1].difference is None


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0},
        {"rows": 4},
        {"columns": ["1 0 1", "1 1"]},
        {"columns": []},
        {"columns": ["1 x"]},
        {"columns": ["1 inf"]},
        {"columns": [[1]]},
        {"scores": ""},
        {"figure": 3},
    ],
    ids=str,
)
def test_damaged_rows_are_one_line(tmp_path, change):
    save_rows(tmp_path, "test", rows([1, 0, 1]))
    file = path_of(tmp_path, "test")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(RunError, match="not the rows of an evaluation") as error:
        read_rows(tmp_path, "test", accuracy_of)
    assert "\n" not in str(error.value)


def test_other_data_cannot_be_compared(tmp_path, fast_and_slow):
    other = recorded(tmp_path / "lm", [START, validated(10, perplexity=99.0)])
    with pytest.raises(UserError, match="only runs on the same data"):
        head_to_head(read_entry(fast_and_slow[0]), read_entry(other))
    small = read_entry(other)
    small.training.corpus["vocabulary"] = 5
    with pytest.raises(UserError, match="different vocabularies"):
        head_to_head(read_entry(other), small)
