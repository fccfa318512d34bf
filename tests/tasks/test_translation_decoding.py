"""Texts to translations: scores worked out anew, the same alone and in a batch, nothing of padding, long texts."""

import copy
import math

import pytest
import torch

import quasirnn
from models.exhaustive_search import factor
from quasirnn.models import greedy
from quasirnn.models.translator_decoder import Decoding
from quasirnn.tasks import translation as translation_decoding
from quasirnn.tasks.settings import CELLS
from quasirnn.tasks.translation import Decoder, pieces
from tasks.tiny_translation import paired_rows, train_runs

# Of very different lengths, in no order; one of nothing that the model knows.
TEXTS = ["g", "c d e f g h c", "h g", "ü", *(source for source, _ in paired_rows("test")[:6])]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp() / "translation")


@pytest.fixture(scope="module", params=CELLS)
def translator(request, runs):
    """In double: then rounding decides nothing."""
    loaded = quasirnn.load(runs / request.param)
    loaded.model.double()
    return loaded


@pytest.fixture
def qrnn(runs):
    return quasirnn.load(runs / "qrnn").decoder


@pytest.fixture
def own(translator):
    """One whose weights may be changed."""
    return Decoder(copy.deepcopy(translator.model), translator.vocabulary)


def values(found):
    return [[(each.text, each.finished, pytest.approx(each.score, rel=1e-9)) for each in best] for best in found]


def log_probability(decoder: Decoder, source: str, target: str, finished: bool) -> tuple[float, int]:
    """Of a target and its end mark, from the whole of it at once, over what may be put out; and how many terms."""
    model, vocabulary = decoder.model, decoder.vocabulary
    ids, written = vocabulary.encode(source), vocabulary.encode(target) if target else torch.empty(0, dtype=torch.long)
    labels = torch.cat([written, torch.tensor([model.end])]) if finished else written
    target_in = torch.cat([torch.tensor([model.start]), labels[:-1]])
    with torch.no_grad():
        lengths = torch.tensor([len(ids)]), torch.tensor([len(labels)])
        logits = model(ids[:, None], lengths[0], target_in[:, None], lengths[1])[:, 0]
    return logits.log_softmax(1).gather(1, labels[:, None]).sum().item(), len(labels)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_every_score_is_the_papers_for_what_was_written(translator, alpha):
    """T counts the end mark, and the target length is the source's and five (paper, appendix)."""
    decoder = translator.decoder
    found = decoder.translate(TEXTS, beam=5, n_best=5, alpha=alpha)
    assert [len(best) for best in found] == [5] * len(TEXTS)
    assert len({best[0].text for best in found}) >= 5
    for source, best in zip(TEXTS, found, strict=True):
        finished = [each.score for each in best if each.finished]
        assert finished == sorted(finished, reverse=True)
        assert [each.finished for each in best] == sorted((each.finished for each in best), reverse=True)
        for each in best:
            expected, terms = log_probability(decoder, source, each.text, each.finished)
            assert each.log_probability == pytest.approx(expected, rel=1e-9)
            assert each.score == pytest.approx(factor(terms, len(source) + 5, alpha) * expected, rel=1e-9)


def test_alpha_prefers_longer_translations(qrnn):
    short, long = ([best[0].text for best in qrnn.translate(TEXTS, alpha=alpha)] for alpha in (0.0, 3.0))
    assert sum(map(len, short)) < sum(map(len, long))


def test_guarantee_padding_a_text_alone_and_in_a_batch_of_32_is_the_same(translator):
    texts = (TEXTS * 4)[:32]
    assert len({len(text) for text in texts}) >= 5
    together = translator.decoder.translate(texts, n_best=3)
    alone = [translator.decoder.translate([text], n_best=3)[0] for text in TEXTS]
    assert values(together) == values((alone * 4)[:32])


@pytest.mark.parametrize(("batch_size", "characters"), [(1, 8192), (3, 8192), (32, 20), (32, 1)])
def test_the_order_of_the_texts_whatever_is_decoded_side_by_side(qrnn, monkeypatch, batch_size, characters):
    expected = [best[0].text for best in qrnn.translate(TEXTS, beam=2)]
    monkeypatch.setattr(translation_decoding, "BATCH_CHARACTERS", characters)
    ticks = []
    found = qrnn.translate(TEXTS, beam=2, batch_size=batch_size, tick=lambda done, of: ticks.append((done, of)))
    assert [best[0].text for best in found] == expected
    assert ticks == [(done, len(ticks)) for done in range(1, len(ticks) + 1)]
    assert len(ticks) >= math.ceil(len(TEXTS) / batch_size)
    assert len(ticks) == len(TEXTS) or characters > 1


def test_guarantee_padding_of_another_symbol_or_of_nan_changes_nothing(translator, own):
    expected = values(translator.decoder.translate(TEXTS, beam=3, n_best=2))
    with torch.no_grad():
        own.model.embedding.weight[own.model.padding] = float("nan")
    assert values(own.translate(TEXTS, beam=3, n_best=2)) == expected
    # Short rows are now filled up with a letter that the model knows well.
    own.model.padding = translator.vocabulary.encode("c").item()
    assert values(own.translate(TEXTS, beam=3, n_best=2)) == expected


def test_a_beam_of_1_is_the_likeliest_character_at_every_step(translator):
    decoder, model = translator.decoder, translator.model
    never = [translator.vocabulary.special(role) for role in ("padding", "start", "unknown")]

    def step(tokens, decoding):
        log_probabilities, decoding, _ = model.advance(tokens, decoding)
        log_probabilities[:, never] = float("-inf")
        return log_probabilities, decoding, None

    for text in TEXTS[:5]:
        ids = translator.vocabulary.encode(text)
        with torch.no_grad():
            decoding = model.decoding(ids[:, None], torch.tensor([len(ids)]))
        (expected,) = greedy(
            step,
            decoding,
            1,
            start=model.start,
            end=model.end,
            max_lengths=3 * len(text) + 50,
            select=Decoding.rows,
        )
        ((found,),) = decoder.translate([text], beam=1)
        assert found.text == translator.vocabulary.decode(expected.tokens)
        assert found.log_probability == pytest.approx(expected.log_probability, rel=1e-9)


def test_a_wider_beam_finds_no_worse(qrnn):
    for alpha in (0.0, 0.6):
        narrow, wide = (qrnn.translate(TEXTS, beam=beam, alpha=alpha) for beam in (1, 16))
        gains = [best[0].score - first[0].score for first, best in zip(narrow, wide, strict=True)]
        assert sum(gains) > 0


def test_marks_and_the_unknown_character_are_never_put_out(own):
    never = [own.vocabulary.special(role) for role in ("padding", "start", "unknown")]
    with torch.no_grad():
        own.model.softmax.bias[never] = 100.0
    found = own.translate(TEXTS[:6], beam=4, n_best=4)
    ids = [own.vocabulary.encode(each.text) for best in found for each in best if each.text]
    assert ids
    assert not set(torch.cat(ids).tolist()) & {*never, own.model.end}


def test_what_never_ends_is_cut_off_at_three_times_the_source_and_fifty(own):
    with torch.no_grad():
        own.model.softmax.bias[own.model.end] = -1e4
    for beam in (1, 3):
        found = own.translate(["g", "c d e f"], beam=beam)
        assert [len(best[0].text) for best in found] == [3 * 1 + 50, 3 * 7 + 50]
        assert not any(best[0].finished for best in found)


def test_what_ends_at_once_is_an_empty_translation(own):
    with torch.no_grad():
        own.model.softmax.bias[own.model.end] = 1e4
    assert [(best[0].text, best[0].finished) for best in own.translate(TEXTS, beam=4)] == [("", True)] * len(TEXTS)


def test_attention_is_that_of_the_steps_over_the_characters_of_the_source(translator):
    model = translator.model
    found = translator.decoder.translate(TEXTS, beam=4, n_best=2, attention=True)
    for source, best in zip(TEXTS, found, strict=True):
        ids = translator.vocabulary.encode(source)
        for each in best:
            with torch.no_grad():
                decoding = model.decoding(ids[:, None], torch.tensor([len(ids)]))
                written = translator.vocabulary.encode(each.text).tolist() if each.text else []
                taken = [model.start, *written] if each.finished else [model.start, *written[:-1]]
                expected = []
                for token in taken:
                    _, decoding, weights = model.advance(torch.tensor([token]), decoding)
                    expected.append(weights[0])
            assert each.attention.shape == (len(each.text) + each.finished, len(source))
            torch.testing.assert_close(each.attention, torch.stack(expected).float(), rtol=0, atol=1e-6)
            torch.testing.assert_close(each.attention.sum(1), torch.ones(len(taken)))
    assert translator.decoder.translate(TEXTS[:1])[0][0].attention is None


def test_each_step_is_reported_and_may_end_the_search(translator):
    class Enough(Exception):
        pass

    steps = 0

    def each_step():
        nonlocal steps
        steps += 1
        if steps == 3:
            raise Enough

    with pytest.raises(Enough):
        translator.decoder.translate(TEXTS, each_step=each_step)
    assert steps == 3


def test_no_text_at_all(translator):
    assert translator.decoder.translate([]) == []


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        ("One. Two three.", 99, ["One. Two three."]),
        ("One. Two three.", 15, ["One. Two three."]),
        ("One. Two three.", 14, ["One.", "Two three."]),
        ("One? Two! Three: four; five… six", 12, ["One? Two!", "Three: four;", "five… six"]),
        # No end of a sentence: at spaces.
        ("one two three four", 9, ["one two", "three", "four"]),
        # No space: anywhere.
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("ab cdefgh", 3, ["ab", "cde", "fgh"]),
        # No piece is blank, and none begins with a space.
        ("a" + " " * 9 + "b", 4, ["a", "b"]),
        (" " * 9 + "b", 4, ["b"]),
        ("One.  Two. ", 5, ["One.", "Two."]),
        # A point inside of a number or a word is no end.
        ("3.5 and a.b", 7, ["3.5 and", "a.b"]),
    ],
)
def test_pieces_by_hand(text, longest, expected):
    found = [piece.rstrip(" ") for piece in pieces(text, longest)]
    assert found == expected
    assert all(piece.strip() and len(piece) <= longest for piece in pieces(text, longest))


def test_pieces_of_any_text_hold_all_of_it():
    draw = torch.Generator().manual_seed(5)
    letters = "ab .!? c"
    for _ in range(200):
        numbers = torch.randint(len(letters), (60,), generator=draw).tolist()
        text = "x" + "".join(letters[number] for number in numbers)
        for longest in (1, 7, 20, 61):
            found = pieces(text, longest)
            assert "".join(found).replace(" ", "") == text.replace(" ", "")
            assert all(piece.strip() and len(piece) <= longest for piece in found), (text, longest)
