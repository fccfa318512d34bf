import hashlib

import pytest

from quasirnn.data.known_corpora import KNOWN, Counts, KnownCorpus, mismatch, recognise


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_difference_is_one_line_with_both_figures(name, split):
    expected = KNOWN[name].counts[split]
    assert mismatch(name, split, expected) is None
    got = Counts(expected.lines - 1, expected.tokens - 20, expected.distinct)
    line = mismatch(name, split, got)
    assert f"{expected.lines:,} lines, {expected.tokens:,} tokens, {expected.distinct:,} distinct" in line
    assert f"this one has {got.lines:,} lines, {got.tokens:,} tokens" in line
    assert line.endswith("Was it cut short?")
    assert "\n" not in line


def test_more_lines_were_not_cut_short():
    assert mismatch("ptb", "valid", Counts(3_371, 73_780, 6_021)).endswith("6,021 distinct.")


def test_recognised_by_its_bytes_whatever_its_name(tmp_path, monkeypatch):
    text = b"some text\n"
    monkeypatch.setitem(KNOWN, "small", KnownCorpus({}, len(text), hashlib.sha256(text).hexdigest()))
    (tmp_path / "any").write_bytes(text)
    (tmp_path / "as long").write_bytes(b"same size\n")
    (tmp_path / "longer").write_bytes(b"other text\n")
    assert [recognise(tmp_path / name) for name in ("any", "as long", "longer")] == ["small", None, None]
