"""The built-in reviews: what the demo relies on. What baselines make of them is in models/test_bag_of_words.py."""

import hashlib
import re
from collections import Counter

import pytest

from quasirnn.data import review_grammar as grammar
from quasirnn.data.plain_sentences import EXPECTED, KEPT_OUT, bare
from quasirnn.data.reviews import CLASSES, LENGTHS, SIZES, load, reviews, sentences
from quasirnn.data.vocabulary import tokenise_review as tokenise


@pytest.fixture(scope="module")
def parts():
    return load()


def test_sizes_and_balance(parts):
    assert {part: len(each) for part, each in parts.items()} == SIZES
    for part, each in parts.items():
        assert set(Counter(review.label for review in each).values()) == {SIZES[part] // 2}
        plain = [review for review in each if len(review.text.split()) not in LENGTHS]
        assert 0.3 < len(plain) / len(each) < 0.5
        assert max(len(review.text.split()) for review in each) < LENGTHS.stop


def test_no_held_out_sentence_occurs_in_training(parts):
    by_part = [{sentence for review in each for sentence in sentences(review.text)} for each in parts.values()]
    train, valid, test = by_part
    assert not train & valid
    assert not train & test
    assert not valid & test
    for each in parts.values():
        # Set phrases, as "a waste of time", come again; longer reviews hardly ever do.
        texts = Counter(review.text for review in each if len(review.text.split()) in LENGTHS)
        assert len(texts) > 0.99 * texts.total()
        assert len({review.text for review in each}) > 0.9 * len(each)


def test_the_sentences_for_testing_are_in_no_part(parts):
    assert len(EXPECTED) == len(KEPT_OUT) == 60
    written = {bare(sentence) for each in parts.values() for review in each for sentence in sentences(review.text)}
    assert not written & KEPT_OUT


def test_at_least_300_words_and_all_of_them_in_training(parts):
    words = {
        part: {token for review in each for token in tokenise(review.text, lowercase=True) if token.isalpha()}
        for part, each in parts.items()
    }
    assert len(words["train"]) >= 300
    assert words["valid"] | words["test"] <= words["train"]


def test_the_same_everywhere():
    """Worked out once: neither the machine nor the release of Python may change a letter."""
    small = load(sizes={"train": 200, "valid": 20, "test": 20})
    text = "".join(f"{review.label}\t{review.text}\n" for each in small.values() for review in each)
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "8b1d4c0b76242ceaf30b6e151d40e9a88c0eac98a85e219b7639ba3b4584342d"
    )


def test_seeds_differ_and_sizes_do_not_matter():
    one, other = load(seed=1, sizes={"test": 20}), load(seed=2, sizes={"test": 20})
    assert one != other
    assert load(seed=1, sizes={"test": 10})["test"] == one["test"][:10]


def test_every_sentence_is_whole(parts):
    """Capital letter, full stop, no place left open, no doubled space, a before consonants and an before vowels.

    Plain ones may end in another way.
    """
    sentence = re.compile(r"[A-Z][A-Za-z',; ]*[.!]?")
    for review in parts["train"]:
        for each in sentences(review.text):
            assert sentence.fullmatch(each), each
            assert "  " not in each
            assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", each, re.IGNORECASE), each


def test_the_words_in_the_places_are_all_there():
    """Every place of every sentence has words for every kind of work."""
    opinions = {"word", "other", "thing", "do", "did", "felt", "kind"}
    opinions |= {f"{side}{ending}" for side in ("mine", "theirs") for ending in ("", "_do", "_did", "_felt")}
    templates = [*grammar.SHARED, *grammar.DENIED, *grammar.CONTRASTS, *grammar.ASIDES]
    templates += [*grammar.PLAIN_SHARED, *grammar.PLAIN_DENIED, *grammar.PLAIN_CONTRASTS]
    verdicts = [*grammar.VERDICTS.values(), *grammar.PLAIN_VERDICTS.values()]
    templates += [template for each in verdicts for template in each]
    assert len(templates) == len(set(templates))
    for kind in grammar.KINDS.values():
        known = opinions | kind.keys() | grammar.LISTS.keys() | {"person2"}
        for template in templates:
            assert set(re.findall(r"\{(\w+)\}", template)) <= known, template


def test_praise_and_blame_are_as_frequent_in_both_classes(parts):
    """Or a bag of words could tell them apart: contrasts have both, and most of the rest is shared or denied."""
    for words in grammar.WORDS.values():
        found = Counter()
        for review in parts["train"]:
            found[review.label] += sum(token in words.adjectives for token in tokenise(review.text))
        assert 0.4 < found["pos"] / found.total() < 0.6


def test_reviews_go_on_without_end():
    endless = reviews("train", seed=3)
    labels = [next(endless).label for _ in range(10)]
    assert all(set(labels[first : first + 2]) == set(CLASSES) for first in range(0, 10, 2))
