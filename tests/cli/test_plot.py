"""`quasirnn plot`, as a user types it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import quasirnn as package
from cli.command import here
from plots import seen
from tasks.recorded_run import LANGUAGE_MODEL, START, recorded
from tasks.tiny_translation import train_runs


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
    for words in ("run: 7.200 at epoch 2", "other: 7.200 at epoch 2", "a = b: 6.500", "bits (per token)"):
        assert f">{words}</text>" in text
    assert not (run / "curves.png").exists()


def test_help_names_the_pictures():
    for name, option in (
        ("curves", "--reference"),
        ("states", "--layer"),
        ("confusion", "--split"),
        ("attention", "--beam"),
    ):
        assert name in here("plot").stdout
        assert option in here("plot", name, "--help").stdout


def test_mistakes_are_one_line(run, tmp_path):
    def mistake(*arguments):
        return here("plot", "curves", *arguments).mistake

    assert "Missing argument 'RUN'" in mistake()
    assert mistake(tmp_path / "none").startswith(f"{tmp_path / 'none'}: no such folder.")
    assert mistake(tmp_path).startswith(f"{tmp_path / 'training.json'}: no such file.")
    assert mistake(run, run) == "several runs in one plot: give --out FILE."
    assert mistake(run, "--out", tmp_path / "a.pdf") == f"{tmp_path / 'a.pdf'}: plots are written as .png or .svg"
    assert "missing does not exist" in mistake(run, "--out", tmp_path / "missing" / "a.png")
    assert mistake(run, "--figure", "bleu") == f"{run}: has no metric bleu. It has bits, loss, perplexity."
    for wrong in ("78.3", "=78.3", "paper=", "paper=low", "paper=-1", "paper=nan", "paper=inf"):
        assert mistake(run, "--reference", wrong).startswith(f"--reference {wrong}: must be NAME=VALUE")
    (run / "metrics.jsonl").unlink()
    assert mistake(run).startswith(f"{run / 'metrics.jsonl'}: no such file.")


def test_a_run_that_has_just_begun(tmp_path):
    run = recorded(tmp_path / "new", [START]).path
    assert "nothing recorded yet" in here("plot", "curves", run).mistake
    assert not (run / "curves.png").exists()


def test_a_folder_that_cannot_be_written(run):
    (run / "curves.png").mkdir()
    assert "curves.png" in here("plot", "curves", run).mistake


def test_without_matplotlib_the_remedy_is_named(run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert here("plot", "curves", run).mistake == "plotting needs matplotlib: pip install 'quasirnn[plot]'"


TEXT = "It's a dull film"


@pytest.fixture
def classifier(tiny_sentiment):
    return tiny_sentiment / "qrnn"


@pytest.mark.parametrize(("kind", "text"), [("states", [TEXT]), ("confusion", [])])
def test_the_picture_of_a_classifier_goes_into_its_folder(own_sentiment, kind, text):
    result = here("plot", kind, own_sentiment, *text)
    file = own_sentiment / f"{kind}.png"
    assert (result.code, result.stdout, result.stderr) == (0, "", f"Wrote {file}\n")
    assert file.read_bytes().startswith(b"\x89PNG")


def test_states_of_any_layer_and_gate_from_anywhere(classifier, tmp_path):
    file, out = tmp_path / "review.txt", tmp_path / "states.svg"
    file.write_text("It's a\ndull film\n")
    for arguments, stdin, expected in (
        ([TEXT], b"", {"c of layer 2", "activation of the cells, c", "p(good)", "mean forget"}),
        (
            ["--file", file, "--layer", 1, "--what", "f"],
            b"",
            {"f of layer 1", "activation of the forget gate, f", "p(good)"},
        ),
        (
            ["--label", "bad", "--what", "z"],
            TEXT.encode(),
            {"z of layer 2", "activation of the candidates, z", "p(bad)"},
        ),
    ):
        out.unlink(missing_ok=True)
        result = here("plot", "states", classifier, *arguments, "--out", out, stdin=stdin)
        assert (result.code, result.stdout, result.stderr) == (0, "", f"Wrote {out}\n")
        written = seen.words(out)
        assert expected | {"It", "'s", "a", "dull", "film"} <= set(written)
    assert not (classifier / "states.png").exists()


def test_confusion_of_any_split(tiny_sentiment, tmp_path):
    run, out = tiny_sentiment / "three", tmp_path / "confusion.svg"
    for split, data in (("test", []), ("train", []), ("test", ["--data", tiny_sentiment / "two-classes"])):
        result = here("plot", "confusion", run, "--split", split, *data, "--out", out)
        assert (result.code, result.stdout, result.stderr) == (0, "", f"Wrote {out}\n")
        found = package.load(run).evaluate(split, [str(folder) for folder in data[1:]] or None)
        written = seen.words(out)
        assert f"Accuracy {found.accuracy:.2f}% of {found.texts} examples" in written
        assert {"bad", "fair", "good", "predicted class", "true class"} <= set(written)
        for count in {number for row in found.confusion for number in row}:
            assert str(count) in written


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("qrnn", [TEXT, "--layer", "3"], "layer 3: the model has layers 1 to 2."),
        ("qrnn", [TEXT, "--layer", "0"], "Invalid value for '--layer'"),
        ("qrnn", [TEXT, "--what", "i"], "i: this layer has c, f, h, o, z."),
        ("qrnn", [TEXT, "--what", "g"], "g: this layer has c, f, h, o, z."),
        ("qrnn", [TEXT, "--label", "fair"], "label 'fair': the classes are bad, good."),
        ("qrnn", [" "], "the text is blank."),
        ("qrnn", [], "the text is blank."),
        ("qrnn", [TEXT, "--file", "x.txt"], "TEXT and --file: give one of them."),
        ("qrnn", ["--file", "x.txt"], "x.txt: not found."),
        ("qrnn", ["a \udcff"], "'a \\udcff': not valid UTF-8."),
        ("qrnn", [TEXT, "--out", "states.pdf"], "states.pdf: plots are written as .png or .svg"),
        ("qrnn", [TEXT, "--out", "nowhere/states.png"], "the folder nowhere does not exist"),
        ("lstm", [TEXT], "lstm: only a left-to-right QRNN can show its cells and gates."),
    ],
)
def test_states_that_cannot_be_drawn(tiny_sentiment, tmp_path, monkeypatch, name, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in here("plot", "states", tiny_sentiment / name, *arguments).mistake
    assert not (tiny_sentiment / name / "states.png").exists()
    assert list(tmp_path.iterdir()) == []


def test_confusions_that_cannot_be_drawn(classifier, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["--split", "nothing"], "has no split 'nothing'"),
        (["--data", "nowhere"], "--data nowhere: not found."),
        (["--out", "confusion.pdf"], "confusion.pdf: plots are written as .png or .svg"),
    ):
        assert message in here("plot", "confusion", classifier, *arguments).mistake
    assert not (classifier / "confusion.png").exists()


def test_pictures_of_a_classifier_without_matplotlib(classifier, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for arguments in (["states", classifier, TEXT], ["confusion", classifier]):
        assert here("plot", *arguments).mistake == "plotting needs matplotlib: pip install 'quasirnn[plot]'"


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp() / "translation")


@pytest.fixture
def panels(monkeypatch):
    """The panels of every figure that is written."""
    written, write = [], Figure.savefig

    def savefig(figure, *arguments, **options):
        write(figure, *arguments, **options)
        written.append(figure.axes)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return written


TUNE = "c d e"


def test_the_attention_of_a_translator_goes_into_its_folder(translators, tmp_path):
    run = Path(shutil.copytree(translators / "qrnn", tmp_path / "run"))
    result = here("plot", "attention", run, TUNE)
    assert (result.code, result.stdout, result.stderr) == (0, "", f"Wrote {run / 'attention.png'}\n")
    assert (run / "attention.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
@pytest.mark.parametrize("source", ["argument", "file", "standard input"])
def test_attention_has_the_source_across_and_the_target_down(translators, tmp_path, panels, cell, source):
    out = tmp_path / "attention.png"
    (tmp_path / "tune.txt").write_text(TUNE + "\n")
    arguments = {"argument": [TUNE], "file": ["--file", tmp_path / "tune.txt"], "standard input": []}[source]
    stdin = TUNE.encode() if source == "standard input" else b""
    result = here("plot", "attention", translators / cell, *arguments, "--beam", 3, "--out", out, stdin=stdin)
    assert (result.code, result.stdout, result.stderr) == (0, "", f"Wrote {out}\n")
    assert out.read_bytes().startswith(b"\x89PNG")
    (found,) = package.load(translators / cell).n_best(TUNE, 1, beam=3, attention=True)
    ((panel, *_),) = panels
    assert [label.get_text() for label in panel.get_xticklabels()] == ["c", "␣", "d", "␣", "e"]
    end = ["end"] if found.finished else []
    target = ["␣" if character == " " else character for character in found.text]
    assert [label.get_text() for label in panel.get_yticklabels()] == [*target, *end]
    weights = np.asarray(panel.images[0].get_array())
    np.testing.assert_allclose(weights, found.attention.numpy(), atol=1e-6)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    # The first row is at the top.
    bottom, top = panel.get_ylim()
    assert bottom > top
    assert not (translators / cell / "attention.png").exists()


def test_attention_of_a_translation_that_does_not_end(translators, tmp_path, panels, monkeypatch):
    """Then no row is that of the end mark."""
    monkeypatch.setattr("quasirnn.tasks.translation.MOST_TIMES", 0)
    monkeypatch.setattr("quasirnn.tasks.translation.MOST_MORE", 2)
    assert (
        here("plot", "attention", translators / "qrnn", "c d e f", "--beam", 1, "--out", tmp_path / "a.png").code == 0
    )
    ((panel, *_),) = panels
    assert len(panel.get_yticklabels()) == 2
    assert "end" not in [label.get_text() for label in panel.get_yticklabels()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" "], "translate: the text is blank."),
        ([], "translate: the text is blank."),
        ([TUNE, "--file", "x.txt"], "TEXT and --file: give one of them."),
        (["--file", "x.txt"], "x.txt: not found."),
        (["c \udcff"], "'c \\udcff': not valid UTF-8."),
        ([TUNE, "--beam", "0"], "Invalid value for '--beam'"),
        ([TUNE, "--out", "a.pdf"], "a.pdf: plots are written as .png or .svg"),
        ([TUNE, "--out", "nowhere/a.png"], "the folder nowhere does not exist"),
        (["c. " * 400], "the text is too long for one picture: give one sentence."),
    ],
)
def test_attention_that_cannot_be_drawn(translators, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quasirnn.tasks.translation.MOST_TIMES", 0)
    assert message in here("plot", "attention", translators / "qrnn", *arguments).mistake
    assert not (translators / "qrnn" / "attention.png").exists()
    assert list(tmp_path.iterdir()) == []


def test_attention_of_other_models(tiny_sentiment, tiny_runs, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for other, task in ((tiny_sentiment / "qrnn", "sentiment"), (tiny_runs / "word", "language-model")):
        told = here("plot", "attention", other, TUNE, "--out", "a.png").mistake
        assert told == f"{other} is a {task} run, but this command needs a translation run."
    assert here("plot", "attention", tmp_path / "none", TUNE, "--out", "a.png").mistake.startswith(f"{tmp_path}/none")
    assert not Path("a.png").exists()


def test_curves_of_a_translator(translators, tmp_path):
    out = tmp_path / "curves.svg"
    for extra, words in (([], "loss"), (["--figure", "bleu"], "bleu"), (["--figure", "exact_match"], "exact_match")):
        assert here("plot", "curves", translators / "qrnn", translators / "lstm", "--out", out, *extra).code == 0
        written = " ".join(seen.words(out))
        assert words.lower() in written.lower()
        assert "qrnn: " in written
        assert "lstm: " in written


def test_attention_without_matplotlib(translators, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = here("plot", "attention", translators / "qrnn", TUNE).mistake
    assert told == "plotting needs matplotlib: pip install 'quasirnn[plot]'"
