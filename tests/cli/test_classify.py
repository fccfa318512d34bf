"""`quasirnn classify`, and `evaluate` of a classifier: labels in the order of the texts, from wherever they come."""

import json
from dataclasses import replace

import pytest

import quasirnn as package
from cli.command import as_json, here
from quasirnn.tasks import sentiment as sentiment_text
from tasks.tiny_sentiment import labelled_rows, write_rows

LINES = ["the film is dull", "", "great great", " \t", "a zebra , and the dull story"]


@pytest.fixture(scope="session", params=["qrnn", "lstm", "three"])
def run(request, tiny_sentiment):
    return tiny_sentiment / request.param


@pytest.fixture(scope="session")
def qrnn(tiny_sentiment):
    return tiny_sentiment / "qrnn"


def rows(stdout: str) -> list[list[str]]:
    header, *lines = stdout.splitlines()
    assert header == "label\tprobability\ttext"
    return [line.split("\t") for line in lines]


def expected_rows(run, lines=LINES) -> list[list[str]]:
    """A line for each text, in its order; a blank one has no label."""
    found = package.load(run).classify_all(lines)
    return [
        ["-", "-", ""] if each is None else [each.label, f"{each.probability:.4f}", line]
        for line, each in zip(lines, found, strict=True)
    ]


@pytest.mark.parametrize("source", ["arguments", "file", "standard input"])
def test_texts_from_anywhere_keep_their_order(run, tmp_path, source):
    (tmp_path / "texts.txt").write_text("\n".join(LINES))
    arguments = {"arguments": LINES, "file": ["--file", tmp_path / "texts.txt"], "standard input": []}[source]
    stdin = "\n".join(LINES).encode() if source == "standard input" else b""
    result = here("classify", run, *arguments, stdin=stdin)
    assert (result.code, result.stderr) == (0, "")
    assert rows(result.stdout) == expected_rows(run)

    items = as_json("classify", run, *arguments, stdin=stdin)["items"]
    for line, item, each in zip(LINES, items, package.load(run).classify_all(LINES), strict=True):
        assert item["text"] == line
        if each is None:
            assert (item["label"], item["probability"], item["probabilities"]) == (None, None, None)
        else:
            assert item == {
                "text": line,
                "label": each.label,
                "probability": each.probability,
                "probabilities": each.probabilities,
            }
            assert list(item["probabilities"]) == list(package.load(run).classes)
            assert sum(item["probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize("batch_size", [1, 2, 4096])
def test_labels_do_not_depend_on_what_is_read_together(run, monkeypatch, batch_size):
    monkeypatch.setattr(sentiment_text, "POOL", 7)
    texts = [text for _, text in labelled_rows("train")][:20]
    found = rows(here("classify", run, *texts, "--batch-size", batch_size).stdout)
    for (label, probability, text), expected in zip(found, expected_rows(run, texts), strict=True):
        assert (label, text) == (expected[0], expected[2])
        assert float(probability) == pytest.approx(float(expected[1]), abs=2e-4)


def test_a_label_and_its_probability_after_each_word(run):
    result = here("classify", run, "--words", "It's a dull film", "", "great")
    assert (result.code, result.stderr) == (0, "")
    model = package.load(run)
    whole, last = (
        [f"{read.so_far.label}\t{read.so_far.probability:.4f}\t{read.word}" for read in model.words(text)]
        for text in ("It's a dull film", "great")
    )
    assert [line.split("\t")[2] for line in whole] == ["It", "'s", "a", "dull", "film"]
    assert result.stdout.splitlines() == ["label\tprobability\tword", *whole, "", "", *last]
    assert whole[-1].split("\t")[:2] == rows(here("classify", run, "It's a dull film").stdout)[0][:2]


def test_a_long_text_is_cut_short_in_the_table_alone(qrnn):
    long = "great film " * 30
    assert rows(here("classify", qrnn, long).stdout)[0][2] == long[:57] + "..."
    assert as_json("classify", qrnn, long)["items"][0]["text"] == long


def test_nothing_at_all(qrnn, tmp_path):
    (tmp_path / "text.txt").touch()
    for arguments in ([], ["--file", tmp_path / "text.txt"]):
        assert rows(here("classify", qrnn, *arguments).stdout) == []
        assert as_json("classify", qrnn, *arguments) == {"items": []}
        assert here("classify", qrnn, *arguments, "--words").stdout == "label\tprobability\tword\n"
    assert rows(here("classify", qrnn, "").stdout) == [["-", "-", ""]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["great", "--words", "--json"], "--words and --json: give one of them."),
        (["great", "--batch-size", "0"], "Invalid value for '--batch-size'"),
        (["great", "--batch-size", "many"], "Invalid value for '--batch-size'"),
    ],
)
def test_what_cannot_be_classified(qrnn, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in here("classify", qrnn, *arguments).mistake


def test_runs_of_other_tasks(qrnn, tiny_runs):
    word = tiny_runs / "word"
    mistake = f"{word} is a language-model run, but this command needs a sentiment run."
    assert here("classify", word, "great").mistake == mistake
    assert here("plot", "states", word, "great").mistake == mistake
    assert here("plot", "confusion", word).mistake == mistake
    for command in (["generate", qrnn], ["score", qrnn, "great"]):
        assert here(*command).mistake == f"{qrnn} is a sentiment run, but this command needs a language-model run."


def test_evaluate_prints_accuracy_and_what_was_taken_for_what(run):
    expected = package.load(run).evaluate("test")
    result = here("evaluate", run)
    assert (result.code, result.stderr) == (0, "")
    first, header, *lines = result.stdout.splitlines()
    assert first == (
        f"{expected.corpus}, test: accuracy {expected.accuracy:.2f} %, loss {expected.loss:.4f} (18 texts)"
    )
    assert header.split() == ["true", "\\", "predicted", *expected.classes]
    assert [line.split() for line in lines] == [
        [name, *map(str, counts)] for name, counts in zip(expected.classes, expected.confusion, strict=True)
    ]
    assert len({len(line) for line in (header, *lines)}) == 1, "columns stand below one another"
    assert as_json("evaluate", run) == {
        "run": str(run),
        "corpus": expected.corpus,
        "split": "test",
        "classes": list(expected.classes),
        "texts": 18,
        "tokens": expected.tokens,
        "unknown": 0,
        "loss": expected.loss,
        "accuracy": expected.accuracy,
        "confusion": expected.confusion,
        "notes": [],
    }


def test_evaluate_on_other_texts_says_what_is_strange_about_them(qrnn, tmp_path):
    write_rows(tmp_path / "mine.csv", [("good", "great film"), ("good", "great film"), ("bad", "a zebra")])
    result = here("evaluate", qrnn, "--data", tmp_path, "--split", "mine")
    assert result.code == 0
    assert result.stderr == (
        "Note: mine: 1 of 3 texts are duplicates\nNote: mine: 1 of 6 tokens (16.7%) are not in the vocabulary and "
        "are read as <unk>\n"
    )
    assert as_json("evaluate", qrnn, "--data", tmp_path / "mine.csv", "--split", "mine")["texts"] == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\tgreat\nfair\tusual\n", "test.tsv:2: the label 'fair' does not occur in training, which has bad, good"),
        (b"good\tgreat\n\tusual\n", "test.tsv:2: the label is empty."),
        (b"good\t<br />\n", "test.tsv:1: the text with label 'good' is empty"),
        (b"", "test.tsv:1: contains no texts. Is the file complete?"),
        (b"good\t\xff\n", "test.tsv:1: byte 6 of the line (0xff) is not UTF-8."),
    ],
)
def test_what_cannot_be_evaluated(qrnn, tmp_path, content, message):
    (tmp_path / "test.tsv").write_bytes(content)
    for command in (["evaluate", qrnn], ["evaluate", qrnn, "--json"], ["plot", "confusion", qrnn]):
        mistake = here(*command, "--data", tmp_path).mistake
        assert mistake.startswith(f"{tmp_path}/{message}")
    assert not (qrnn / "confusion.png").exists()


def test_a_split_that_is_not_there(qrnn):
    assert "has no split 'nothing': neither train, valid or test nor the name of a file; it contains test" in (
        here("evaluate", qrnn, "--split", "nothing").mistake
    )


def test_two_classifiers_are_compared_on_the_same_texts(qrnn):
    figures = as_json("evaluate", qrnn, "--against", qrnn)
    against = figures.pop("against")
    assert figures == as_json("evaluate", qrnn)
    assert against == {
        "run": str(qrnn),
        "accuracy": figures["accuracy"],
        "difference": 0.0,
        "interval": [0.0, 0.0],
        "better": 0,
        "worse": 0,
    }
    shown = here("evaluate", qrnn, "--against", qrnn).stdout.splitlines()
    assert shown[0] == shown[len(shown) // 2]
    assert shown[-1].startswith("difference of accuracy +0, 95 % interval +0 to +0 (paired bootstrap over ")


def test_what_cannot_be_compared(qrnn, tiny_sentiment, tiny_runs):
    word, three = tiny_runs / "word", tiny_sentiment / "three"
    assert here("evaluate", qrnn, "--against", word).mistake == (
        f"--against {word}: is a language-model run, not a sentiment run."
    )
    assert here("evaluate", qrnn, "--against", three).mistake == (
        f"{qrnn} and {three} have different classes and cannot be compared."
    )
    assert "have different vocabularies" in here("evaluate", word, "--against", tiny_runs / "character").mistake
    assert "give one of them" in here("evaluate", word, "--against", word, "--cache", 9).mistake


def test_words_that_are_not_known_are_named(own_sentiment):
    result = here("classify", own_sentiment, "--words", "dull zebra and zebra")
    assert result.stderr == "Note: not in the vocabulary, read as unknown: 'zebra'\n"
    words = [line.rpartition("\t")[2] for line in result.stdout.splitlines()[1:]]
    assert words == ["dull", "zebra [unknown]", "and", "zebra [unknown]"]
    assert here("classify", own_sentiment, "--words", "dull").stderr == ""


def test_a_model_of_the_built_in_reviews_says_that_it_is_a_toy(own_sentiment):
    training = json.loads((own_sentiment / "training.json").read_text())
    training["corpus"]["name"] = "invented-reviews"
    (own_sentiment / "training.json").write_text(json.dumps(training))
    result = here("classify", own_sentiment, "dull")
    assert result.stderr == f"Note: {own_sentiment}: trained on invented reviews: a toy.\n"


def test_control_characters_of_a_label_do_not_reach_the_terminal(own_sentiment):
    """The labels of somebody else's run: ESC clears the screen, U+202E turns the direction of writing."""
    strange = ["b\x1b[2J\tad", "g\u202eood\n"]
    evaluation = package.load(own_sentiment).evaluate("test")
    training = json.loads((own_sentiment / "training.json").read_text())
    training["corpus"]["classes"] = strange
    (own_sentiment / "training.json").write_text(json.dumps(training))
    results = [
        here("classify", own_sentiment, "dull"),
        here("classify", own_sentiment, "--words", "dull"),
        here("evaluate", own_sentiment),
        here("plot", "states", own_sentiment, "dull", "--label", "none"),
    ]
    told = [result.stdout + result.stderr for result in results]
    told += replace(evaluation, classes=tuple(strange)).lines()
    assert [line for text in told for line in text.split("\n") if not line.replace("\t", "").isprintable()] == []
    assert all(repr(strange[0]) in text or repr(strange[1]) in text for text in (*told[:4], *told[5:]))
