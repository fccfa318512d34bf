"""`quasirnn train sentiment`: word vectors, repeated and held-out texts."""

import pytest
from safetensors.torch import load_file

from cli.command import as_json, everything, here, read, train_built_in
from quasirnn.models.bag_of_words import accuracy, fit_best
from quasirnn.training.run_log import read_metrics
from tasks.tiny import SENTIMENT
from tasks.tiny_sentiment import keys, labelled_rows, write_labelled, write_rows, write_vectors

TRAIN = ("train", "sentiment")


@pytest.fixture
def texts(tmp_path):
    return write_labelled(tmp_path / "texts")


def test_repeated_texts_are_a_note(tmp_path):
    rows = labelled_rows("train")
    write_rows(tmp_path / "texts" / "train.tsv", [*rows, rows[0], ("bad", rows[1][1])])
    write_rows(tmp_path / "texts" / "valid.tsv", [rows[2], *labelled_rows("valid")])
    result = here(*TRAIN, "--data", tmp_path / "texts", "--out", tmp_path / "run", *keys("max_steps=1"))
    assert result.code == 0
    assert result.notes[:2] == [
        "texts: no file for test, so held out of train (4 of 50 texts, the same share of every label, seed 1)",
        "train: 2 of 46 texts are duplicates; 1 texts have more than one label",
    ]
    assert "valid: 1 of 13 texts also occur in train" in result.notes


def test_the_test_set_is_touched_by_evaluate_alone(texts, tmp_path):
    (texts / "test.tsv").write_text("good\tgreat film\nsplendid\tgreat film\n")
    run = tmp_path / "run"
    assert here(*TRAIN, "--data", texts, "--out", run, *keys("epochs=1")).code == 0
    mistake = here("evaluate", run).mistake
    assert mistake == f"{texts}/test.tsv:2: the label 'splendid' does not occur in training, which has bad, good."
    assert here("evaluate", run, "--split", "valid").code == 0
    (texts / "test.tsv").write_text("good\tgreat film\n")
    assert as_json("evaluate", run)["texts"] == 1
    assert here(*TRAIN, "--out", run, "--resume", "epochs=2").code == 0, "the test set is not what a run began with"


def test_what_was_held_out_is_found_again(texts, tmp_path):
    for name in ("valid.tsv", "test.tsv"):
        (texts / name).unlink()
    run = tmp_path / "run"
    assert here(*TRAIN, "--data", texts, "--out", run, *keys("seed=5")).code == 0
    best = max(r["accuracy"] for r in read_metrics(run / "metrics.jsonl") if r["event"] == "valid")
    figures = as_json("evaluate", run, "--split", "valid")
    assert figures["accuracy"] == pytest.approx(best)
    assert [sum(row) for row in figures["confusion"]] == [2, 2]
    by_split = {split: as_json("evaluate", run, "--split", split)["texts"] for split in ("train", "valid", "test")}
    assert by_split == {"train": 40, "valid": 4, "test": 4}


@pytest.mark.parametrize("suffix", [".txt", ".npz"])
def test_vectors_that_are_trained_on(texts, tmp_path, suffix):
    run, file = tmp_path / "run", tmp_path / f"vectors{suffix}"
    vectors = write_vectors(file)
    rate = "learning_rate=1e-6"
    result = here(*TRAIN, "--data", texts, "--vectors", file, "--out", run, *keys("max_steps=2", rate))
    assert "Note: vectors: 11 of 12 words (91.7%), " in result.stderr
    assert "words are initialised at random" not in result.stderr
    training = read(run, "training.json")
    assert training["settings"]["vectors"] == str(file)
    assert training["corpus"]["vectors"]["dimension"] == 8
    great = load_file(run / "model.safetensors")["embedding.weight"][
        read(run, "vocabulary.json")["tokens"].index("great")
    ]
    assert great.tolist() != vectors["great"]
    assert great.tolist() == pytest.approx(vectors["great"], abs=1e-5)


def test_resume_refuses_other_vectors(texts, tmp_path):
    run, file = tmp_path / "run", tmp_path / "vectors.txt"
    write_vectors(file)
    assert here(*TRAIN, "--data", texts, "--vectors", file, "--out", run, *keys("epochs=1")).code == 0
    before = everything(run)
    for name, message in (
        ("other.txt", f"vectors: the run was started with {file}, not {tmp_path}/other.txt"),
        ("vectors.txt", "the word vectors have changed since the run was started (sha256 "),
        (None, f"{file}: not found."),
    ):
        other = ["--vectors", tmp_path / name] if name else []
        if name is None:
            file.unlink()
        elif name == "vectors.txt":
            file.write_text(file.read_text().replace(" 0.", " 1."))
        assert message in here(*TRAIN, "--out", run, "--resume", "epochs=2", *other).mistake
    assert everything(run) == before


@pytest.mark.slow
@pytest.mark.full
def test_the_built_in_reviews_need_a_network_that_sees_order(tmp_path):
    """What the demo's table shows: the QRNN reads nearly all of the held-out reviews right, and bags do not."""
    run = train_built_in("sentiment", tmp_path / "run")
    assert as_json("evaluate", run)["accuracy"] >= 97
    settings = SENTIMENT.task.presets["demo"].qrnn
    parts = SENTIMENT.task.dataset(settings, [], ["train", "valid", "test"]).parts
    train, valid, test = ((parts[name].ids, parts[name].labels) for name in ("train", "valid", "test"))
    for order, bar in ((1, 0.85), (2, 0.90)):
        assert accuracy(fit_best(train, valid, classes=2, order=order), *test) < bar
