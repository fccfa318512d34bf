import json
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quasirnn.data import vocabulary as vocabularies
from quasirnn.data.vocabulary import UNKNOWN_CHARACTER, Vocabulary, count_tokens

# Everything that a file can bring: all but half surrogate pairs.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WORDS = st.lists(st.lists(st.sampled_from(["a", "bc", "é", "<unk>", "\U0001f600", "d."])))


def as_text(lines: list[list[str]]) -> str:
    return "".join(" ".join(line) + "\n" for line in lines)


def test_numbers_worked_by_hand():
    """By falling frequency, then by code point; <eos> is as frequent as lines are, <unk> stands for b and Z."""
    vocabulary = Vocabulary.from_text("the a the b\nthe Z a\n", "word", min_count=2)
    assert vocabulary.tokens == ("the", "<eos>", "<unk>", "a")
    ids = vocabulary.encode("the a the b\nthe Z a\n")
    assert ids.dtype == torch.int64
    assert ids.tolist() == [0, 3, 0, 2, 1, 0, 2, 3, 1]
    assert (vocabulary.special("unknown"), vocabulary.special("end"), vocabulary.special("padding")) == (2, 1, None)


def test_order_depends_on_counts_only():
    counts = {"b": 2, "a": 2, "Z": 2, "é": 2, "c": 3}
    orders = {Vocabulary.from_counts(dict(order), "word").tokens for order in (counts.items(), [*counts.items()][::-1])}
    assert orders == {("c", "Z", "a", "b", "é", "<eos>", "<unk>")}


def test_the_unknown_word_is_kept_where_nothing_is_rare():
    vocabulary = Vocabulary.from_text("a b\n", "word")
    assert vocabulary.encode("a strange b").tolist() == [vocabulary.encode(word).item() for word in ("a", "<unk>", "b")]


def test_a_corpus_with_its_own_unknown_word_gets_no_second_one():
    vocabulary = Vocabulary.from_text("a <unk> b <unk> <unk>\n", "word")
    assert vocabulary.tokens == ("<unk>", "<eos>", "a", "b")


def test_max_size_counts_the_specials():
    vocabulary = Vocabulary.from_text("a a a b b c\n", "word", max_size=4)
    assert set(vocabulary.tokens) == {"a", "b", "<eos>", "<unk>"}
    with pytest.raises(ValueError, match=r"a vocabulary of 2 has no room .* it must have at least 3"):
        Vocabulary.from_text("a\n", "word", max_size=2)


def test_without_an_unknown_token_an_unknown_word_is_an_error():
    vocabulary = Vocabulary("word", ["a", "<eos>"], {"end": "<eos>"})
    with pytest.raises(
        ValueError, match="'b' is not one of the 2 tokens of the vocabulary, which has no unknown token"
    ):
        vocabulary.encode("a b a\n")
    with pytest.raises(ValueError, match="'b' is not one of the 1 tokens"):
        Vocabulary("character", ["a"]).encode("ab")
    with pytest.raises(ValueError, match="leaves tokens out needs an unknown token"):
        Vocabulary.from_counts({"a": 2, "b": 1}, "word", {}, min_count=2)


def test_words_with_padding_and_without_line_ends():
    vocabulary = Vocabulary.from_text("good\ngood film", "word", {"padding": "<pad>", "unknown": "<unk>"})
    assert vocabulary.tokens == ("good", "film", "<pad>", "<unk>")
    assert vocabulary.encode("good\ngood film").tolist() == [0, 0, 1]
    assert vocabulary.encode("good plot").tolist() == [0, 3]
    assert vocabulary.decode([0, 1, 2, 2]) == "good film"


def test_characters_with_specials_that_no_text_becomes():
    specials = {"padding": "<pad>", "start": "<s>", "end": "</s>", "unknown": UNKNOWN_CHARACTER}
    vocabulary = Vocabulary("character", [*specials.values(), "a", "<", "s", ">"], specials)
    assert vocabulary.encode("<s>x").tolist() == [5, 6, 7, 3]
    assert vocabulary.decode([1, 4, 3, 2, 0]) == f"a{UNKNOWN_CHARACTER}"


def test_built_of_texts_within_limits():
    notes = []
    specials = {"unknown": "<unk>", "padding": "<pad>"}
    build = {"kind": "word", "specials": specials, "notes": notes, "tokeniser": "review"}
    assert Vocabulary.build(["good, good", "Film"], **build).tokens == ("good", ",", "Film", "<pad>", "<unk>")
    assert notes == []
    rare = Vocabulary.build(["good good", "film"], **build, min_count=2)
    assert rare.tokens == ("good", "<unk>", "<pad>")
    assert Vocabulary.build(["good good", "<unk>"], **build | {"tokeniser": None}, min_count=None).tokens[0] == "good"
    assert notes == ["vocabulary: 1 of 2 words, 33.3% of the training text, are too rare and are read as <unk>"]


@pytest.mark.parametrize("kind", ["word", "character"])
@given(texts=st.lists(ANY_TEXT), lowercase=st.booleans())
def test_many_texts_at_once_are_each_by_itself(kind, texts, lowercase):
    vocabulary = Vocabulary.from_text("".join(texts), kind, lowercase=lowercase)
    assert [ids.tolist() for ids in vocabulary.encode_all(texts)] == [
        vocabulary.encode(text).tolist() for text in texts
    ]


@given(WORDS)
def test_words_there_and_back(lines):
    text = as_text(lines)
    vocabulary = Vocabulary.from_text(text, "word")
    ids = vocabulary.encode(text)
    assert len(ids) == sum(len(line) + 1 for line in lines)
    assert vocabulary.decode(ids.tolist()) == text
    assert vocabulary.decode(ids) == text


@given(ANY_TEXT)
def test_characters_there_and_back(text):
    vocabulary = Vocabulary.from_text(text, "character")
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert set(vocabulary.tokens) == {*text, UNKNOWN_CHARACTER}


@given(ANY_TEXT, ANY_TEXT)
def test_other_characters_become_unknown(known, text):
    vocabulary = Vocabulary.from_text(known, "character")
    expected = "".join(symbol if symbol in known else UNKNOWN_CHARACTER for symbol in text)
    assert vocabulary.decode(vocabulary.encode(text)) == expected


def test_half_a_character_from_a_command_line_is_unknown():
    assert Vocabulary.from_text("ab", "character").encode("a\udcff").tolist() == [0, 2]
    assert Vocabulary.from_text("a b", "word").encode("a \udcff").tolist() == [0, 3]


@pytest.mark.parametrize("kind", ["word", "character"])
@given(text=st.text("aB \n\u0085\u2028\u00a0İ"), segment=st.integers(1, 5), lowercase=st.booleans())
def test_the_size_of_segments_makes_no_difference(kind, text, segment, lowercase):
    as_read = text.lower() if lowercase else text
    whole = Counter(as_read.replace("\n", " <eos> ").split() if kind == "word" else as_read)
    vocabulary = Vocabulary.from_counts(whole, kind, lowercase=lowercase)
    ids = vocabulary.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabularies, "SEGMENT", segment)
        assert count_tokens(text, kind, lowercase) == whole
        assert torch.equal(vocabulary.encode(text), ids)


@given(WORDS)
def test_pieces_stream_out_and_join_up(lines):
    text = as_text(lines)
    vocabulary = Vocabulary.from_text(text, "word")
    ids = vocabulary.encode(text).tolist()
    pieces = vocabulary.pieces(iter(ids))
    assert len(ids) == 0 or next(pieces) in ("\n", lines[0][0] if lines[0] else "\n")
    assert "".join(vocabulary.pieces(ids)) == text


def test_pieces_continue_a_line():
    vocabulary = Vocabulary.from_text("on and off\n", "word")
    ids = vocabulary.encode("and off\non\n")
    assert list(vocabulary.pieces(ids, line_start=False)) == [" and", " off", "\n", "on", "\n"]


def test_lowercase_holds_for_all_text():
    vocabulary = Vocabulary.from_text("The the THE\n", "word", lowercase=True)
    assert vocabulary.tokens == ("the", "<eos>", "<unk>")
    assert vocabulary.encode("tHe").tolist() == [0]


def test_equal_vocabularies():
    one, other = (Vocabulary.from_text("a b\n", "word") for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Vocabulary.from_text("a b\n", "word", lowercase=True)
    assert "a" in one
    assert "c" not in one
    assert len(one) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("letter", ["a"]), "\"kind\" must be one of word, character, got 'letter'"),
        (("word", []), '"tokens" is empty'),
        (("word", ["a", "b", "a"]), "\"tokens\" contains 'a' twice, as number 0 and 2"),
        (("word", ["a b"]), "\"tokens\" number 0 must be a word without white space, got 'a b'"),
        (("word", ["a", ""]), "\"tokens\" number 1 must be a word without white space, got ''"),
        (("character", ["a", "bc"]), "\"tokens\" number 1 must be one character, got 'bc'"),
        (("word", ["a"], {"end": "b"}), '"specials" has \'b\' as end, which is not among the "tokens"'),
        (("word", ["a"], {"ending": "a"}), "\"specials\" may have the roles .*, got 'ending'"),
        (("word", ["a"], {"end": "a", "start": "a"}), '"specials" gives two roles to one token'),
    ],
)
def test_what_is_no_vocabulary(arguments, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary(*arguments)


FILE = {
    "format": 1,
    "kind": "word",
    "tokeniser": "whitespace",
    "lowercase": False,
    "specials": {"unknown": "<unk>", "end": "<eos>"},
    "tokens": ["the", "<eos>", "<unk>", "bc"],
}


def test_the_file_is_the_documented_one():
    vocabulary = Vocabulary("word", FILE["tokens"], FILE["specials"])
    assert json.loads(vocabulary.to_json()) == FILE
    assert list(json.loads(vocabulary.to_json())) == list(FILE)


@pytest.mark.parametrize("kind", ["word", "character"])
@given(text=ANY_TEXT, lowercase=st.booleans())
def test_as_json_there_and_back(kind, text, lowercase):
    vocabulary = Vocabulary.from_text(text, kind, lowercase=lowercase)
    again = Vocabulary.from_json(vocabulary.to_json())
    assert (again, again.tokens) == (vocabulary, vocabulary.tokens)


def test_through_a_file_and_a_file_cut_short(tmp_path):
    vocabulary = Vocabulary.from_text("\u2028\r\n\té\ufeff\u0000", "character")
    file = tmp_path / "vocabulary.json"
    file.write_text(vocabulary.to_json(), encoding="utf-8")
    assert Vocabulary.read(file) == vocabulary
    file.write_text(json.dumps(FILE)[:-9], encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocabulary\.json: invalid JSON: ") as caught:
        Vocabulary.read(file)
    assert str(caught.value).startswith(str(file))


VALUES = [None, True, 1, 1.0, "a", ["a"], {"a": "b"}, [["a"]], [1], {"end": 1}, ["\ud800"]]
RIGHT = [("format", int), ("lowercase", bool)]


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key in FILE for value in VALUES if (key, type(value)) not in RIGHT]
)
def test_any_other_value_is_one_line_that_names_the_key(key, value):
    with pytest.raises(ValueError, match=f'^here: (.*"{key}"|{key}: )') as caught:
        Vocabulary.from_json(json.dumps({**FILE, key: value}), "here")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "here: invalid JSON: "),
        ("[]", r"here: must be one JSON object, got \[\]"),
        ("[" * 100_000, "here: invalid JSON: "),
        ("1" * 100_000, "here: invalid JSON: "),
        *(
            (json.dumps({name: value for name, value in FILE.items() if name != key}), f"^here: {key}: missing$")
            for key in FILE
        ),
        (json.dumps({**FILE, "words": []}), "here: words: no such key; the keys are format, kind, "),
        (json.dumps({**FILE, "format": 2}), 'here: "format" must be 1, got 2. Was it written by a newer version?'),
        (
            json.dumps({**FILE, "tokeniser": "bpe"}),
            'here: "tokeniser" of this kind must be "whitespace" or "review", got \'bpe\'',
        ),
        (json.dumps({**FILE, "tokens": ["a", "a"]}), "here: \"tokens\" contains 'a' twice, as number 0 and 1"),
        (json.dumps({**FILE, "tokens": ["a" * 10_000_000] * 2}), 'here: "tokens" contains \'aaa'),
    ],
)
def test_malformed_files(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        Vocabulary.from_json(text, "here")
    assert len(str(caught.value)) < 250
