import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quasirnn.data.vocabulary import Vocabulary

GOOD = {
    "format": 1,
    "kind": "word",
    "tokeniser": "whitespace",
    "lowercase": False,
    "specials": {"unknown": "<unk>", "end": "<eos>"},
    "tokens": ["the", "<eos>", "<unk>", "bc"],
}


def test_the_form_is_the_documented_one():
    vocabulary = Vocabulary("word", GOOD["tokens"], GOOD["specials"])
    assert json.loads(vocabulary.to_json()) == GOOD
    assert list(json.loads(vocabulary.to_json())) == list(GOOD)


@pytest.mark.parametrize("kind", ["word", "character"])
@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])), lowercase=st.booleans())
def test_there_and_back(kind, text, lowercase):
    vocabulary = Vocabulary.from_text(text, kind, lowercase=lowercase)
    again = Vocabulary.from_json(vocabulary.to_json())
    assert again == vocabulary
    assert again.tokens == vocabulary.tokens


def test_through_a_file(tmp_path):
    vocabulary = Vocabulary.from_text("\u2028\r\n\té\ufeff\u0000", "character")
    file = tmp_path / "vocabulary.json"
    file.write_text(vocabulary.to_json(), encoding="utf-8")
    assert Vocabulary.read(file) == vocabulary


def test_a_file_cut_short_names_itself(tmp_path):
    file = tmp_path / "vocabulary.json"
    file.write_text(json.dumps(GOOD)[:-9], encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocabulary\.json: not JSON: ") as caught:
        Vocabulary.read(file)
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize("key", GOOD)
def test_every_key_is_needed(key):
    with pytest.raises(ValueError, match=f'^here: the key "{key}" is missing$'):
        Vocabulary.from_json(json.dumps({name: value for name, value in GOOD.items() if name != key}), "here")


VALUES = [None, True, 1, 1.0, "a", ["a"], {"a": "b"}, [["a"]], [1], {"end": 1}, ["\ud800"]]
WRONG = [
    (key, value) for key in GOOD for value in VALUES if (key, type(value)) not in [("format", int), ("lowercase", bool)]
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_any_other_value_is_one_line_that_names_the_key(key, value):
    with pytest.raises(ValueError, match=f'^here: .*"{key}"') as caught:
        Vocabulary.from_json(json.dumps({**GOOD, key: value}), "here")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "here: not JSON: "),
        ("[]", "here: must be a JSON object, got list"),
        ("[" * 100_000, "here: not JSON: "),
        ("1" * 100_000, "here: not JSON: "),
        (json.dumps({**GOOD, "words": []}), "here: 'words' is not a key of a vocabulary; those are format, kind, "),
        (json.dumps({**GOOD, "format": 2}), 'here: "format" must be 1, got 2. Was it written by a later release?'),
        (
            json.dumps({**GOOD, "tokeniser": "bpe"}),
            'here: "tokeniser" of this kind must be "whitespace" or "review", got \'bpe\'',
        ),
        (json.dumps({**GOOD, "tokens": ["a", "a"]}), 'here: "tokens" holds \'a\' twice|here: "tokens" '),
        (json.dumps({**GOOD, "tokens": ["a" * 10_000_000] * 2}), 'here: "tokens" holds \'aaa'),
    ],
)
def test_malformed_files(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        Vocabulary.from_json(text, "here")
    assert len(str(caught.value)) < 250
