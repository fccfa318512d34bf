"""`quasirnn plot`, as a user types it."""

import pytest

import quasirnn as package
from cli.command import here
from plots import seen
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
    for name, option in (("curves", "--reference"), ("states", "--layer"), ("confusion", "--split")):
        assert name in here("plot").stdout
        assert option in here("plot", name, "--help").stdout


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
        ([TEXT], b"", {"c of layer 2", "activation of c", "p(good)", "mean f"}),
        (["--file", file, "--layer", 1, "--what", "f"], b"", {"f of layer 1", "activation of f", "p(good)"}),
        (["--label", "bad", "--what", "z"], TEXT.encode(), {"z of layer 2", "activation of z", "p(bad)"}),
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
        assert f"{found.accuracy:.2f}% of {found.texts} right" in written
        assert {"bad", "fair", "good", "answer", "truth"} <= set(written)
        for count in {number for row in found.confusion for number in row}:
            assert str(count) in written


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("qrnn", [TEXT, "--layer", "3"], "layer 3: the model has the layers 1 to 2."),
        ("qrnn", [TEXT, "--layer", "0"], "Invalid value for '--layer'"),
        ("qrnn", [TEXT, "--what", "i"], "i: this layer has c, f, h, o, z."),
        ("qrnn", [TEXT, "--what", "g"], "g: this layer has c, f, h, o, z."),
        ("qrnn", [TEXT, "--label", "fair"], "label 'fair': the classes are bad, good."),
        ("qrnn", [" "], "the text is blank; there is nothing to read."),
        ("qrnn", [], "the text is blank; there is nothing to read."),
        ("qrnn", [TEXT, "--file", "x.txt"], "TEXT and --file: give one of them."),
        ("qrnn", ["--file", "x.txt"], "No such file or directory: 'x.txt'"),
        ("qrnn", ["a \udcff"], "'a \\udcff': not valid UTF-8."),
        ("qrnn", [TEXT, "--out", "states.pdf"], "states.pdf: pictures are written as .png or .svg"),
        ("qrnn", [TEXT, "--out", "nowhere/states.png"], "there is no folder nowhere"),
        ("lstm", [TEXT], "lstm: is a run of an LSTM; only a QRNN's cells and gates can be shown."),
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
        (["--data", "nowhere"], "No such file or directory: 'nowhere'"),
        (["--out", "confusion.pdf"], "confusion.pdf: pictures are written as .png or .svg"),
    ):
        assert message in here("plot", "confusion", classifier, *arguments).mistake
    assert not (classifier / "confusion.png").exists()


def test_pictures_of_a_classifier_without_matplotlib(classifier, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for arguments in (["states", classifier, TEXT], ["confusion", classifier]):
        assert here("plot", *arguments).mistake == "drawing needs matplotlib: pip install 'quasirnn[plot]'"
