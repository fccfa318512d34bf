"""`quasirnn translate`, and `evaluate` of a translator: a line for each text in its order, from wherever they come."""

import pytest
from sacrebleu.metrics import BLEU, CHRF

import quasirnn as package
from cli.command import as_json, here
from quasirnn.tasks import translation as translation_decoding
from quasirnn.tasks import translation as translation_text
from tasks.tiny_translation import paired_rows, train_runs, write_pairs

# Of very different lengths, in no order; blank ones stay where they are.
LINES = ["g", "", "c d e f g h c d e f g h", "c d", " \t", "ü? 🎵", "h g f e"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp() / "translation")


# tests/tasks/test_translation_text.py has both cells by default.
@pytest.fixture(scope="module", params=["qrnn", pytest.param("lstm", marks=pytest.mark.full)])
def run(request, runs):
    return runs / request.param


@pytest.fixture(scope="module")
def qrnn(runs):
    return runs / "qrnn"


@pytest.fixture
def short(monkeypatch):
    """Translations that do not end are cut off soon."""
    monkeypatch.setattr(translation_decoding, "MOST_TIMES", 0)
    monkeypatch.setattr(translation_decoding, "MOST_MORE", 6)


def expected(run, lines=LINES, **how) -> list[list[translation_decoding.Translation]]:
    """Each by itself."""
    model = package.load(run)
    how = {"n": 1, **how}
    return [model.n_best(line, **how) if line.strip() else [] for line in lines]


@pytest.mark.parametrize("source", ["arguments", "file", "standard input"])
def test_texts_from_anywhere_keep_their_order(run, tmp_path, source):
    (tmp_path / "texts.txt").write_text("\n".join(LINES), encoding="utf-8")
    arguments = {"arguments": LINES, "file": ["--file", tmp_path / "texts.txt"], "standard input": []}[source]
    stdin = "\n".join(LINES).encode() if source == "standard input" else b""
    result = here("translate", run, *arguments, stdin=stdin)
    assert result.code == 0
    # Some lines have characters that the model does not know; what is typed has notes on them.
    notes = result.stderr.splitlines()
    assert bool(notes) == (source == "arguments")
    assert all(note.startswith("Note: not in the vocabulary, read as unknown: ") for note in notes)
    found = expected(run)
    assert len({best[0].text for best in found if best}) > 3
    assert result.stdout.split("\n") == [*(best[0].text if best else "" for best in found), ""]

    items = as_json("translate", run, *arguments, stdin=stdin)["items"]
    for line, item, best in zip(LINES, items, found, strict=True):
        assert item["text"] == line
        assert len(item["translations"]) == len(best)
        for values, each in zip(item["translations"], best, strict=True):
            assert set(values) == {"text", "score", "log_probability", "finished"}
            assert (values["text"], values["finished"]) == (each.text, each.finished)
            assert values["score"] == pytest.approx(each.score, rel=1e-4)
            assert values["log_probability"] == pytest.approx(each.log_probability, rel=1e-4)


def test_the_n_best_have_number_score_and_translation(run):
    result = here("translate", run, *LINES, "--n-best", 3, "--beam", 4)
    assert result.code == 0
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    wanted = [(str(number), each) for number, best in enumerate(expected(run, n=3, beam=4), 1) for each in best]
    # Blank texts have none, but their numbers all the same.
    assert [number for number, *_ in rows] == [number for number, _ in wanted]
    assert {"2", "5"}.isdisjoint(number for number, *_ in rows)
    for (_, score, text), (_, each) in zip(rows, wanted, strict=True):
        assert text == each.text
        assert float(score) == pytest.approx(each.score, abs=2e-4)
    first = [text for number, _, text in rows if number == "3"]
    assert first[0] == here("translate", run, LINES[2], "--beam", 4).stdout.rstrip("\n")
    assert len(set(first)) == 3


@pytest.mark.parametrize("batch_size", [1, 32])
def test_translations_do_not_depend_on_what_is_decoded_together(qrnn, monkeypatch, batch_size):
    monkeypatch.setattr(translation_text, "POOL", 7)
    lines = [source for source, _ in paired_rows("train")[:10]]
    result = here("translate", qrnn, *lines, "--batch-size", batch_size)
    assert result.stdout.splitlines() == [best[0].text for best in expected(qrnn, lines)]


def test_beam_and_alpha(qrnn):
    def lines(*how):
        return as_json("translate", qrnn, *LINES, *how)["items"]

    usual = lines()
    assert usual == lines("--beam", 8, "--alpha", 0.6)
    for how in ({"beam": 1}, {"beam": 2, "alpha": 0.0}, {"alpha": 3.0}):
        found = lines(*(word for name, value in how.items() for word in (f"--{name}", value)))
        assert found != usual
        for item, best in zip(found, expected(qrnn, **how), strict=True):
            assert [each["text"] for each in item["translations"]] == [each.text for each in best]
            assert [each["score"] for each in item["translations"]] == pytest.approx(
                [each.score for each in best], rel=1e-4
            )


def test_a_long_text_is_translated_piece_by_piece(qrnn, short):
    long = ("c d e f g h c. " * 100).strip()
    assert len(long) > 1000
    result = here("translate", qrnn, "c", long, "d", "--n-best", 2)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [number for number, *_ in rows] == ["1", "1", "2", "3", "3"], "it has one translation"
    assert rows[2][2] == package.load(qrnn).translate(long).text
    assert here("translate", qrnn, long).stdout == rows[2][2] + "\n"


def test_a_text_of_a_megabyte_is_refused_as_the_help_says(qrnn):
    mistake = here("translate", qrnn, stdin=b"c d e f g h. " * 80_000).mistake
    assert mistake == "translate: a text has 1,040,000 characters, more than 20,000. Give one sentence per line."
    assert "more than 20,000 characters is an error" in " ".join(here("translate", "--help").stdout.split())


def test_characters_that_the_model_does_not_know(qrnn):
    strange = ["c 🎵 d", "c \u2028 d", "c \ufeff d", "c ü d"]
    assert len(set(here("translate", qrnn, *strange).stdout.splitlines())) == 1
    assert "\ufffd" not in here("translate", qrnn, *strange, "--n-best", 8).stdout


def test_guarantee_text_as_it_comes_nothing_at_all(qrnn, tmp_path):
    (tmp_path / "text.txt").write_bytes(b"")
    for arguments in (["--file", tmp_path / "text.txt"], []):
        assert here("translate", qrnn, *arguments).stdout == ""
        assert as_json("translate", qrnn, *arguments) == {"items": []}
    assert here("translate", qrnn, stdin=b"\n \n\n").stdout == "\n\n\n"
    assert here("translate", qrnn, stdin=b"\n").code == 0
    assert here("translate", qrnn, "", "--n-best", 3).stdout == ""
    assert as_json("translate", qrnn, " ")["items"] == [{"text": " ", "translations": []}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["c", "--beam", "0"], "Invalid value for '--beam'"),
        (["c", "--beam", "257"], "Invalid value for '--beam'"),
        (["c", "--beam", "wide"], "Invalid value for '--beam'"),
        (["c", "--alpha", "-1"], "Invalid value for '--alpha'"),
        (["c", "--alpha", "nan"], "Invalid value for '--alpha'"),
        (["c", "--alpha", "inf"], "Invalid value for '--alpha'"),
        (["c", "--n-best", "0"], "Invalid value for '--n-best'"),
        (["c", "--n-best", "9"], "n_best must be from 1 to beam = 8, got 9."),
        (["c", "--n-best", "2", "--beam", "1"], "n_best must be from 1 to beam = 1,"),
        (["c", "--batch-size", "0"], "Invalid value for '--batch-size'"),
    ],
)
def test_what_cannot_be_translated(qrnn, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    for extra in ([], ["--json"]):
        assert message in here("translate", qrnn, *arguments, *extra).mistake


def test_runs_of_other_tasks(qrnn, tiny_runs, tiny_sentiment):
    for other, task in ((tiny_runs / "word", "language-model"), (tiny_sentiment / "qrnn", "sentiment")):
        mistake = f"{other} is a {task} run, but this command needs a translation run."
        assert here("translate", other, "c").mistake == mistake
        assert here("plot", "attention", other, "c").mistake == mistake
        for option in ("--beam", "--alpha"):
            told = here("evaluate", other, option, 2).mistake
            assert told == f"{option}: {other} is a run of {task}, which has no such option."
    for command, needed in (
        (["generate", qrnn], "language-model"),
        (["score", qrnn, "c"], "language-model"),
        (["classify", qrnn, "c"], "sentiment"),
        (["plot", "states", qrnn, "c"], "sentiment"),
    ):
        assert here(*command).mistake == f"{qrnn} is a translation run, but this command needs a {needed} run."


# Evaluation.


@pytest.mark.parametrize("how", [{}, {"beam": 1}, {"beam": 3, "alpha": 0.0}], ids=["usual", "greedy", "plain"])
def test_evaluate_is_sacrebleu_on_what_translate_prints(run, tmp_path, how):
    sources, targets = zip(*paired_rows("test"), strict=True)
    (tmp_path / "texts.txt").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    options = [word for name, value in how.items() for word in (f"--{name}", value)]
    printed = here("translate", run, "--file", tmp_path / "texts.txt", *options).stdout.splitlines()
    bleu, lower, chrf = BLEU(), BLEU(lowercase=True), CHRF()
    figures = as_json("evaluate", run, *options)
    loss = figures.pop("loss")
    assert figures == {
        "run": str(run),
        "corpus": "pairs",
        "split": "test",
        "pairs": 12,
        "unknown": 0,
        "bleu": bleu.corpus_score(printed, [targets]).score,
        "chrf": chrf.corpus_score(printed, [targets]).score,
        "exact_match": 100 * sum(map(str.__eq__, printed, targets)) / 12,
        "bleu_lowercase": lower.corpus_score(printed, [targets]).score,
        "beam": how.get("beam", 8),
        "alpha": how.get("alpha", 0.6),
        "signatures": {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())},
        "notes": [],
    }
    assert 0 < loss < 3

    result = here("evaluate", run, *options)
    assert (result.code, result.stderr) == (0, "")
    first, *signatures = result.stdout.splitlines()
    assert first == (
        f"pairs, test: BLEU {figures['bleu']:.2f} (lower-case {figures['bleu_lowercase']:.2f}), chrF "
        f"{figures['chrf']:.2f}, exact match {figures['exact_match']:.2f} %, loss {loss:.4f} (12 pairs, beam "
        f"{figures['beam']}, alpha {figures['alpha']:g})"
    )
    assert signatures == list(figures["signatures"].values())


def test_evaluate_on_other_pairs_says_what_is_strange_about_them(qrnn, tmp_path):
    write_pairs(tmp_path, "mine", [("c", "do"), ("ü", "do"), ("", "x")])
    result = here("evaluate", qrnn, "--data", tmp_path, "--split", "mine", "--beam", 2)
    assert result.code == 0
    assert result.stderr == (
        "Note: mine: 1 of 3 pairs of mine left out because a side is empty\nNote: mine: 1 of 6 tokens (16.7%) are "
        "not in the vocabulary and are read as \ufffd\n"
    )
    assert as_json("evaluate", qrnn, "--data", tmp_path / "mine.de", "--split", "mine")["pairs"] == 2


def test_evaluate_a_file_of_columns(qrnn, tmp_path):
    (tmp_path / "test.tsv").write_text("c d\tdo ré\nh\tsi\n", encoding="utf-8")
    write_pairs(tmp_path / "two", "test", [("c d", "do ré"), ("h", "si")])
    columns, files = (as_json("evaluate", qrnn, "--data", folder) for folder in (tmp_path, tmp_path / "two"))
    assert {key: columns[key] for key in columns if key != "corpus"} == {
        key: files[key] for key in files if key != "corpus"
    }


@pytest.mark.parametrize(
    ("files", "arguments", "message"),
    [
        ({}, [], " has no pairs, such as train.de and train.en, or train.tsv; it contains no "),
        ({"test.de": b"c\nd\n", "test.en": b"do\n"}, [], "/test.de has 2 lines of text and "),
        ({"test.de": b"c\n"}, [], " has no pairs, such as train.de and train.en, or train.tsv; it contains"),
        ({"test.de": b"c\n", "test.en": b"\n"}, [], "/test.de: all of its 1 pairs have an empty side"),
        ({"test.de": b"", "test.en": b""}, [], "/test.de:1: contains no pairs. Is the file complete?"),
        ({"test.de": b"\xff\n", "test.en": b"a\n"}, [], "/test.de:1: byte 1 of the line (0xff) is not UTF-8."),
        (
            {"test.tsv": b"c\n"},
            [],
            "/test.tsv:1: expected 2 columns, source and target, got 1. Is a tab or a text missing?",
        ),
        ({"test.tsv": b"c\tdo\n"}, ["--split", "mine"], " has no split 'mine': neither train, valid or test nor the "),
        ({"test.tsv": b"c\tdo\n"}, ["--alpha", "nan"], "Invalid value for '--alpha'"),
        ({"test.tsv": b"c\tdo\n"}, ["--alpha", "1e6"], "Invalid value for '--alpha'"),
        ({"test.tsv": b"c\tdo\n"}, ["--beam", "100000"], "Invalid value for '--beam'"),
        ({"test.tsv": b"c\tdo\n"}, ["--beam", "0"], "Invalid value for '--beam'"),
    ],
)
def test_what_cannot_be_evaluated(qrnn, tmp_path, files, arguments, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for extra in ([], ["--json"]):
        mistake = here("evaluate", qrnn, "--data", tmp_path, *arguments, *extra).mistake
        assert message in mistake
        if message.startswith("/"):
            assert mistake.startswith(f"{tmp_path}{message}")
