"""Work on text can be ended from outside: between batches and between steps; and a reading can be gone on with."""

import pytest

import quasirnn
from quasirnn.tasks import sentiment as sentiment_text
from tasks import tiny_sentiment, tiny_translation


class Enough(Exception):
    """What ends it."""


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentiment")
    tiny_sentiment.train_tiny(folder / "run", tiny_sentiment.write_labelled(folder / "texts"), "max_steps=1")
    return quasirnn.load(folder / "run")


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translation")
    tiny_translation.train_tiny(folder / "run", tiny_translation.write_paired(folder / "pairs"), "max_steps=1")
    return quasirnn.load(folder / "run")


def test_texts_are_classified_batch_by_batch(sentiment):
    ticks = []
    found = list(sentiment.classify_all(["film"] * 5, batch_size=2, tick=lambda done, of: ticks.append((done, of))))
    assert len(found) == 5
    assert ticks == [(1, 3), (2, 3), (3, 3)]


def test_a_text_that_no_batch_has_room_for_is_read_piece_by_piece(sentiment, monkeypatch):
    monkeypatch.setattr(sentiment_text, "EVALUATION_TOKENS", 4)
    ticks = []
    list(sentiment.classify_all(["film " * 10], tick=lambda done, of: ticks.append((done, of))))
    assert ticks == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("last", [1, 2])
def test_classification_ends_at_the_batch_that_is_told_to(sentiment, last):
    def tick(done, of):
        if done == last:
            raise Enough
        assert done < last

    with pytest.raises(Enough):
        list(sentiment.classify_all(["film"] * 5, batch_size=2, tick=tick))


@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_ends_at_the_step_that_is_told_to(translator, beam):
    steps = []

    def each_step():
        steps.append(len(steps))
        if len(steps) == 4:
            raise Enough

    with pytest.raises(Enough):
        translator.decoder.translate(["c d e"], beam=beam, each_step=each_step)
    assert len(steps) == 4


def test_a_reading_is_gone_on_with_by_another_reader(sentiment):
    first = sentiment.reader()
    first.read("the film is")
    other = sentiment.reader(first.reading)
    assert other.read("great") == first.read("great")
    assert other.reading.count == 4
