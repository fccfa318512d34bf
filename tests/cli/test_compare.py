"""`quasirnn compare` and `evaluate --save`, as a user types them."""

import json
import shutil
from pathlib import Path

from cli.command import as_json, here
from quasirnn.tasks.comparison import TEST
from tasks.tiny_sentiment import labelled_rows, write_rows

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_the_committed_records_are_enough(tmp_path):
    runs = [RESULTS / name for name in ("imdb-paper-qrnn", "imdb-paper-lstm-uniform")]
    result = here("compare", *runs, "--markdown", "--plot", tmp_path / "curves.png")
    assert result.code == 0
    head, rule, qrnn, lstm = result.stdout.splitlines()
    assert head.startswith("| run | model | parameters | seeds | epochs | best epoch | minutes | validation accuracy |")
    assert rule.startswith("|---|---|---:|")
    assert qrnn.startswith("| imdb-paper-qrnn | QRNN 4 x 256 | 8,423,282 | 1 | 4 | 4 | 78.2 | 90.68 |")
    assert lstm.startswith(
        "| imdb-paper-lstm-uniform | LSTM 4 x 256, equal units | 8,485,746 | 1 | 3 | 3 | 113.2 | 90.56 |"
    )
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_figures_on_test_are_saved_and_shown(own_sentiment):
    evaluation = as_json("evaluate", own_sentiment, "--save")
    saved = json.loads((own_sentiment / TEST).read_text())
    assert saved["accuracy"] == evaluation["accuracy"]
    assert saved["environment"]["torch"]
    (row,) = as_json("compare", own_sentiment)["rows"]
    assert row["figures"]["test accuracy"] == {
        "mean": evaluation["accuracy"],
        "deviation": None,
        "values": [evaluation["accuracy"]],
    }
    assert row["runs"][0]["parameters"] > 0


def test_two_models_can_be_compared_without_their_weights(own_sentiment, tmp_path):
    """The rows that `evaluate --save` left give the interval."""
    other = tmp_path / "other"
    shutil.copytree(own_sentiment, other)
    for run in (own_sentiment, other):
        assert here("evaluate", run, "--save").code == 0
        assert (run / "rows-test.json").stat().st_size < 100_000
    (other / "model.safetensors").unlink()
    lines = here("compare", own_sentiment, other, "--head-to-head", "--speed", "2").stdout.splitlines()
    assert "stage" in [line.split(" ")[0] for line in lines]
    assert lines[-1].startswith("test accuracy ")
    assert lines[-1].endswith("+0.00  +0.00 to +0.00")
    stages = as_json("compare", own_sentiment, other, "--head-to-head")["head_to_head"]
    assert stages[-1]["interval"] == [0, 0]
    alone = here("compare", own_sentiment, "--head-to-head").mistake
    assert alone == "--head-to-head: give two runs, got 1."
    assert here("compare", own_sentiment, other, "--speed", "2").mistake == "--speed: goes with --head-to-head."


def test_mistakes_are_one_line(own_sentiment, tmp_path):
    assert here("compare", tmp_path / "none").mistake.startswith(f"{tmp_path / 'none'}: no such folder.")
    assert here("compare", own_sentiment, "--json", "--markdown").mistake == "--markdown and --json: give one of them."
    run = RESULTS / "lm-fast"
    assert "to different tasks, sentiment and language-model" in here("compare", own_sentiment, run).mistake


def test_seeds_of_both_cells_with_one_command(tmp_path):
    """Runs, table and picture; every run has the same rows held out. Called again with --resume, nothing is left."""
    write_rows(tmp_path / "mine.tsv", labelled_rows("train"))
    command = ["train", "sentiment", "--data", tmp_path / "mine.tsv", "--seeds", "1,2", "--cell", "qrnn,lstm"]
    command += ["--out", tmp_path / "runs", "hidden_size=8", "epochs=2"]
    result = here(*command)
    assert result.code == 0, result.stderr
    head, qrnn, lstm = result.stdout.splitlines()
    assert head.split()[:2] == ["run", "model"]
    assert qrnn.startswith("qrnn-{1,2}  QRNN 1 x 8 ")
    assert lstm.startswith("lstm-{1,2}  LSTM 1 x 8, equal units ")
    assert " ± " in qrnn
    assert (tmp_path / "runs" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "different rows" not in result.stderr
    assert "already exists" in here(*command).mistake
    again = here(*command, "--resume")
    assert again.stdout == result.stdout
    assert again.stderr.count("Nothing left to do") == 4


def test_an_lstm_of_equal_parameters(tmp_path):
    write_rows(tmp_path / "mine.tsv", labelled_rows("train"))
    command = ["train", "sentiment", "--data", tmp_path / "mine.tsv", "hidden_size=32", "max_steps=1"]
    assert here(*command, "--out", tmp_path / "qrnn").code == 0
    assert here(*command, "--out", tmp_path / "lstm", "--cell", "lstm", "match=parameters").code == 0
    rows = as_json("compare", tmp_path / "qrnn", tmp_path / "lstm")["rows"]
    assert rows[1]["model"].split(", ")[1] == "equal parameters"
    qrnn, lstm = (row["runs"][0]["parameters"] for row in rows)
    assert 0.95 < lstm / qrnn <= 1


def test_seeds_are_numbers(tmp_path):
    for wrong in ("a", "1,1", "1,,2", ""):
        assert here("train", "sentiment", "--seeds", wrong).mistake.startswith(f"--seeds {wrong}: must be distinct")
    assert here("train", "sentiment", "--seeds", "1", "seed=2").mistake == "seed and --seeds: give one of them."
