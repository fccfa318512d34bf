"""Forty files as people have them: read right, or refused in one line that says what to do.

Each is given to the task's reader as `--data` would give it, with the KEYs that a user would type.
"""

import gzip
import json

import pytest

from quasirnn.data.corpus import SPLITS
from quasirnn.errors import DataError
from quasirnn.tasks import language_model, sentiment, translation
from quasirnn.tasks.settings import apply_overrides

ROWS = [
    (label, f"{number}: {text}")
    for number in range(10)
    for label, text in [("pos", "I loved it."), ("neg", "Dull, and long."), ("pos", 'Not "bad".'), ("neg", "Boring.")]
]
PAIRS = [(f"eins {number}", f"one {number}") for number in range(40)]
PROSE = "".join(f"Line {number} of some prose.\nAnd another one, number {number}.\n" for number in range(80))


def table(*rows, mark=",", end="\n", quote='"'):
    """Rows of a table; a field is quoted where it must be."""

    def cell(text):
        return quote + text.replace(quote, 2 * quote) + quote if quote and set(text) & {mark, quote, "\n"} else text

    return "".join(mark.join(map(cell, row)) + end for row in rows)


def tsv(*rows, **options):
    return table(*rows, mark="\t", quote="", **options)


def swapped(rows):
    return [(text, label) for label, text in rows]


def with_more(rows):
    return [(str(number), label, "2024-01-01", text) for number, (label, text) in enumerate(rows)]


def jsonl(rows, *names):
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


QUOTED = "".join(f'"{label}"\t"{text.replace(chr(34), 2 * chr(34))}"\n' for label, text in [("label", "text"), *ROWS])
FOLDERS = {f"{label}/{number}.txt": text for number, (label, text) in enumerate(ROWS)}
# By task: what it is, its files, the KEYs that are typed, and a note or nothing.
READ = {
    "sentiment": {
        "TSV without a header": ({"train.tsv": tsv(*ROWS)}, (), ""),
        "CSV of Kaggle's IMDb": ({"IMDB Dataset.csv": table(("review", "sentiment"), *swapped(ROWS))}, (),
                                 "IMDB Dataset.csv: label is the column sentiment, text is the column review"),
        "capitals, spaces and marks in the header": ({"a.csv": table((" Review_Text ", "CLASS"), *swapped(ROWS))}, (),
                                                     "text is the column Review_Text"),
        "further columns": ({"a.csv": table(("id", "category", "date", "content"), *with_more(ROWS))}, (),
                            "ignored: id, date"),
        "an index without a name, as pandas writes it": (
            {"a.csv": table(("", "label", "text"), *((str(n), *row) for n, row in enumerate(ROWS)))}, (),
            "ignored: number 1"),
        "columns that the user names": ({"a.csv": table(("v1", "v2", "", ""), *((*row, "", "") for row in ROWS))},
                                        ("label=v1", "text=v2"), "label is the column v1"),
        "one column that the user names": ({"a.tsv": tsv(("mood", "text"), *ROWS)}, ("label=mood",), "column mood"),
        "columns by number, without a header": ({"a.csv": table(*with_more(ROWS))}, ("label=2", "text=4"), ""),
        "text before label, by number": ({"a.tsv": tsv(*swapped(ROWS))}, ("label=2", "text=1"), ""),
        "semicolons of a European spreadsheet": ({"a.csv": table(("label", "text"), *ROWS, mark=";")}, (), ""),
        "semicolons without a header": ({"a.csv": table(*ROWS, mark=";")}, (), ""),
        "quotes around everything in a TSV": ({"a.tsv": QUOTED}, (), ""),
        "BOM and CRLF, as Excel writes them": ({"a.csv": "\ufeff" + table(("label", "text"), *ROWS, end="\r\n")}, (),
                                               ""),
        "tabs in a file without a suffix": ({"SMSSpamCollection": tsv(*ROWS)}, (), ""),
        "JSON lines with other keys": ({"a.jsonl": jsonl(ROWS, "polarity", "tweet")}, (), ""),
        "JSON lines whose keys the user names": ({"a.jsonl": jsonl(ROWS, "y", "x")}, ("label=y", "text=x"), ""),
        "a folder for each class": (FOLDERS, (), ""),
        "a folder for each class in train": ({f"train/{name}": text for name, text in FOLDERS.items()}, (), ""),
        "train, validation and test, as Hugging Face calls them": (
            {f"{name}.csv": table(("text", "label"), *swapped(ROWS)) for name in ("train", "validation", "test")}, (),
            ""),
        "capitals in the names of files": ({"Train.CSV": table(("text", "label"), *swapped(ROWS)),
                                            "Test.CSV": table(*ROWS)}, (), ""),
        "gzip": ({"train.tsv.gz": gzip.compress(tsv(*ROWS).encode())}, (), ""),
        "a Mac's hidden copies beside it": ({"train.tsv": tsv(*ROWS), "._train.tsv": b"\0\5\x16\7"}, (), ""),
    },
    "translation": {
        "languages as a header, target first": ({"a.tsv": tsv(("en", "de"), *swapped(PAIRS))}, (), ""),
        "names of languages, and more": ({"a.csv": table(("id", "German", "English"), *(("7", *p) for p in PAIRS))},
                                         (), "source is the column German"),
        "src and tgt": ({"a.csv": table(("src", "tgt"), *PAIRS)}, (), ""),
        "columns that the user names": ({"a.tsv": tsv(("oben", "unten"), *PAIRS)}, ("source=oben", "target=unten"),
                                        ""),
        "Tatoeba's, by number": ({"deu.txt": tsv(*((*pair[::-1], "CC-BY 2.0") for pair in PAIRS))},
                                 ("source=2", "target=1"), ""),
        "two files packed with gzip": ({f"train.{name}.gz": gzip.compress("\n".join(side).encode()) for name, side in
                                        zip(("de", "en"), zip(*PAIRS, strict=True), strict=True)}, (), ""),
    },
    "language-model": {
        "a folder of books": ({f"{number:03}.txt": line for number, line in enumerate(PROSE.splitlines())}, (), ""),
        "gzip under another name": ({"book.txt": gzip.compress(PROSE.encode())}, (), ""),
        "BOM and CRLF": ({"book.txt": "\ufeff" + PROSE.replace("\n", "\r\n")}, (), ""),
    },
}  # fmt: skip

# The same with the line that is said.
REFUSED = {
    "sentiment": {
        "a header of other names": ({"a.csv": table(("mood", "words"), *ROWS)}, (),
            "a.csv:1: the label 'mood' occurs only in this row. If the row is a header, give label=mood "
            "text=words; if not, label=1 text=2"),
        "half a header": ({"a.tsv": tsv(("mood", "review"), *ROWS)}, (),
            "a.tsv:1: is this a header? It names the text 'review' but not the label. Name "
            "that column: label=COLUMN; if it is not a header: label=1 text=2"),
        "a name that is not there": ({"a.csv": table(("mood", "text"), *ROWS)}, ("label=moods",),
            "a.csv:1: label=moods: no such column; the columns are 'mood', 'text'; did you mean mood?"),
        "a number that is not there": ({"a.csv": table(*ROWS)}, ("label=1", "text=3"),
            "a.csv:1: text=3: the row has 2 columns, counted from 1"),
        "text before label": ({"a.tsv": tsv(*swapped(ROWS))}, (),
            "Are the columns in the order label, text? If not, name them in a header row, or give label=2 text=1"),
        "more columns and no header": ({"a.csv": table(*with_more(ROWS))}, (),
            "a.csv:1: expected 2 columns, label and text, got 4. Is there a comma inside a text? Put it in quotes: "
            '"..." If there are more columns, name label and text in a header row, or give label=COLUMN text=COLUMN'),
        "JSON lines with other keys": ({"a.jsonl": jsonl(ROWS, "y", "text")}, (),
            "a.jsonl:1: the label is missing; the keys are 'y', 'text'. Name the right one: label=KEY"),
        "a spreadsheet": ({"a.xlsx": b"PK\3\4\x14\0"}, (), "not text but a zip archive or an office document. "),
        "Latin-1": ({"a.csv": table(("label", "text"), ("pos", "très bien")).encode("latin-1")}, (),
            "a.csv:2: byte 7 of the line (0xe8) is not UTF-8. Convert the text; if it is Latin-1: iconv -f LATIN1"),
        "UTF-16": ({"a.csv": table(("label", "text"), *ROWS).encode("utf-16")}, (), "Convert it: iconv -f UTF-16"),
        "a quote that is never closed": ({"a.csv": 'pos,"I loved it.\nneg,dull\n'}, (),
            "a.csv:1: a quote is opened here and never closed"),
    },
    "translation": {
        "languages that are not asked for": ({"a.tsv": tsv(("fr", "it"), *PAIRS)}, (),
            "a.tsv:1: is this a header? It names the languages fr, it; choose two, for example source=fr target=it"),
        "one side is missing": ({"train.de": "eins\n"}, (), "one that ends in .de and one in .en, or from one .tsv"),
        "other languages": ({"train.fr": "un\n", "train.es": "uno\n"}, (),
            "it contains train.es, train.fr. For other languages: source=LANGUAGE target=LANGUAGE"),
    },
    "language-model": {
        "a PDF": ({"book.txt": b"%PDF-1.4\n%\xe2\xe3\n"}, (), "book.txt:1: this is not text but a PDF document. "),
        "gzip cut short": ({"book.txt.gz": gzip.compress(PROSE.encode() * 99)[:60]}, (),
            "book.txt.gz:1: a damaged gzip archive"),
    },
}  # fmt: skip
TASKS = {task.name: task for task in (sentiment.TASK, translation.TASK, language_model.TASK)}
EXPECTED = {"sentiment": set(ROWS), "translation": set(PAIRS), "language-model": set(PROSE.splitlines())}


def cases(tables):
    return [
        pytest.param(TASKS[task], *case, id=f"{task}: {name}")
        for task, some in tables.items()
        for name, case in some.items()
    ]


def read(folder, task, files, keys):
    """What `train --data` reads of these files, a single one given by its name: rows or lines, and the notes."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    settings = apply_overrides(task.presets["fast"].qrnn, keys)
    path = folder / next(iter(files)) if len(files) == 1 else folder
    corpus = task.read(settings, [str(path)], SPLITS, {}, True)
    if task is language_model.TASK:
        return {line for part in corpus.parts.values() for line in part.text.split("\n") if line}, corpus.notes
    rows = {row for part in corpus.parts.values() for row in zip(*part.columns.values(), strict=True)}
    return rows, corpus.notes


@pytest.mark.parametrize(("task", "files", "keys", "note"), cases(READ))
def test_read_right(tmp_path, task, files, keys, note):
    rows, notes = read(tmp_path, task, files, keys)
    assert rows == EXPECTED[task.name]
    assert note in " ".join(notes)


@pytest.mark.parametrize(("task", "files", "keys", "message"), cases(REFUSED))
def test_refused_in_one_line_that_says_what_to_do(tmp_path, task, files, keys, message):
    with pytest.raises(DataError) as refusal:
        read(tmp_path, task, files, keys)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_there_are_forty():
    assert sum(len(some) for tables in (READ, REFUSED) for some in tables.values()) >= 40
