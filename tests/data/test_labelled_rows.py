import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quasirnn.data.labelled_rows import Row, class_folders, read_rows
from quasirnn.data.text_files import TextError

# What is read as a good and a bad review, whatever the form.
GOOD = {
    "two.tsv": "pos\tvery good\nneg\tbad\n",
    "no line end.tsv": "pos\tvery good\nneg\tbad",
    "blank lines.tsv": "pos\tvery good\n\n\nneg\tbad\n\n",
    "spaces around labels.tsv": " pos \tvery good\nneg\tbad\n",
    "CRLF.tsv": "pos\tvery good\r\nneg\tbad\r\n",
    "byte order mark.tsv": "\ufeffpos\tvery good\nneg\tbad\n",
    "named.tsv": "id\tText\tLABEL\n1\tvery good\tpos\n2\tbad\tneg\n",
    "named in the usual order.tsv": "label\ttext\npos\tvery good\nneg\tbad\n",
    "named with a byte order mark.csv": "\ufefftext,label\nvery good,pos\nbad,neg\n",
    "two.csv": 'pos,very good\n"neg","bad"\n',
    "named.csv": '"text",rating,"label"\nvery good,9,pos\n"bad",1,neg\n',
    "upper case.CSV": "pos,very good\nneg,bad\n",
    "lines.jsonl": '{"label": "pos", "text": "very good"}\n\n{"text": "bad", "id": [1], "label": "neg"}\n',
    "imdb.train.tsv": "1\t9\t0\tvery good\n0\t1\t7\tbad\n",
}

# Name: text, where, and what is said.
BAD = {
    "missing label.tsv": ("pos\tgood\n\tbad\n", 2, "the label is missing"),
    "missing label.csv": ("label,text\n,bad\n", 2, "the label is missing"),
    "missing label.jsonl": ('{"text": "bad"}\n', 1, "the label is missing"),
    "no label.jsonl": ('{"label": null, "text": "bad"}\n', 1, "the label is missing"),
    "blank label.jsonl": ('{"label": " ", "text": "bad"}\n', 1, "the label is missing"),
    "imdb.test.tsv": ("1\t9\t0\tgood\n\t1\t7\tbad\n", 2, "the label is missing"),
    "missing text.tsv": (
        "pos\tgood\nneg\n",
        2,
        "expected 2 columns, label and text, got 1. Is a tab missing, or the te",
    ),
    "missing text.csv": ("pos,good\nneg\n", 2, "expected 2 columns, label and text, got 1. Is a comma missing, or the"),
    "missing text.jsonl": ('{"label": "neg"}\n', 1, "the text is missing"),
    "empty text.tsv": ("pos\tgood\nneg\t\n", 2, "the text is empty; it has the label 'neg'"),
    "text of a break.csv": ('pos,good\n\nneg,"\n<br />"\n', 3, "the text is empty; it has the label 'neg'"),
    "empty text.jsonl": ('{"label": 1, "text": " "}', 1, "the text is empty; it has the label '1'"),
    "imdb.valid.tsv": ("1\t9\t0\tgood\n0\t1\t7\t \n", 2, "the text is empty"),
    "tab inside.tsv": ("pos\tgood\nneg\tb\tad\n", 2, "expected 2 columns, .* got 3. Is there a tab inside of the text"),
    "comma inside.csv": ("pos,good\nneg,b,ad\n", 2, "got 3. Is there a comma inside of the text. Put it in quotes"),
    "ragged.tsv": ("label\tid\ttext\npos\t1\tgood\nneg\tbad\n", 3, "expected 3 columns, as the first row, got 2"),
    "unnamed columns.tsv": ("1\tpos\tgood\n", 1, "If there are other columns, a first row must name label and text"),
    "half a header.csv": ("sentiment,text\npos,good\n", 1, "a header must name both label and text, got text alone"),
    "open quote.csv": ('pos,good\nneg,"bad\n', 2, "a quote is opened here and never closed"),
    "imdb.dev.tsv": ("1\t9\tgood\n", 1, "expected 4 columns, label, rating, id and text, got 3"),
    "imdb.dev2.tsv": ("5\t9\t1\tgood\n", 1, "the label must be 1, positive, or 0, negative, got '5'"),
    "not json.jsonl": ('{"label": 1, "text": "good"}\n{"label": \n', 2, "not JSON: "),
    "deep.jsonl": ("[" * 100_000, 1, "not JSON: "),
    "huge number.jsonl": ("1" * 100_000, 1, "not JSON: "),
    "a list.jsonl": ('["pos", "good"]\n', 1, 'must be an object with "label" and "text", got list'),
    "a real number.jsonl": ('{"label": 1.5, "text": "good"}\n', 1, '"label" must be a string, got 1.5'),
    "text of numbers.jsonl": ('{"label": "1", "text": [1]}\n', 1, r'"text" must be a string, got \[1\]'),
    "half a character.jsonl": ('{"label": "1", "text": "\\ud800"}\n', 1, '"text" holds half of a surrogate pair'),
    "bad UTF-8.tsv": (b"pos\tgood\nneg\tb\xe4d\n", 2, r"byte 6 of the line \(0xe4\) is not UTF-8"),
    "bad UTF-8.jsonl": (b'{"label": "pos", "text": "\xff"}\n', 1, "is not UTF-8"),
    "NUL.csv": (b"pos,g\0\n", 1, "is NUL"),
}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", GOOD)
def test_forms(name, tmp_path):
    rows = list(read_rows(write(tmp_path / name, GOOD[name])))
    assert [(row.label, row.text) for row in rows] == [("pos", "very good"), ("neg", "bad")]


@pytest.mark.parametrize("name", BAD)
def test_guarantee_text_as_it_comes_one_line_with_file_and_line(name, tmp_path):
    content, line, message = BAD[name]
    file = write(tmp_path / name, content)
    with pytest.raises(TextError, match=message) as caught:
        list(read_rows(file))
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(file)) + 250


def test_guarantee_text_as_it_comes_line_separators_inside_a_text(tmp_path):
    """664 reviews of IMDb hold U+0085."""
    text = "one\u0085two\u2028three\x0b\x1cfour"
    files = {"a.tsv": f"pos\t{text}\n", "a.csv": f"pos,{text}\n", "a.jsonl": json.dumps({"label": "pos", "text": text})}
    for name, content in files.items():
        assert [row.text for row in read_rows(write(tmp_path / name, content))] == [text]


def test_labels_of_json_are_strings(tmp_path):
    lines = [{"label": label, "text": "x"} for label in ("1", 1, -2, True, False)]
    file = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert [row.label for row in read_rows(file)] == ["1", "1", "-2", "true", "false"]


def test_folders_of_labels(tmp_path):
    files = {"pos/10_7.txt": "ten", "pos/2_9.txt": "two\nlines\n", "neg/0_1.txt": "bad", "unsup/0_0.txt": "no label",
             "neg/notes.md": "no text", ".git/a.txt": "hidden"}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, text)
    (tmp_path / "empty").mkdir()
    write(tmp_path / "urls_pos.txt", "http://example.org")
    assert [folder.name for folder in class_folders(tmp_path)] == ["neg", "pos"]
    assert list(read_rows(tmp_path)) == [
        Row("neg", "bad", f"{tmp_path / 'neg/0_1.txt'}:1"),
        Row("pos", "two\nlines", f"{tmp_path / 'pos/2_9.txt'}:1"),
        Row("pos", "ten", f"{tmp_path / 'pos/10_7.txt'}:1"),
    ]
    empty = write(tmp_path / "pos/3_8.txt", "")
    with pytest.raises(TextError, match=f"{empty}:1: the text is empty"):
        list(read_rows(tmp_path))


def test_another_kind_of_file(tmp_path):
    with pytest.raises(ValueError, match=r"labelled texts are read from \.tsv, \.csv, \.jsonl files, not from '\.txt'"):
        read_rows(write(tmp_path / "a.txt", "pos\tgood"))


PLAIN = st.text(st.characters(exclude_characters="\0\t\n\r", exclude_categories=["Cs", "Z"]), min_size=1).filter(
    str.strip
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1))
def test_the_same_rows_from_every_form(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    rows = [("label", "text"), *((label, "x" + text) for label, text in rows)]
    tsv = "".join("\t".join(row) + "\n" for row in rows)
    as_csv = "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows)
    as_json = "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in rows[1:])
    read = [
        [(row.label, row.text) for row in read_rows(write(folder / name, content))]
        for name, content in (("a.tsv", tsv), ("a.csv", as_csv), ("a.jsonl", as_json))
    ]
    expected = [(label.strip(), text) for label, text in rows[1:]]
    assert read == [expected] * 3
