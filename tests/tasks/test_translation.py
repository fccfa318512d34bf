"""Translation as a task: its pairs, what is left out of them, and the scores of a sample."""

import json
import sys

import pytest
from sacrebleu.metrics import BLEU, CHRF

from quasirnn.data import number_words
from quasirnn.tasks import translation as task
from quasirnn.tasks.settings import CELLS
from quasirnn.tasks.translation import Decoder, Translation, loss_per_character
from tasks.tiny import TRANSLATION, learner
from tasks.tiny_translation import NOTES, paired_rows, write_paired, write_pairs

prepare = TRANSLATION.prepare


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_paired(tmp_path_factory.mktemp("pairs"))


def test_both_languages_have_one_vocabulary(pairs):
    prepared = prepare(pairs)
    characters = set("".join([*NOTES, *NOTES.values()])) | {" "}
    assert set(prepared.vocabulary.tokens) == characters | {"<pad>", "<s>", "</s>", "\ufffd"}
    for split, rows in (
        (prepared.data.parts["train"], paired_rows("train")),
        (prepared.data.parts["valid"], paired_rows("valid")),
    ):
        for number, (source, target) in enumerate(rows):
            assert prepared.vocabulary.decode(split.sources[number]) == source
            assert prepared.vocabulary.decode(split.targets[number]) == target
    # "d" of the letters and "d" of "do" are the same symbol, with the same vector.
    source, target = prepared.vocabulary.encode("d"), prepared.vocabulary.encode("do")
    assert source[0] == target[0]
    assert len(prepared.model.embedding.weight) == len(prepared.vocabulary)
    assert (prepared.corpus["name"], prepared.corpus["source"], prepared.corpus["target"]) == (pairs.name, "de", "en")
    assert json.loads(json.dumps(prepared.corpus)) == prepared.corpus
    assert prepared.notes == []


def test_lower_case(tmp_path, monkeypatch):
    rows = [(source.upper(), target.upper()) for source, target in paired_rows("train")]
    write_pairs(tmp_path, "train", rows)
    prepared = prepare(tmp_path, "lowercase=yes")
    assert not any(token.isupper() for token in prepared.vocabulary.tokens)
    assert prepared.vocabulary.lowercase
    assert prepared.data.parts["valid"].target_texts[0].isupper(), "what scores are counted on stays as it is"
    # Of the case of a translation nothing is asked: here all are right but for it.
    right = [[Translation(text.lower(), 0.0, 0.0, True)] for text in prepared.data.parts["valid"].target_texts]
    monkeypatch.setattr(Decoder, "translate", lambda self, texts, beam: right[: len(texts)])
    figures = learner(prepared).validate(prepared.model, lambda done, of: None)
    assert (figures["exact_match"], figures["chrf"]) == (100, pytest.approx(100))


def test_held_out_validation_shares_no_target_with_train_and_follows_the_seed(tmp_path):
    """Sources of one target stay on one side; the test part, which is missing as well, is held out beside it."""
    rows = [(f"{source} {way}", target) for source, target in paired_rows("train") for way in "cd"]
    write_pairs(tmp_path, "train", rows)
    prepared = prepare(tmp_path)
    train, valid = set(prepared.data.parts["train"].target_texts), set(prepared.data.parts["valid"].target_texts)
    assert not train & valid
    assert len(prepared.data.parts["valid"].sources) == 16
    assert prepared.notes == [
        f"{tmp_path.name}: no file for valid and test, so held out of train (32 of 320 pairs, no target in two "
        "splits, seed 1)"
    ]
    other = prepare(tmp_path, "seed=2")
    assert other.corpus["sha256"] != prepared.corpus["sha256"] == prepare(tmp_path).corpus["sha256"]


def test_long_pairs_are_left_out_of_training_alone(pairs):
    cut = prepare(pairs, "max_length=5")
    kept = [row for row in paired_rows("train") if max(map(len, row)) <= 5]
    assert list(zip(cut.data.parts["train"].source_texts, cut.data.parts["train"].target_texts, strict=True)) == kept
    assert len(cut.data.parts["valid"].sources) == 8
    assert cut.notes == [
        f"train: {160 - len(kept)} of 160 pairs left out because a side has more than max_length = 5 characters"
    ]
    assert len(prepare(pairs, "max_length=none").data.parts["train"].sources) == 160


def test_the_built_in_pairs():
    first, again = (
        TRANSLATION.task.prepare(TRANSLATION.settings("hidden_size=4", f"seed={seed}", preset="demo"), [])
        for seed in (1, 2)
    )
    assert first.corpus["sha256"] == again.corpus["sha256"]
    assert {name: split["pairs"] for name, split in first.corpus["splits"].items()} == {"train": 12_000, "valid": 600}
    known = {*first.data.parts["train"].source_texts, *first.data.parts["train"].target_texts}
    held_out = [*first.data.parts["valid"].source_texts, *first.data.parts["valid"].target_texts]
    held_out += [side for pair in number_words.load("test") for side in pair]
    assert not known & set(held_out)
    assert first.corpus["splits"]["valid"]["unknown"] == 0


def test_a_missing_sacrebleu_is_said_before_training(pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match="BLEU needs sacrebleu: pip install"):
        prepare(pairs)
    assert prepare(pairs, "sample=0").settings.sample == 0


# Validation.


def test_batches_are_of_similar_length(pairs):
    whole = list(learner(prepare(pairs)).batches(2, 0))
    assert sum(len(batch["source_lengths"]) for batch in whole) == 160
    # Targets have 2 to 15 characters; without sorting, a batch would have nearly all lengths.
    spread = [int(batch["target_lengths"].max() - batch["target_lengths"].min()) for batch in whole]
    assert sorted(spread)[len(spread) // 2] <= 4


@pytest.mark.parametrize("cell", CELLS)
def test_scores_are_those_of_the_first_sentences(pairs, cell):
    prepared = prepare(pairs, "sample=5", cell=cell)
    figures = learner(prepared).validate(prepared.model, lambda done, of: None)
    sources, references = zip(*paired_rows("valid")[:5], strict=True)
    best = [first.text for first, *_ in Decoder(prepared.model, prepared.vocabulary).translate(sources, beam=1)]
    assert figures["bleu"] == BLEU().corpus_score(best, [references]).score
    assert figures["chrf"] == CHRF().corpus_score(best, [references]).score
    assert figures["exact_match"] == 100 * sum(map(str.__eq__, best, references)) / 5


def test_a_sample_of_none_and_one_that_is_larger_than_validation(pairs):
    none = learner(prepare(pairs, "sample=0"))
    assert none.validate(none.model, lambda done, of: None).keys() == {"loss"}
    all_of_it, more = (learner(prepare(pairs, f"sample={number}")) for number in (8, 1000))
    first, second = (each.validate(each.model, lambda done, of: None) for each in (all_of_it, more))
    assert first == second


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_loss_does_not_depend_on_how_many_pairs_are_read_at_once(pairs, monkeypatch, at_once):
    prepared = prepare(pairs)
    model, valid = prepared.model.double().eval(), prepared.data.parts["valid"]
    expected = loss_per_character(model, valid)
    monkeypatch.setattr(task, "EVALUATION_PAIRS", at_once)
    assert loss_per_character(model, valid) == pytest.approx(expected, rel=1e-12)
