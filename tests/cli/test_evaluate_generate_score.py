"""`quasirnn evaluate`, `generate` and `score`: figures, text as it comes, and output that other programs can read."""

import json
import math
import os
import subprocess

import pytest

import quasirnn as package
from cli.command import SCRIPT, as_json, here, run_script
from cli.texts_as_they_come import TEXTS


@pytest.fixture(scope="session")
def word(tiny_runs):
    return tiny_runs / "word"


@pytest.fixture(scope="session", params=["word", "character"])
def run(request, tiny_runs):
    return tiny_runs / request.param


def test_evaluate_prints_the_figures_of_a_split(run):
    expected = package.load(run).evaluate("test")
    result = here("evaluate", run)
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout == (
        f"texts, test: perplexity {expected.perplexity:.2f}, {expected.bits_per_token:.4f} bits per token "
        f"({expected.tokens} tokens)\n"
    )
    figures = as_json("evaluate", run)
    assert figures == {
        "run": str(run),
        "corpus": "texts",
        "split": "test",
        "tokens": expected.tokens,
        "unknown": 0,
        "notes": [],
        "loss": expected.loss,
        "perplexity": expected.perplexity,
        "bits_per_token": expected.bits_per_token,
    }


def test_a_neural_cache_helps_a_text_that_repeats_itself(word, tmp_path):
    (tmp_path / "mine.txt").write_text("the cat sat on the mat\n" * 30)
    where = ("evaluate", word, "--data", tmp_path, "--split", "mine")
    plain, cached = as_json(*where), as_json(*where, "--cache", 100)
    assert cached["perplexity"] < plain["perplexity"]
    assert cached["cache"].keys() == {"window", "sharpness", "share"}
    assert "with a neural cache, tuned on valid: window 100, sharpness " in here(*where, "--cache", 100).stdout
    assert "--cache" in here(*where, "--cache", 0).stderr


def test_the_validation_of_the_training_is_found_again(word):
    records = [json.loads(line) for line in (word / "metrics.jsonl").read_text().splitlines()]
    best = min(record["perplexity"] for record in records if record["event"] == "valid")
    for split in ("valid", "val", "dev"):
        figures = as_json("evaluate", word, "--split", split)
        assert figures["split"] == "valid"
        assert figures["perplexity"] == pytest.approx(best, rel=1e-5)


def test_evaluate_on_other_text_says_what_is_unknown_to_the_model(word, tmp_path):
    (tmp_path / "mine.txt").write_text("the cat sat\nthe zebra ran\n")
    result = here("evaluate", word, "--data", tmp_path, "--split", "mine")
    assert result.code == 0
    assert "(7 tokens, 1 of them unknown)\n" in result.stdout
    assert result.stderr == "Note: mine: 1 of 8 tokens (12.5%) are not in the vocabulary and are read as <unk>\n"
    figures = as_json("evaluate", word, "--data", tmp_path / "mine.txt", "--split", "mine")
    assert (figures["tokens"], figures["unknown"], len(figures["notes"])) == (7, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--split", "nothing"],
            "has no split 'nothing': neither train, valid or test nor the name of a file; it contains test",
        ),
        (["--data", "nowhere"], "nowhere: not found"),
        (["--data", "."], "has no text, such as train.txt; it contains no .txt, "),
    ],
)
def test_what_cannot_be_evaluated(word, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    for extra in ([], ["--json"]):
        assert message in here("evaluate", word, *arguments, *extra).mistake


@pytest.mark.parametrize(("content", "expected"), TEXTS.values(), ids=TEXTS)
def test_guarantee_text_as_it_comes_evaluate(word, tmp_path, content, expected):
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    arguments = ("evaluate", word, "--data", file, "--split", "text")
    if isinstance(expected, list):
        # Every line end is a token, and all tokens but the first are predicted.
        assert as_json(*arguments)["tokens"] == sum(len(line.split()) + 1 for line in expected) - 1
    else:
        assert here(*arguments).mistake.startswith(f"{file}{expected}")


def test_guarantee_text_as_it_comes_line_ends_make_no_difference(run, tmp_path):
    figures = []
    for name in ("plain", "BOM", "CRLF"):
        (tmp_path / "text.txt").write_bytes(TEXTS[name][0])
        figures.append(as_json("evaluate", run, "--data", tmp_path / "text.txt", "--split", "text"))
        assert as_json("score", run, "--file", tmp_path / "text.txt") == as_json("score", run, *TEXTS["plain"][1])
    assert figures[0] == figures[1] == figures[2]


def test_guarantee_text_as_it_comes_nothing_at_all(word, tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"")
    assert here("score", word, "--file", file).stdout.splitlines()[1:] == ["nothing to score"]
    for content in (b"", b"\n\n  \n"):
        nothing = as_json("score", word, stdin=content)
        assert nothing == {"items": [], "total": {"tokens": 0, "bits": 0.0, "perplexity": None}}
    mistake = here("evaluate", word, "--data", file, "--split", "text").mistake
    assert mistake == f"{file}:1: the file is empty. Is the copy complete?"
    file.write_bytes(b"\n")
    mistake = here("evaluate", word, "--data", file, "--split", "text").mistake
    assert mistake == "text: the text is too short; at least 2 tokens are needed."


def test_score_prints_a_table_with_a_line_for_all(word):
    model = package.load(word)
    known, strange = model.score("the cat"), model.score("the zebra sat")
    result = here("score", word, "the cat", "the zebra sat")
    assert (result.code, result.stderr) == (0, "")
    bits, tokens = known.bits + strange.bits, known.tokens + strange.tokens
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        ["perplexity", "bits", "tokens", "unknown", "text"],
        [f"{known.perplexity:.2f}", f"{known.bits:.2f}", "3", "0", "the cat"],
        [f"{strange.perplexity:.2f}", f"{strange.bits:.2f}", "4", "1", "the zebra sat"],
        [f"{2 ** (bits / tokens):.2f}", f"{bits:.2f}", "7", "", "all 2"],
    ]
    # One text alone needs no sum.
    assert len(here("score", word, "the cat").stdout.splitlines()) == 2
    # A long text is cut short in the table, but not in JSON.
    assert here("score", word, "the cat " * 20).stdout.splitlines()[1].endswith("\t" + ("the cat " * 20)[:57] + "...")


def test_score_as_json_adds_up(run):
    scores = as_json("score", run, "the cat", "a dog sat")
    assert [item["text"] for item in scores["items"]] == ["the cat", "a dog sat"]
    total = scores["total"]
    assert total["tokens"] == sum(item["tokens"] for item in scores["items"])
    assert total["bits"] == pytest.approx(sum(item["bits"] for item in scores["items"]))
    assert total["perplexity"] == pytest.approx(2 ** (total["bits"] / total["tokens"]))
    for item in scores["items"]:
        assert item["perplexity"] == pytest.approx(2 ** (item["bits"] / item["tokens"]))
        assert math.isfinite(item["bits"])


def test_each_line_is_scored_by_itself(word):
    alone = as_json("score", word, "the cat")["items"][0]
    assert as_json("score", word, "a dog", "", "the cat")["items"][1] == alone
    assert as_json("score", word, stdin=b"a dog\n\nthe cat\n")["items"][1] == alone


def test_generate_writes_the_prompt_and_what_follows(run):
    result = here("generate", run, "--prompt", "the cat", "--length", 20, "--seed", 1)
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout == package.load(run).generate("the cat", 20, seed=1) + "\n"


def test_generate_by_seed_and_by_ways_of_choosing(run):
    def text(*how):
        result = here("generate", run, "--length", 40, *how)
        assert result.code == 0, result
        return result.stdout

    assert text("--seed", 3) == text("--seed", 3)
    assert text("--seed", 3) != text("--seed", 4)
    assert text() != text()
    likeliest = text("--temperature", 0)
    assert text("--top-k", 1) == text("--top-p", 1e-9) == likeliest
    assert text("--seed", 3, "--temperature", 0.5) != text("--seed", 3)
    model = package.load(run)
    assert text("--seed", 3, "--top-k", 5, "--top-p", 0.9) == model.generate("", 40, seed=3, top_k=5, top_p=0.9) + "\n"


def test_generate_nothing_and_from_strange_prompts(word):
    assert here("generate", word, "--length", 0).stdout == "\n"
    for prompt in ("\u2028", "\ufeffthe", "🐈 x", "the\ncat", "\t"):
        result = here("generate", word, "--prompt", prompt, "--length", 3, "--seed", 1)
        assert result.code == 0
        assert result.stdout.startswith(prompt)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", "-1"], "Invalid value for '--temperature'"),
        (["--temperature", "inf"], "temperature must be finite and at least 0, got inf."),
        (["--temperature", "nan"], "temperature"),
        (["--top-k", "0"], "Invalid value for '--top-k'"),
        (["--top-p", "0"], "top_p must be above 0 and at most 1, got 0.0."),
        (["--top-p", "1.5"], "Invalid value for '--top-p'"),
        (["--length", "-1"], "Invalid value for '--length'"),
        (["--length", "many"], "Invalid value for '--length'"),
        (["--seed", str(2**70)], "seed must be at least 0"),
        (["--prompt", "the \udcff"], "'the \\udcff': not valid UTF-8."),
    ],
)
def test_what_cannot_be_generated(word, arguments, message):
    assert message in here("generate", word, *arguments).mistake


# From here on as processes of their own.


@pytest.mark.slow
@pytest.mark.full
def test_score_as_a_process(word):
    """Bytes in, bytes out, through real pipes."""
    done = run_script("score", word, "--json", stdin="the café\r\nthe dog".encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
    assert [item["text"] for item in json.loads(done.stdout)["items"]] == ["the café", "the dog"]


@pytest.mark.slow
@pytest.mark.full
def test_generate_as_a_process(word):
    done = run_script("generate", word, "--prompt", "the café", "--length", 20, "--seed", 1)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == here("generate", word, "--prompt", "the café", "--length", 20, "--seed", 1).stdout


@pytest.mark.slow
@pytest.mark.full
def test_evaluate_as_a_process(word):
    done = run_script("evaluate", word, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == as_json("evaluate", word)


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.full)], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("command", ["generate", pytest.param("score", marks=pytest.mark.full)])
def test_a_reader_who_has_had_enough_ends_the_command_quietly(word, tmp_path, command, unbuffered):
    (tmp_path / "many.txt").write_text("the cat sat\n" * 30_000)
    how = ["--length", "1000000"] if command == "generate" else ["--file", tmp_path / "many.txt"]
    with subprocess.Popen(
        [SCRIPT, command, word, *how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": unbuffered},
    ) as process:
        # Text appears while it is made: the whole of it would take minutes.
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.wait(300) == 0
        assert process.stderr.read() == b""
