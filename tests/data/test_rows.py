import csv
import io
import json
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.shapes import LABELLED, PAIRED, RUNNING, jsonl, sides, tsv
from quasirnn.data.corpus import Columns
from quasirnn.data.rows import read_rows
from quasirnn.data.sources import Source, value_folders
from quasirnn.errors import DataError, TextError


def rows_of(path, columns=LABELLED):
    return [values for values, _ in read_rows(Source(path.stem, (path,)), columns)]


# What is read as a good and a bad review, whatever the form.
FORMS = {
    "two.tsv": "pos\tvery good\nneg\tbad\n",
    "no line end.tsv": "pos\tvery good\nneg\tbad",
    "blank lines.tsv": "pos\tvery good\n\n\nneg\tbad\n\n",
    "spaces around labels.tsv": " pos \tvery good\nneg\tbad\n",
    "CRLF.tsv": "pos\tvery good\r\nneg\tbad\r\n",
    "byte order mark.tsv": "\ufeffpos\tvery good\nneg\tbad\n",
    "named.tsv": "id\tText\tLABEL\n1\tvery good\tpos\n2\tbad\tneg\n",
    "named in order.tsv": "label\ttext\npos\tvery good\nneg\tbad\n",
    "named with a byte order mark.csv": "\ufefftext,label\nvery good,pos\nbad,neg\n",
    "two.csv": 'pos,very good\n"neg","bad"\n',
    "named.csv": '"text",rating,"label"\nvery good,9,pos\n"bad",1,neg\n',
    "upper case.CSV": "pos,very good\nneg,bad\n",
    "lines.jsonl": '{"label": "pos", "text": "very good"}\n\n{"text": "bad", "id": [1], "label": "neg"}\n',
    "imdb.train.tsv": "1\t9\t0\tvery good\n0\t1\t7\tbad\n",
    # Other names of the columns, in any order; their own names go first.
    **{f"{name}.csv": f"review,id,{name}\nvery good,1,pos\nbad,2,neg\n" for name in ("sentiment", "Class", "category")},
    **{f"{name}.tsv": f"target\t{name}\npos\tvery good\nneg\tbad\n" for name in ("review", "content", "Sentence")},
    "both names.csv": "review,text,class,label\n1,very good,2,pos\n3,bad,4,neg\n",
    "other keys.jsonl": jsonl([{"review": "very good", "sentiment": "pos"}, {"class": "neg", "sentence": "bad"}]),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name, write):
    assert rows_of(write({name: FORMS[name]}) / name) == [("pos", "very good"), ("neg", "bad")]


@pytest.mark.parametrize("first", ["1", "3"])
def test_columns_by_number_where_a_label_is_one_of_the_numbers(first, write):
    """AG News has classes 1 to 4 in its first column and the text in its third."""
    path = write({"a.csv": f'"{first}","A title","very good"\n"4","Another","bad"\n'}) / "a.csv"
    assert rows_of(path, replace(LABELLED, named={"label": "1", "text": "3"})) == [(first, "very good"), ("4", "bad")]


def test_columns_whose_names_are_numbers(write):
    path = write({"a.csv": "0,1,2\n7,pos,very good\n8,neg,bad\n"}) / "a.csv"
    assert rows_of(path, replace(LABELLED, named={"label": "1", "text": "2"})) == [("pos", "very good"), ("neg", "bad")]


def test_one_number_for_two_columns_is_refused(write):
    path = write({"a.tsv": "pos\tvery good\nneg\tbad\n"}) / "a.tsv"
    with pytest.raises(TextError, match=r"a\.tsv:1: label=2 text=2: one column cannot be both"):
        rows_of(path, replace(LABELLED, named={"label": "2", "text": "2"}))


def test_one_key_for_two_columns_is_refused(write):
    path = write({"a.jsonl": jsonl([{"x": "pos", "y": "very good"}])}) / "a.jsonl"
    with pytest.raises(TextError, match=r"a\.jsonl:1: label and text are the same key, 'x'"):
        rows_of(path, replace(LABELLED, named={"label": "x", "text": "x"}))


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.csv", "text,label,text\nvery good,pos,7\nbad,neg,8\n", "'text' and 'text'"),
        ("a.jsonl", '{"label": "pos", "Text": "VERY GOOD", "text": "very good"}\n', "'Text' and 'text'"),
    ],
)
def test_two_columns_of_one_name_are_not_guessed_at(write, name, text, what):
    with pytest.raises(TextError, match=rf"{name}:1: 2 columns could be the text: {what}\. Rename or remove one"):
        rows_of(write({name: text}) / name)


def test_semicolons_where_a_name_has_a_comma(write):
    path = write({"a.csv": "what, in full;stars\nvery good;pos\nbad;neg\n"}) / "a.csv"
    named = {"label": "stars", "text": "what, in full"}
    assert rows_of(path, replace(LABELLED, named=named)) == [("pos", "very good"), ("neg", "bad")]


# Name: text, line, and what is said.
ERRORS = {
    "missing label.tsv": ("pos\tgood\n\tbad\n", 2, "the label is empty. Remove the row?"),
    "missing label.csv": ("label,text\n,bad\n", 2, "the label is empty"),
    "missing label.jsonl": ('{"text": "bad"}\n', 1, "the label is missing"),
    "no label.jsonl": ('{"label": null, "text": "bad"}\n', 1, "the label is missing"),
    "blank label.jsonl": ('{"label": " ", "text": "bad"}\n', 1, "the label is empty"),
    "imdb.test.tsv": ("1\t9\t0\tgood\n\t1\t7\tbad\n", 2, "the label is empty"),
    "missing text.tsv": ("pos\tgood\nneg\n", 2, "expected 2 columns, label and text, got 1. Is a tab or a text mis"),
    "missing text.csv": ("pos,good\nneg\n", 2, "expected 2 columns, label and text, got 1. Is a comma or a text"),
    "missing text.jsonl": ('{"label": "neg"}\n', 1, "the text is missing"),
    "empty text.tsv": ("pos\tgood\nneg\t\n", 2, "the text is empty. Remove the row"),
    "text of a line end.csv": ('pos,good\n\nneg,"\n"\n', 3, "the text is empty"),
    "empty text.jsonl": ('{"label": 1, "text": " "}', 1, "the text is empty"),
    "imdb.valid.tsv": ("1\t9\t0\tgood\n0\t1\t7\t \n", 2, "the text is empty"),
    "tab inside.tsv": ("pos\tgood\nneg\tb\tad\n", 2, "expected 2 columns, .* got 3. Is there a tab inside a text"),
    "comma inside.csv": ("pos,good\nneg,b,ad\n", 2, "got 3. Is there a comma inside a text. Put it in quotes"),
    "ragged.tsv": ("label\tid\ttext\npos\t1\tgood\nneg\tbad\n", 3, "expected 3 columns, as the first row, got 2"),
    "unnamed columns.tsv": ("1\tpos\tgood\n", 1, "If there are more columns, name label and text"),
    "half a header.csv": ("mood,text\npos,good\n", 1, "is this a header. It names the text 'text' but not the label"),
    "open quote.csv": ('pos,good\nneg,"bad\n\n', 2, "a quote is opened here and never closed"),
    "after a quote.csv": ('pos,"good\nbad" d\n', 2, "a comma or the end of the line must follow a closing quote"),
    "imdb.train.tsv": ("1\t9\tgood\n", 1, "expected 4 columns, label, rating, id and text, got 3"),
    "IMDB.train.tsv": ("5\t9\t1\tgood\n", 1, "the label must be 1, positive, or 0, negative, got '5'"),
    "not json.jsonl": ('{"label": 1, "text": "good"}\n{"label": \n', 2, "not JSON: "),
    "deep.jsonl": ("[" * 100_000, 1, "not JSON: "),
    "huge number.jsonl": ("1" * 100_000, 1, "not JSON: "),
    "a key twice.jsonl": ('{"label": 1, "label": 2, "text": "good"}', 1, "not JSON: 'label' is there twice"),
    "a list.jsonl": ('["pos", "good"]\n', 1, 'must be an object with "label" and "text", got list'),
    "a real number.jsonl": ('{"label": 1.5, "text": "good"}\n', 1, '"label" must be a string, got 1.5'),
    "text of numbers.jsonl": ('{"label": "1", "review": [1]}\n', 1, r'"review" must be a string, got \[1\]'),
    "half a character.jsonl": ('{"label": "1", "text": "\\ud800"}\n', 1, '"text" contains half of a surrogate pair'),
    "bad UTF-8.tsv": (b"pos\tgood\nneg\tb\xe4d\n", 2, r"byte 6 of the line \(0xe4\) is not UTF-8"),
    "bad UTF-8.jsonl": (b'{"label": "pos", "text": "\xff"}\n', 1, "is not UTF-8"),
    "NUL.csv": (b"pos,g\0\n", 1, "is NUL"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_guarantee_text_as_it_comes_one_line_with_file_and_line(name, write):
    content, line, message = ERRORS[name]
    file = write({name: content}) / name
    with pytest.raises(TextError, match=message) as caught:
        rows_of(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(file)) + 250


def test_guarantee_text_as_it_comes_line_separators_inside_a_text(write):
    """664 reviews of IMDb hold U+0085."""
    text = "one\u0085two\u2028three\x0b\x1cfour"
    files = {"a.tsv": f"pos\t{text}\n", "a.csv": f"pos,{text}\n", "a.jsonl": jsonl([{"label": "pos", "text": text}])}
    folder = write(files)
    assert [rows_of(folder / name) for name in files] == [[("pos", text)]] * 3


def test_labels_of_json_are_strings(write):
    folder = write({"a.jsonl": jsonl({"label": label, "text": "x"} for label in ("1", 1, -2, True, False))})
    assert [label for label, _ in rows_of(folder / "a.jsonl")] == ["1", "1", "-2", "true", "false"]


def test_folders_of_labels(write):
    folder = write({"pos/10_7.txt": "ten", "pos/2_9.txt": "two\nlines\n", "neg/0_1.txt": "bad", "urls_pos.txt": "url",
                    "unsup/0_0.txt": "no label", "neg/notes.md": "no text", ".git/a.txt": "hidden"})  # fmt: skip
    (folder / "empty").mkdir()
    assert [child.name for child in value_folders(folder)] == ["neg", "pos"]
    source = Source("train", (folder,))
    assert list(read_rows(source, LABELLED)) == [
        (("neg", "bad"), f"{folder / 'neg/0_1.txt'}:1"),
        (("pos", "two\nlines"), f"{folder / 'pos/2_9.txt'}:1"),
        (("pos", "ten"), f"{folder / 'pos/10_7.txt'}:1"),
    ]
    write({"pos/3_8.txt": ""})
    with pytest.raises(TextError, match=r"pos/3_8\.txt:1: the text is empty"):
        list(read_rows(source, LABELLED))


def test_another_kind_of_file(write):
    with pytest.raises(DataError, match=r"a\.md: texts are read from \.tsv, \.csv, \.jsonl files, not from '\.md'"):
        rows_of(write({"a.md": "pos good"}) / "a.md")


CELL = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])) | st.text('a",\n')


@given(st.lists(st.tuples(CELL, CELL)), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_csv_as_the_standard_library_writes_it(tmp_path_factory, rows, line_end, quote_all):
    # A cell that no text is begins every row: neither a header nor a byte order mark can be among the others.
    rows = [("-", *row) for row in rows]
    file = io.StringIO()
    csv.writer(file, lineterminator=line_end, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerows(rows)
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_bytes(file.getvalue().encode())
    # All columns but the first are kept as they are, if they are not blank.
    expected = [row for row in rows if row[1].strip() and row[2].strip()]
    if expected == rows:
        assert rows_of(path, Columns(names=("none", "left", "right"))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a,"b\n\nc"\n\nd,e\n', [(("a", "b\n\nc"), 1), (("d", "e"), 5)]),
        ('a,5" wide\nb,"5"" wide"', [(("a", '5" wide'), 1), (("b", '5" wide'), 2)]),
        (f'a,"{"word " * 200_000}"', [(("a", "word " * 200_000), 1)]),
    ],
    ids=["numbered by the first line", "quotes", "any length"],
)
def test_csv(write, text, expected):
    file = write({"a.csv": text}) / "a.csv"
    rows = list(read_rows(Source("a", (file,)), LABELLED))
    assert rows == [(values, f"{file}:{line}") for values, line in expected]


PLAIN = st.text(st.characters(exclude_characters="\0\t\n\r", exclude_categories=["Cs", "Z"]), min_size=1).filter(
    str.strip
)


@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1))
def test_the_same_rows_from_every_form(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    rows = [(label, "x" + text) for label, text in rows]
    table = [("label", "text"), *rows]
    quoted = ((f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) for row in table)
    (folder / "a.tsv").write_bytes(tsv(table).encode())
    (folder / "a.csv").write_bytes("".join(",".join(row) + "\n" for row in quoted).encode())
    (folder / "a.jsonl").write_text(jsonl({"label": label, "text": text} for label, text in rows), encoding="utf-8")
    expected = [(label.strip(), text) for label, text in rows]
    assert [rows_of(folder / name) for name in ("a.tsv", "a.csv", "a.jsonl")] == [expected] * 3


@pytest.mark.parametrize(("text", "message"), [("", "the file is empty. Is the copy"), ("\ufeff", "is empty")])
def test_running_text_is_one_row(write, text, message):
    folder = write({"a.txt": "one\r\n\ntwo", "b.txt": text})
    assert rows_of(folder / "a.txt", RUNNING) == [("one\n\ntwo",)]
    with pytest.raises(TextError, match=rf"b\.txt:1: .*{message}"):
        rows_of(folder / "b.txt", RUNNING)


def read_pairs(write, source, target=None, stem="train", ending=""):
    if target is None:
        return rows_of(write({f"{stem}.tsv": source}) / f"{stem}.tsv", PAIRED)
    files = {f"{stem}.de{ending}": source, f"{stem}.en{ending}": target}
    folder = write(files)
    return [values for values, _ in read_rows(Source(stem, tuple(folder / name for name in files)), PAIRED)]


def test_lines_side_by_side(write):
    source, target = "Hallo!\n  Grüß Gott \n\nkein Zeilenende", "Hi!\nHello\nnothing\n\tno line end\t"
    pairs = [("Hallo!", "Hi!"), ("Grüß Gott", "Hello"), ("", "nothing"), ("kein Zeilenende", "no line end")]
    assert read_pairs(write, source, target) == pairs
    folder = write(sides("other", pairs))
    source = Source("other", (folder / "other.de", folder / "other.en"))
    assert [place for _, place in read_rows(source, PAIRED)][1] == f"{folder / 'other.de'}:2"


def test_guarantee_text_as_it_comes_pairs(write):
    source = b"\xef\xbb\xbfeins\r\nzw\xc2\x85ei\r\n" + "d\u2028rei\r\n".encode() + b"v\rier"
    pairs = read_pairs(write, source, "one\ntwo\nthree\nfour\n")
    assert [source for source, _ in pairs] == ["eins", "zw\u0085ei", "d\u2028rei", "v\rier"]
    with pytest.raises(TextError, match=r"train\.en:2: byte 1 of the line \(0xff\) is not UTF-8"):
        read_pairs(write, "a\nb\n", b"a\n\xff\n")
    long = "x" * 5_000_000
    assert read_pairs(write, f"{long}\t{long}\nb\tc") == [(long, long), ("b", "c")]


def xml(*segments):
    return "<mteval><doc>" + "".join(f"<seg> {text} </seg>\n" for text in segments) + "</doc></mteval>"


def test_iwslt(write):
    pairs = read_pairs(write, xml("A &amp; B", ""), xml("C", "D"), ending=".xml")
    assert pairs == [("A & B", "C"), ("", "D")]
    source = "<url>x</url>\n<title>x</title>\nEins\nZwei &amp; drei\n<reviewer></reviewer>\n"
    target = "<url>x</url>\n<title>x</title>\n<translator>y</translator>\nOne\nTwo & three\n"
    pairs = read_pairs(write, source, target, stem="train.tags.de-en")
    assert pairs == [("Eins", "One"), ("Zwei & drei", "Two & three")]


@pytest.mark.parametrize(
    ("source", "target", "ending", "message"),
    [
        ("a\nb\n", "a\n", "", r"train\.de has 2 lines of text and .*train\.en has 1; both must have the same number"),
        ("a\nb\n", "a\n\n\n\n", "", r"train\.de has 2 lines of text and .*train\.en has 4"),
        ("", "a\n", "", r"train\.de has 0 lines of text and .*train\.en has 1"),
        (xml("A"), xml("C", "D"), ".xml", r"train\.de\.xml has 1 segments and .*train\.en\.xml has 2"),
    ],
)
def test_sides_that_do_not_belong_together(write, source, target, ending, message):
    with pytest.raises(DataError, match=message):
        read_pairs(write, source, target, ending=ending)


@pytest.mark.parametrize(
    "text",
    [
        "eins\tone\nzwei \t two\n",
        "source\ttarget\neins\tone\n\nzwei\ttwo",
        "id\tTarget\tSource\n1\tone\teins\n2\ttwo\tzwei\n",
        "EN\tDE\r\none\teins\r\ntwo\tzwei\r\n",
        "Quelle\tsource\nZiel\ttarget\n",
    ],
)
def test_columns_of_pairs(write, text):
    """The last one is a dictionary: a word for it is no header."""
    expected = [("Quelle", "source"), ("Ziel", "target")] if "Ziel" in text else [("eins", "one"), ("zwei", "two")]
    assert read_pairs(write, text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eins\tone\nzwei\n", r":2: expected 2 columns, source and target, got 1\. Is a tab or a text missing"),
        ("eins\tone\t\n", r":1: expected 2 columns, .* got 3\. Is there a tab inside a text\? If there are more"),
        ("source\ttarget\tid\na\tb\n", r":2: expected 3 columns, as the first row, got 2\. Is a tab or a text missing"),
    ],
)
def test_pairs_that_cannot_be_used(write, text, message):
    with pytest.raises(TextError, match=message):
        read_pairs(write, text)


def test_json_of_pairs(write):
    folder = write({"a.jsonl": json.dumps({"en": "one", "de": "eins"})})
    assert rows_of(folder / "a.jsonl", PAIRED) == [("eins", "one")]


@pytest.mark.parametrize("columns", [LABELLED, RUNNING], ids=["labelled", "running"])
@pytest.mark.parametrize("kind", ["pipe", "proc", "device"])
def test_only_files_on_a_disk_are_read(tmp_path, columns, kind):
    """Any of these could be read for ever."""
    path = tmp_path / f"train{columns.suffixes[0]}"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/proc/version" if kind == "proc" else "/dev/zero")
    with pytest.raises(DataError, match=r"train\.\w+: not a file\.$"):
        rows_of(path, columns)
    folder = tmp_path / "folders" / "pos"
    folder.mkdir(parents=True)
    path.rename(folder / "1.txt")
    if columns.folders:
        with pytest.raises(DataError, match=r"1\.txt: not a file\.$"):
            rows_of(tmp_path / "folders", columns)
