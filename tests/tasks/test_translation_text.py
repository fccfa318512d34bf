"""A trained translator on text: one text, many, the n best, long ones, and its figures on a split."""

import json
import re
import shutil
from functools import partial

import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF
from torch.nn import functional as F

import quasirnn
from quasirnn.errors import DataError, TextError
from quasirnn.tasks import translation as translation_decoding
from quasirnn.tasks import translation as translation_text
from quasirnn.tasks.run_folder import RunError
from quasirnn.tasks.settings import CELLS
from quasirnn.tasks.translation import pieces
from tasks.tiny import assert_reads_a_pool_ahead
from tasks.tiny_translation import NOTES, paired_rows, train_runs, train_tiny, write_pairs

SOURCES, TARGETS = zip(*paired_rows("test"), strict=True)
# Of very different lengths, in no order, with one of nothing that the model knows.
TEXTS = ["g", "c d e f g h c d e f g h", "ü", *SOURCES[:5]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp() / "translation")


@pytest.fixture(params=CELLS)
def translator(request, runs):
    return quasirnn.load(runs / request.param)


@pytest.fixture
def qrnn(runs):
    return quasirnn.load(str(runs / "qrnn"))


@pytest.fixture
def short(monkeypatch):
    """Translations that do not end are cut off soon."""
    monkeypatch.setattr(translation_decoding, "MOST_TIMES", 0)
    monkeypatch.setattr(translation_decoding, "MOST_MORE", 12)


def test_a_loaded_model_is_ready_for_use(translator):
    assert translator.task == "translation"
    assert not translator.model.training
    assert translator.model.vocabulary_size == len(translator.vocabulary)
    assert (translator.training.settings.source, translator.training.settings.target) == ("de", "en")


def test_training_has_taught_something(translator):
    """Syllables for letters, if not all of them."""
    found = [translator.translate(text).text for text in SOURCES]
    syllables = {word for text in found for word in text.split()}
    assert syllables <= set(NOTES.values())
    assert len(set(found)) > 6
    assert sum(one.split()[0] == other.split()[0] for one, other in zip(found, TARGETS, strict=True)) > 6


def test_the_best_is_the_first_of_the_n_best(qrnn):
    for text in TEXTS:
        found = qrnn.n_best(text, 4, beam=6, alpha=0.4)
        assert len(found) == 4
        assert len({each.text for each in found}) == 4
        scores = [each.score for each in found if each.finished]
        assert scores == sorted(scores, reverse=True)
        assert found[0] == qrnn.translate(text, beam=6, alpha=0.4)
        assert found == qrnn.decoder.translate([text], beam=6, alpha=0.4, n_best=4)[0]


def test_beam_and_alpha_come_through(qrnn):
    def scores(**how):
        return [qrnn.translate(text, **how).score for text in SOURCES[:5]]

    assert scores() == scores(beam=8, alpha=0.6)
    assert scores(alpha=0.0) == [qrnn.translate(text, alpha=0.0).log_probability for text in SOURCES[:5]]
    assert scores(alpha=2.0) != scores()
    assert scores(beam=1) != scores()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"beam": 0}, "beam must be from 1 to 256, got 0."),
        ({"beam": 257}, "beam must be from 1 to 256, got 257."),
        ({"alpha": -0.1}, "alpha must be from 0 to 10, got -0.1."),
        ({"alpha": float("nan")}, "alpha must be from 0 to 10, got nan."),
        ({"alpha": 1e300}, "alpha must be from 0 to 10, got 1e+300."),
    ],
)
def test_searches_that_there_are_not(qrnn, asked, message):
    """Said when it is asked for, not when the first result is taken."""
    for work in (
        lambda: qrnn.translate("c", **asked),
        lambda: qrnn.n_best("c", 1, **asked),
        lambda: qrnn.translate_all(["c"], **asked),
        lambda: qrnn.evaluate(**asked),
    ):
        with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
            work()


@pytest.mark.parametrize(("n", "beam"), [(3, 2), (9, 8), (0, 8)])
def test_no_more_than_the_beam_is_wide(qrnn, n, beam):
    message = f"n_best must be from 1 to beam = {beam}, got {n}."
    for work in (lambda: qrnn.n_best("c", n, beam=beam), lambda: qrnn.translate_all(["c"], n=n, beam=beam)):
        with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
            work()


def test_a_blank_text_is_nothing_to_translate(translator):
    for text in ("", " ", "\t \u2003"):
        with pytest.raises(DataError, match="translate: the text is blank"):
            translator.translate(text)
    assert list(translator.translate_all(["", "c", " \t"]))[::2] == [[], []]
    assert list(translator.translate_all([])) == []
    assert list(translator.translate_all([""] * 3)) == [[]] * 3


@pytest.mark.parametrize(("batch_size", "pool"), [(1, 256), (32, 256), (3, 1), (2, 5)])
def test_many_texts_in_their_order_whatever_is_decoded_together(qrnn, monkeypatch, batch_size, pool):
    monkeypatch.setattr(translation_text, "POOL", pool)
    texts = [TEXTS[0], "", *TEXTS[1:4], " ", *TEXTS[4:]]
    found = list(qrnn.translate_all(iter(texts), n=2, beam=3, batch_size=batch_size))
    assert [len(best) for best in found] == [2 if text.strip() else 0 for text in texts]
    for text, best in zip(texts, found, strict=True):
        if best:
            alone = qrnn.n_best(text, 2, beam=3)
            assert [each.text for each in best] == [each.text for each in alone]
            assert [each.score for each in best] == pytest.approx([each.score for each in alone], rel=1e-4)


def test_a_million_texts_are_read_no_more_than_a_pool_ahead(qrnn, monkeypatch):
    """Constant memory: texts are read as their results are taken."""
    monkeypatch.setattr(translation_text, "POOL", 16)
    translate_all = partial(qrnn.translate_all, beam=1, batch_size=8)
    assert_reads_a_pool_ahead(translate_all, SOURCES, pool=16, count=49)


def test_a_text_that_is_longer_than_those_of_training_is_translated_piece_by_piece(qrnn, short):
    sentence = "c d e f g h c. "
    long = (sentence * 40).strip()
    parts = pieces(long, 300)
    assert qrnn.training.settings.max_length == 300
    assert len(long) > 300
    assert len(parts) == 2
    best = [qrnn.translate(part) for part in parts]
    found = qrnn.translate(long)
    assert found.text == " ".join(each.text for each in best)
    assert found.score == pytest.approx(sum(each.score for each in best), rel=1e-4)
    assert found.log_probability == pytest.approx(sum(each.log_probability for each in best), rel=1e-4)
    assert found.finished == all(each.finished for each in best)
    # There is one translation of it, and no attention.
    (only,) = qrnn.n_best(long, 3, attention=True)
    assert (only.text, only.attention) == (found.text, None)
    results = list(qrnn.translate_all(["c", long, "d"], n=2))
    assert [len(each) for each in results] == [2, 1, 2]
    assert results[1][0].text == found.text


def test_spaces_alone_are_never_translated(qrnn, short):
    """A piece of nothing else would be made something of."""
    spaced = " " * 1500 + "d"
    (found,) = qrnn.n_best(spaced, 1, attention=True)
    assert (found.text, found.attention) == (qrnn.translate("d").text, None)
    assert [best.text for (best,) in qrnn.translate_all([spaced, "c"])] == [found.text, qrnn.translate("c").text]


def test_as_many_characters_as_in_training_are_one_piece(qrnn, short):
    text = ("c d e f g h c d e. " * 60)[:299] + "c"
    assert len(text) == 300
    assert len(qrnn.n_best(text, 2, beam=2)) == 2
    assert len(qrnn.n_best(text + "d", 2, beam=2)) == 1


def test_without_a_limit_in_training_a_thousand_characters_are_one_piece(runs, tmp_path):
    run = shutil.copytree(runs / "qrnn", tmp_path / "run")
    training = json.loads((run / "training.json").read_text())
    training["settings"]["max_length"] = None
    (run / "training.json").write_text(json.dumps(training))
    assert quasirnn.load(run).longest == 1000


def test_characters_that_the_model_does_not_know_are_all_the_same_to_it(qrnn):
    for strange in ("\u2028", "🎵", "\x00", "ß"):
        assert qrnn.translate(f"c {strange} d") == qrnn.translate("c ü d")


def test_attention_on_request(translator):
    (found,) = translator.n_best("c d e", 1, attention=True)
    assert found.attention.shape == (len(found.text) + found.finished, 5)
    assert translator.n_best("c d e", 1)[0].attention is None


@pytest.mark.parametrize(("split", "beam"), [("test", 8), ("dev", 1)])
def test_evaluate_is_a_plain_computation_on_the_split(translator, split, beam):
    name = "valid" if split == "dev" else split
    result = translator.evaluate(split, beam=beam)
    sources, targets = zip(*paired_rows(name), strict=True)
    found = [translator.translate(text, beam=beam).text for text in sources]
    assert (result.corpus, result.split, result.pairs, result.unknown) == ("pairs", name, len(sources), 0)
    assert (result.beam, result.alpha, result.notes) == (beam, 0.6, ())
    assert result.bleu == BLEU().corpus_score(found, [targets]).score
    assert result.bleu_lowercase == BLEU(lowercase=True).corpus_score(found, [targets]).score
    assert result.chrf == CHRF().corpus_score(found, [targets]).score
    right = sum(one == other for one, other in zip(found, targets, strict=True))
    assert result.exact_match == pytest.approx(100 * right / len(targets))
    assert set(result.signatures) == {"bleu", "chrf"}

    total, count = 0.0, 0
    model, vocabulary = translator.model.double(), translator.vocabulary
    for source, target in zip(sources, targets, strict=True):
        ids = vocabulary.encode(source)
        labels = torch.cat([vocabulary.encode(target), torch.tensor([model.end])])
        target_in = torch.cat([torch.tensor([model.start]), labels[:-1]])
        with torch.no_grad():
            lengths = torch.tensor([len(ids)]), torch.tensor([len(labels)])
            logits = model(ids[:, None], lengths[0], target_in[:, None], lengths[1])[:, 0]
        total, count = total + F.cross_entropy(logits, labels, reduction="sum").item(), count + len(labels)
    assert result.loss == pytest.approx(total / count, rel=1e-5)


def test_evaluate_on_other_pairs(qrnn, tmp_path):
    write_pairs(tmp_path, "mine", [("c", "do"), ("ü", "DO"), (" ", "x"), ("d e" * 200, "ré")])
    ticks = []
    result = qrnn.evaluate("mine", [str(tmp_path)], lambda done, of: ticks.append((done, of)), beam=2)
    # Long pairs are left out of training alone.
    assert (result.split, result.pairs, result.unknown, ticks) == ("mine", 3, 3, [(1, 1)])
    assert result.notes == (
        "mine: 1 of 4 pairs of mine left out because a side is empty",
        "mine: 3 of 608 tokens (0.5%) are not in the vocabulary and are read as \ufffd",
    )


def test_splits_that_cannot_be_evaluated(qrnn, tmp_path):
    with pytest.raises(DataError, match="has no split 'nothing': neither train, valid or test nor the name of a file"):
        qrnn.evaluate("nothing")
    write_pairs(tmp_path, "test", [("c", "do"), ("d", "ré")])
    (tmp_path / "test.en").write_text("do\n")
    with pytest.raises(
        DataError, match=r"test\.de has 2 lines of text and .*test\.en has 1; both must have the same number"
    ):
        qrnn.evaluate("test", [str(tmp_path)])
    (tmp_path / "test.en").write_bytes(b"do\n\xff\n")
    with pytest.raises(TextError, match=r"test\.en:2: byte 1 of the line \(0xff\) is not UTF-8"):
        qrnn.evaluate("test", [str(tmp_path)])


def test_a_model_of_lower_case_reads_and_is_scored_without_regard_to_case(runs, tmp_path):
    rows = [(source.upper(), target.upper()) for source, target in paired_rows("train")]
    write_pairs(tmp_path / "pairs", "train", rows)
    train_tiny(tmp_path / "run", tmp_path / "pairs", "lowercase=yes", "epochs=1", "sample=0")
    lower = quasirnn.load(tmp_path / "run")
    assert lower.translate("C D") == lower.translate("c d")
    result = lower.evaluate("test")
    assert result.unknown == 0
    assert result.bleu == result.bleu_lowercase
    assert "case:lc" in result.signatures["bleu"]


def test_runs_that_cannot_be_loaded(runs, tmp_path):
    run = shutil.copytree(runs / "qrnn", tmp_path / "run")
    weights = quasirnn.load(run).model
    with torch.no_grad():
        weights.softmax.weight[0, 0] = float("inf")
    weights.save_pretrained(run)
    with pytest.raises(RunError, match=r"model\.safetensors: contains NaN or infinite values"):
        quasirnn.load(run)
    vocabulary = json.loads((run / "vocabulary.json").read_text())
    for role, instead in (("start", "("), ("end", ")")):
        place = vocabulary["tokens"].index(vocabulary["specials"].pop(role))
        vocabulary["tokens"][place] = instead
    (run / "vocabulary.json").write_text(json.dumps(vocabulary))
    with pytest.raises(RunError, match=r'vocabulary\.json: "specials" lacks end and start\.'):
        quasirnn.load(run)


def test_a_text_that_is_far_too_long_is_refused(qrnn, monkeypatch):
    monkeypatch.setattr("quasirnn.tasks.translation.MAX_CHARACTERS", 50)
    for use in (qrnn.translate, lambda text: list(qrnn.translate_all(["c", text]))):
        with pytest.raises(DataError, match=r"translate: a text has 51 characters, more than 50\. Give one"):
            use("c" * 51)
