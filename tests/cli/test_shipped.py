"""Installed models: a name stands for a run, a command without a run uses them, and their absence is one line."""

import json
import os
import shutil
from pathlib import Path

import pytest

import quasirnn
from cli.command import here
from quasirnn.errors import RunError
from quasirnn.tasks import shipped


@pytest.fixture
def installed(tmp_path, monkeypatch, tiny_sentiment):
    """One tiny classifier under the name of a shipped one, and nothing else."""
    folder = tmp_path / "site" / "reviews-en"
    shutil.copytree(tiny_sentiment / "qrnn", folder)
    monkeypatch.setattr(shipped, "models", lambda: {"reviews-en": folder})
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


@pytest.fixture
def none_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "models", dict)
    monkeypatch.chdir(tmp_path)


def test_a_name_loads_unless_a_folder_has_it(installed, tmp_path):
    assert quasirnn.load("reviews-en").run.path == installed
    (tmp_path / "here" / "reviews-en").mkdir()
    with pytest.raises(RunError, match=r"reviews-en/training.json: no such file"):
        quasirnn.load("reviews-en")


@pytest.mark.parametrize("arguments", [("good film",), ("reviews-en", "good film"), ("good",)])
def test_classify_without_a_run_uses_the_installed_model_and_says_so(installed, arguments):
    result = here("classify", *arguments)
    assert result.code == 0, result.stderr
    assert result.stdout.splitlines()[1].endswith(f"\t{arguments[-1]}")
    assert ("Model: reviews-en" in result.stderr) == (arguments[0] != "reviews-en")


@pytest.mark.parametrize("arguments", [(), ("--file", "texts.txt")])
def test_texts_of_a_pipe_or_a_file_need_no_run_either(installed, arguments):
    Path("texts.txt").write_text("good film\nbad film\n")
    result = here("classify", *arguments, stdin=b"good film\nbad film\n")
    assert result.code == 0, result.stderr
    assert [line.split("\t")[2] for line in result.stdout.splitlines()[1:]] == ["good film", "bad film"]
    assert "Model: reviews-en" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("classify", "runs/imbd"), "runs/imbd: no such folder."),
        (("classify", "imdb", "good film"), "imdb: no such folder."),
        (("classify", "review-en", "good film"), "review-en: no such folder. Did you mean reviews-en?"),
        (("classify", "imdb", "--file", "texts.txt"), "imdb: no such folder."),
        (
            ("translate", "guten Tag"),
            "no RUN given. Name the folder of a trained model, or train one: quasirnn train tra",
        ),
        (("generate", "once upon a time"), "'once upon a time': no such folder. To continue a text: --prompt TEXT."),
    ],
)
def test_a_run_with_a_mistake_in_it_is_not_taken_for_a_text(installed, arguments, message):
    assert here(*arguments).mistake.startswith(message)


@pytest.mark.parametrize("arguments", [("classify", "good film"), ("generate",), ("serve",)])
def test_without_models_the_line_names_the_pip_command(none_installed, arguments):
    assert here(*arguments).mistake.endswith("or install ours: pip install quasirnn-models")
    message = "reviews-en: this model is not installed. To install it: pip install quasirnn-models"
    assert here("classify", "reviews-en", "good film").mistake == message


def test_models_lists_what_is_installed(installed):
    files = installed / "evaluation-test.json"
    files.write_text('{"accuracy": 91.234, "corpus": "imdb", "split": "test"}')
    result = here("models")
    assert result.stdout.splitlines()[0].split()[:2] == ["reviews-en", "sentiment"]
    assert result.stdout.splitlines()[0].endswith("accuracy 91.23 % on imdb, test")
    assert '"name": "reviews-en"' in here("models", "--json").stdout


def test_models_says_how_to_get_them(none_installed):
    assert here("models").stdout == "No trained models are installed. To install ours: pip install quasirnn-models\n"


def test_a_picture_of_an_installed_model_goes_where_the_user_is(installed, tmp_path):
    result = here("plot", "states", "reviews-en", "good film")
    assert result.code == 0, result.stderr
    assert (tmp_path / "here" / "states.png").is_file()
    assert not (installed / "states.png").exists()


@pytest.mark.full
@pytest.mark.parametrize("name", shipped.NAMES)
def test_the_figures_of_a_card_are_those_of_its_model(name):
    """From the data, where they are: QUASIRNN_DATA names the folder that holds imdb/, tatoeba-de-en/ ..."""
    folder = shipped.models()[name]
    told = json.loads((folder / "evaluation-test.json").read_text(encoding="utf-8"))
    corpus = Path(os.environ.get("QUASIRNN_DATA", ""), told["corpus"])
    if "QUASIRNN_DATA" not in os.environ or not corpus.exists():
        pytest.skip(f"QUASIRNN_DATA names no folder with {told['corpus']}")
    again = quasirnn.load(name).evaluate("test", [str(corpus)])
    figure = next(key for key in ("accuracy", "bleu", "perplexity") if key in told)
    assert getattr(again, figure) == pytest.approx(told[figure], abs=0.05)
    assert f"{told[figure]:.2f}" in (folder / "README.md").read_text(encoding="utf-8")
