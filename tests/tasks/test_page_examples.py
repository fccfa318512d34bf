"""Texts that the page offers: only those that the served model gets right, or knows all words of."""

from types import SimpleNamespace

import pytest

from quasirnn.data import number_words
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.tasks import language_model, translation
from quasirnn.tasks.language_model import LanguageModelPipeline
from quasirnn.tasks.translation import BUILT_IN, TranslationPipeline

EVERYDAY = {
    "Ich habe heute keine Zeit.": "I don't have time today.",
    "Wo ist der Bahnhof?": "Where\u2019s the train station?",
    "Das Wetter ist schön.": "the weather is beautiful",
    "Ich verstehe dich nicht.": "I do not understand you!",
    "Eine Frau liest ein Buch.": "A woman is reading a book.",
    "Zwei Kinder spielen im Garten.": "Two kids play in a garden.",
}


def offered(translations: dict[str, str], pair: str) -> list[str]:
    """What is offered of a translator that says so, and nothing else."""

    def translate_all(texts):
        return ([SimpleNamespace(text=translations.get(text, ""))] for text in texts)

    return TranslationPipeline._examples(SimpleNamespace(translate_all=translate_all), translation.EXAMPLES[pair])


@pytest.mark.parametrize("sentence", EVERYDAY)
def test_a_right_translation_is_recognised_as_it_is_written(sentence):
    assert offered({sentence: EVERYDAY[sentence]}, "de-en") == [sentence]


def test_the_first_three_are_offered():
    assert offered(EVERYDAY, "de-en") == list(EVERYDAY)[:3]


@pytest.mark.parametrize(
    "wrong", ["", "Where is the table?", "Where is the station today?", "Is the station where?", "Wo ist der Bahnhof?"]
)
def test_a_wrong_translation_is_not_offered(wrong):
    assert offered({"Wo ist der Bahnhof?": wrong}, "de-en") == []


def test_the_built_in_corpus_has_these_translations():
    train = {german: english for part in ("train", "valid", "test") for german, english in number_words.load(part)}
    written = {german: train[german] for german in translation.EXAMPLES[BUILT_IN] if german in train}
    assert len(written) >= 4
    for german, english in written.items():
        assert offered({german: english}, BUILT_IN) == [german]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the company said of the first\n", ["the company said", "the first", ""]),
        ("He was born in the year of the Ox .\n", ["He was born in", "of the", ""]),
        ("anything else\n", [""]),
    ],
)
def test_prompts_are_in_the_vocabulary(text, expected):
    pipeline = SimpleNamespace(vocabulary=Vocabulary.from_text(text, "word"))
    assert LanguageModelPipeline._examples(pipeline, language_model.EXAMPLES["word"]) == expected
