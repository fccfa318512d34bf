import pytest

from quasirnn.data.errors import DataError
from quasirnn.data.paired_files import PairFiles
from quasirnn.data.paired_rows import read_pairs
from quasirnn.data.text_files import TextError


@pytest.fixture
def files(tmp_path):
    """Writes the two sides of pairs, or a file of both."""

    def write(source, target=None, ending="", stem="train"):
        names = [f"{stem}.tsv"] * 2 if target is None else [f"{stem}.de{ending}", f"{stem}.en{ending}"]
        for name, text in zip(names, (source, source if target is None else target), strict=True):
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return PairFiles(stem, *(tmp_path / name for name in names))

    return write


def test_lines_side_by_side(files):
    pairs = read_pairs(files("Hallo!\n  Grüß Gott \n\nkein Zeilenende", "Hi!\nHello\nnothing\n\tno line end\t"))
    assert pairs == [
        ("Hallo!", "Hi!"),
        ("Grüß Gott", "Hello"),
        ("", "nothing"),
        ("kein Zeilenende", "no line end"),
    ]


def test_guarantee_text_as_it_comes(files):
    source = b"\xef\xbb\xbfeins\r\nzw\xc2\x85ei\r\n" + "d\u2028rei\r\n".encode() + b"v\rier"
    assert [pair.source for pair in read_pairs(files(source, "one\ntwo\nthree\nfour\n"))] == [
        "eins",
        "zw\u0085ei",
        "d\u2028rei",
        "v\rier",
    ]
    with pytest.raises(TextError, match=r"train\.en:2: byte 1 of the line \(0xff\) is not UTF-8"):
        read_pairs(files("a\nb\n", b"a\n\xff\n"))
    with pytest.raises(TextError, match=r"train\.tsv:1: byte 3 of the line is NUL"):
        read_pairs(files(b"a\t\0b\n"))
    long = "x" * 5_000_000
    assert read_pairs(files(f"{long}\t{long}\nb\tc")) == [(long, long), ("b", "c")]


@pytest.mark.parametrize(("source", "target"), [("a\nb\n", "a\n"), ("a\nb\n", "a\n\n\n\n"), ("", "a\n")])
def test_other_numbers_of_lines(files, source, target):
    numbers = [text.count("\n") for text in (source, target)]
    message = rf"train\.de has {numbers[0]} lines of text and .*train\.en has {numbers[1]}; both must have as many"
    with pytest.raises(DataError, match=message):
        read_pairs(files(source, target))


def test_xml(files):
    def xml(*segments):
        return "<mteval><doc>" + "".join(f"<seg> {text} </seg>\n" for text in segments) + "</doc></mteval>"

    assert read_pairs(files(xml("A &amp; B", ""), xml("C", "D"), ".xml")) == [("A & B", "C"), ("", "D")]
    with pytest.raises(DataError, match=r"train\.de\.xml has 1 segments and .*train\.en\.xml has 2"):
        read_pairs(files(xml("A"), xml("C", "D"), ".xml"))


def test_tagged_lines(files):
    source = "<url>x</url>\n<title>x</title>\nEins\nZwei &amp; drei\n<reviewer></reviewer>\n"
    target = "<url>x</url>\n<title>x</title>\n<translator>y</translator>\nOne\nTwo & three\n"
    assert read_pairs(files(source, target, stem="train.tags.de-en")) == [
        ("Eins", "One"),
        ("Zwei & drei", "Two & three"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "eins\tone\nzwei \t two\n",
        "source\ttarget\neins\tone\n\nzwei\ttwo",
        "id\tTarget\tSource\n1\tone\teins\n2\ttwo\tzwei\n",
        "EN\tDE\r\none\teins\r\ntwo\tzwei\r\n",
    ],
)
def test_columns(files, text):
    assert read_pairs(files(text)) == [("eins", "one"), ("zwei", "two")]


def test_a_word_for_it_is_no_header(files):
    assert read_pairs(files("Quelle\tsource\nZiel\ttarget\n")) == [("Quelle", "source"), ("Ziel", "target")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eins\tone\nzwei\n", r":2: expected 2 columns, source and target, got 1\. Is a tab missing\?"),
        (
            "eins\tone\t\n",
            r":1: expected 2 columns, .* got 3\. Is there a tab inside of a sentence\? If there are other",
        ),
        ("source\ttarget\tid\na\tb\n", r":2: expected 3 columns, as the first row, got 2\. Is a tab missing\?"),
        ("", ":1: no pair of sentences in it. Was it copied whole?"),
        ("source\ttarget\n", ":1: no pair of sentences in it"),
    ],
)
def test_rows_that_cannot_be_used(files, text, message):
    with pytest.raises(TextError, match=message):
        read_pairs(files(text))


def test_empty_files(files):
    with pytest.raises(TextError, match=r"train\.de:1: no pair of sentences in it"):
        read_pairs(files("", ""))
