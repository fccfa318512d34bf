"""`quasirnn plot`, as a user types it."""

import pytest

from cli.command import here
from tasks.recorded_run import LANGUAGE_MODEL, START, recorded


@pytest.fixture
def run(tmp_path):
    return recorded(tmp_path / "run", LANGUAGE_MODEL).path


def test_the_picture_of_one_run_goes_into_its_folder(run):
    result = here("plot", "curves", run)
    assert (result.code, result.stdout, result.stderr) == (0, "", f"Wrote {run / 'curves.png'}\n")
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_several_runs_with_references(run, tmp_path):
    other = recorded(tmp_path / "other", LANGUAGE_MODEL).path
    out = tmp_path / "both.svg"
    result = here("plot", "curves", run, other, "--out", out, "--figure", "bits", "--reference", "a = b=6.5")
    assert (result.code, result.stderr) == (0, f"Wrote {out}\n")
    text = out.read_text()
    for words in ("run: 7.200 at epoch 2", "other: 7.200 at epoch 2", "a = b: 6.500", "bits"):
        assert f">{words}</text>" in text
    assert not (run / "curves.png").exists()


def test_help_names_the_pictures():
    assert "curves" in here("plot").stdout
    assert "--reference" in here("plot", "curves", "--help").stdout


def test_mistakes_are_one_line(run, tmp_path):
    def mistake(*arguments):
        return here("plot", "curves", *arguments).mistake

    assert "Missing argument 'RUN'" in mistake()
    assert mistake(tmp_path / "none").startswith(f"{tmp_path / 'none'}: no such folder.")
    assert mistake(tmp_path).startswith(f"{tmp_path / 'training.json'}: no such file.")
    assert mistake(run, run) == "several runs in one picture: say where it goes, --out FILE."
    assert mistake(run, "--out", tmp_path / "a.pdf") == f"{tmp_path / 'a.pdf'}: pictures are written as .png or .svg"
    assert "there is no folder" in mistake(run, "--out", tmp_path / "missing" / "a.png")
    assert mistake(run, "--figure", "bleu") == f"{run}: has no bleu. It has bits, loss, perplexity."
    for wrong in ("78.3", "=78.3", "paper=", "paper=low", "paper=-1", "paper=nan", "paper=inf"):
        assert mistake(run, "--reference", wrong).startswith(f"--reference {wrong}: must be NAME=VALUE")
    (run / "metrics.jsonl").unlink()
    assert mistake(run).startswith(f"{run / 'metrics.jsonl'}: no such file.")


def test_a_run_that_has_just_begun(tmp_path):
    run = recorded(tmp_path / "new", [START]).path
    assert "nothing is recorded there yet" in here("plot", "curves", run).mistake
    assert not (run / "curves.png").exists()


def test_a_folder_that_cannot_be_written(run):
    (run / "curves.png").mkdir()
    assert "curves.png" in here("plot", "curves", run).mistake


def test_without_matplotlib_the_remedy_is_named(run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert here("plot", "curves", run).mistake == "drawing needs matplotlib: pip install 'quasirnn[plot]'"
