"""Any text can be a label."""

import unicodedata

import pytest

from quasirnn.plots.labels import UNKNOWN, labels, shortened


def test_usual_words_stay_as_they_are():
    words = ["gorgeous", "$x^2$", "_under_score_", "Größe", "слово", "العربية", "two words", ""]
    shown, style = labels(words)
    assert shown == words
    assert style == {"font.family": ["DejaVu Sans"], "text.parse_math": False}


def test_white_space_and_controls_are_seen():
    assert labels(["a\nb\r\tc\u2028", "\0\ud800\uffff\x1b"])[0] == ["a↵b↵⇥c↵", UNKNOWN * 4]
    assert labels(["\u202eab\u200d\ufeff"])[0] == ["ab"]


def test_long_texts_end_in_an_ellipsis():
    assert shortened("x" * 24, 24) == "x" * 24
    assert shortened("x" * 25, 24) == "x" * 23 + "…"
    assert shortened("four and more", 6) == "four…"
    # Joiners take no room, but are no way to hide a book.
    assert len(shortened("a\u200d" * 10**6, 24)) <= 24


def test_characters_without_a_font_are_replaced():
    """Whether a font for a script is installed or not: each character is drawn or replaced, and nothing warns."""
    shown, style = labels(["漢字", "a\N{EGYPTIAN HIEROGLYPH A001}"])
    for was, now in zip("漢字a\N{EGYPTIAN HIEROGLYPH A001}", "".join(shown), strict=True):
        assert now in (was, UNKNOWN)
    if UNKNOWN not in "".join(shown):
        assert len(style["font.family"]) > 1


def test_further_fonts_are_found(monkeypatch):
    from matplotlib import font_manager

    entries = [font_manager.FontEntry(name=name, fname=name) for name in ("A", "Both", "Broken", "Last Resort Pro")]
    covers = {"A": "漢", "Both": "漢字", "Last Resort Pro": "漢字仮"}

    class Font:
        def __init__(self, name):
            self.name = name

        def get_charmap(self):
            return {ord(character): 1 for character in covers.get(self.name, "a")}

    def get_font(name):
        if name == "Broken":
            raise RuntimeError("no font at all")
        return Font(name)

    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    monkeypatch.setattr(font_manager, "get_font", get_font)
    shown, style = labels(["a漢字仮"])
    assert shown == [f"a漢字{UNKNOWN}"]
    assert style["font.family"] == ["DejaVu Sans", "Both"]


@pytest.mark.parametrize("kind", ["Cc", "Cs", "Cn"])
def test_nothing_stays_that_an_svg_cannot_hold(kind):
    some = [chr(code) for code in range(0x10FFFF) if code % 7 == 0 and unicodedata.category(chr(code)) == kind][:200]
    signs = {"\n", "\r", "\t"}
    assert set("".join(labels([c for c in some if c not in signs])[0])) <= {UNKNOWN}
