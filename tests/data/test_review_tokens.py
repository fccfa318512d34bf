"""The rules of the tokeniser, one by one, and what holds for any text."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quasirnn.data import vocabulary as vocabularies
from quasirnn.data.vocabulary import Vocabulary, is_blank, without_breaks
from quasirnn.data.vocabulary import tokenise_review as tokenise
from quasirnn.tasks.sentiment import SPECIALS

CASES = {
    "breaks in any spelling": ("a<br />b<br>c<BR/>d< br / >e</br>f<br\n/>g", "a b c d e f g"),
    "other tags are text": ("<i>so</i> <brave>", "< i > so < / i > < brave >"),
    "marks": ("Well, (really): yes!?", "Well , ( really ) : yes ! ?"),
    "negation": ("don't can't won't DIDN'T", "do n't ca n't wo n't DID N'T"),
    "other clitics": ("it's I've we're you'll he'd I'm", "it 's I 've we 're you 'll he 'd I 'm"),
    "clitics upon clitics": ("I'd've couldn't've", "I 'd 've could n't 've"),
    "clitics in capitals": ("IT'S WE'LL", "IT 'S WE 'LL"),
    "clitics already split": ("do n't it 's we 'll", "do n't it 's we 'll"),
    "apostrophes that are typed otherwise": ("don\u2019t it\u00b4s I`m we\u0092re", "do n't it 's I 'm we 're"),
    "apostrophes inside of words": ("O'Neill ma'am rock'n'roll", "O'Neill ma'am rock'n'roll"),
    "quotation marks": ("'good' the '90s boys' \"so\"", "' good ' the ' 90s boys ' \" so \""),
    "numbers": ("1,000 3.5 10/10 7:30 1990s 4/10.", "1,000 3.5 10/10 7:30 1990s 4/10 ."),
    "marks beside numbers": ("a.b 3.x .5 3, 4", "a . b 3 . x . 5 3 , 4"),
    "runs of full stops and hyphens": ("so.. so..... yes--no ---- \u2026", "so ... so ... yes -- no -- ..."),
    "compounds": ("well-made _Alien_", "well - made _ Alien _"),
    "accents, composed or not": ("caf\u00e9 cafe\u0301", "caf\u00e9 cafe\u0301"),
    "other scripts": ("\u043d\u0435\u0442, \u0928\u092e\u0938\u094d\u0924\u0947!", "нет , नमस्ते !"),
    "signs with their variants": ("\u2764\ufe0f\U0001f600", "\u2764\ufe0f \U0001f600"),
    "white space of any kind": ("a\u0085b\u00a0c\u2028d\te\nf", "a b c d e f"),
    "nothing": ("<br /> \n", ""),
}

# What the rules are about, and a little of everything else; no break can come about by taking another away.
PIECES = [*"aNnTt'sd.,/-12_ \n\u0301\u2019\u0130\u2764\ufe0f", "n't", "'ve", "..", "\ud800"]
TRICKY = st.lists(st.sampled_from(PIECES)).map("".join)
ANY_TEXT = st.text() | TRICKY


@pytest.mark.parametrize("case", CASES)
def test_rules(case):
    text, expected = CASES[case]
    assert tokenise(text) == expected.split()


def test_lower_case():
    assert tokenise("I DIDN'T") == ["I", "DID", "N'T"]
    assert tokenise("I DIDN'T<BR>", lowercase=True) == ["i", "did", "n't"]


@given(ANY_TEXT)
def test_tokens_are_words_without_white_space(text):
    found = tokenise(text)
    assert all(token.split() == [token] for token in found)
    assert (found == []) == is_blank(text)
    assert tokenise(text) == found


@given(st.text(st.characters(exclude_characters="\u2026.-<\u2019\u00b4`\u0092\u02bc")))
def test_nothing_is_lost(text):
    assert "".join(tokenise(text)) == "".join(text.split())


@given(ANY_TEXT.filter(lambda text: "<" not in text))
def test_tokens_are_read_as_themselves(text):
    found = tokenise(text)
    assert tokenise(" ".join(found)) == found


@given(TRICKY, st.integers(1, 5), st.booleans())
def test_a_vocabulary_reads_long_texts_in_segments(text, segment, lowercase):
    text = text.replace("\ud800", "<br />")
    vocabulary = Vocabulary.from_counts(
        Counter(tokenise(text, lowercase)), "word", SPECIALS, lowercase=lowercase, tokeniser="review"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabularies, "SEGMENT", segment)
        assert vocabulary.tokenise(text) == tokenise(text, lowercase)
        ids = vocabulary.encode(text)
    assert [vocabulary.tokens[number] for number in ids] == tokenise(text, lowercase)
    assert vocabulary.special("unknown") not in ids


def test_a_vocabulary_keeps_its_tokeniser_in_its_file():
    vocabulary = Vocabulary.from_counts({"was": 1, "n't": 1}, "word", SPECIALS, tokeniser="review")
    again = Vocabulary.from_json(vocabulary.to_json())
    assert again == vocabulary
    assert again != Vocabulary("word", vocabulary.tokens, SPECIALS)
    assert again.encode("Wasn't was<br />").tolist() == [
        vocabulary.encode(each).item() for each in ("Was", "n't", "was")
    ]
    assert again.decode(again.encode("wasn't")) == "was n't"
    with pytest.raises(ValueError, match='"tokeniser" of this kind must be "character", got \'review\''):
        Vocabulary("character", ["a"], tokeniser="review")


HOSTILE = ["a's", "1.1", "<br ", "< ", "'", "a'", "n't", "'s's", "\u0301", "\u2764\u0301", "._", "-", "a", "1/1a", " "]


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_is_linear_in_the_length(piece):
    """A million characters that look like the beginning of something: if it were quadratic, this would not end."""
    text = "<br" + piece * (1_000_000 // len(piece))
    found = tokenise(text)
    assert found[0] == "<"
    assert sum(map(len, found)) <= len(text)


def test_breaks_alone():
    assert without_breaks("no < break") == "no < break"
    assert is_blank(" <br/>\n<br />\u0085")
    assert not is_blank("<br/>.")
