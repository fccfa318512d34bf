import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quasirnn.data.comma_separated import read_records
from quasirnn.data.text_files import TextError

CELL = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])) | st.text('a",\n')


def records(text: str) -> list[tuple[int, list[str]]]:
    return list(read_records(io.BytesIO(text.encode()), "here"))


@settings(deadline=None)
@given(st.lists(st.lists(CELL, min_size=1)), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_reads_what_the_standard_library_writes(rows, line_end, quote_all):
    written = io.StringIO()
    csv.writer(written, lineterminator=line_end, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerows(
        rows
    )
    text = written.getvalue().removeprefix("\ufeff")
    if quote_all or not written.getvalue().startswith("\ufeff"):
        assert [fields for _, fields in records(text)] == rows


def test_records_are_numbered_by_their_first_line():
    assert records('a,"b\n\nc"\n\nd,\n,\n') == [(1, ["a", "b\n\nc"]), (5, ["d", ""]), (6, ["", ""])]


def test_quotes_inside_of_a_plain_field_are_text():
    assert records('a,5" wide') == [(1, ["a", '5" wide'])]


def test_a_field_of_any_length():
    text = "word " * 200_000
    assert records(f'pos,"{text}"') == [(1, ["pos", text])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b\nc,"d\ne\nf', "^here:2: a quote is opened here and never closed$"),
        ('a,"b"c', "^here:1: a comma or the end of the line must follow a closing quote, got 'c'"),
        ('a,"b\nc" d', "^here:2: a comma or the end of the line must follow a closing quote, got ' '"),
    ],
)
def test_quotes_that_do_not_go(text, message):
    with pytest.raises(TextError, match=message):
        records(text)
