"""IMDb and GloVe, where they are: QUASIRNN_DATA names the folder that holds imdb/ or aclImdb/, and the vectors."""

import os
from collections import Counter
from pathlib import Path

import pytest
from quasirnn.data.labelled_corpus import load
from quasirnn.data.length_batches import EvaluationBatches, LengthBatches

from quasirnn.data import labelled_texts, word_vectors

DATA = os.environ.get("QUASIRNN_DATA")
VECTORS = "glove.6B.100d.imdb.npz"


def there(*names: str) -> Path:
    """The first of the names that is in the folder."""
    if not DATA:
        pytest.skip("QUASIRNN_DATA, the folder of the corpora, is not set")
    found = [Path(DATA) / name for name in names if (Path(DATA) / name).exists()]
    if not found:
        pytest.skip(f"QUASIRNN_DATA has no {' or '.join(names)}")
    return found[0]


@pytest.fixture(scope="module")
def imdb():
    return load([there("imdb", "aclImdb")])


@pytest.mark.full
def test_counts(imdb):
    assert (imdb.name, imdb.classes, imdb.published) == ("imdb", ("neg", "pos"), True)
    assert {name: split.counts.by_class for name, split in imdb.splits.items()} == {
        "train": {"neg": 11_250, "pos": 11_250},
        "valid": {"neg": 1_250, "pos": 1_250},
        "test": {"neg": 12_500, "pos": 12_500},
    }
    assert imdb.splits["test"].counts.distinct == 24_801
    # With the tokeniser of this project.
    assert imdb.splits["train"].tokens + imdb.splits["valid"].tokens == 6_820_230
    assert imdb.splits["test"].tokens == 6_665_442
    assert {name: split.longest for name, split in imdb.splits.items()}["test"] == 2_641


@pytest.mark.full
def test_repeats():
    texts = labelled_texts.read([there("imdb", "aclImdb")])
    train = Counter(texts.parts["train"].texts) + Counter(texts.parts["valid"].texts)
    assert (train.total(), len(train)) == (25_000, 24_904)
    assert len(train.keys() & set(texts.parts["test"].texts)) == 123
    assert not set(texts.parts["train"].texts) & set(texts.parts["valid"].texts)


@pytest.mark.full
def test_little_is_padding(imdb):
    train, padding = imdb.splits["train"], imdb.vocabulary.special("padding")
    assert LengthBatches(train.ids, train.labels, 24, padding=padding).waste() < 0.03
    assert EvaluationBatches(imdb.splits["test"].ids, batch_size=64, padding=padding).waste() < 0.02


@pytest.mark.full
def test_vectors(imdb):
    vectors = word_vectors.load(there(VECTORS), imdb.vocabulary, token_counts=imdb.token_counts())
    assert vectors.uncased
    assert vectors.vectors.shape == (len(imdb.vocabulary), 100)
    assert vectors.distinct > 0.93
    assert vectors.running > 0.92
