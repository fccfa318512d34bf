"""Words of any kind as labels: one line each, of bounded length, taken literally, in fonts that have them."""

import unicodedata
from collections.abc import Sequence
from typing import Any

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
SIGNS = {"\n": "↵", "\r": "↵", "\t": "⇥", "\N{LINE SEPARATOR}": "↵", "\N{PARAGRAPH SEPARATOR}": "↵"}
# Part of matplotlib, so always there; it covers European scripts, Arabic, Hebrew and most symbols.
FONT = "DejaVu Sans"


def labels(texts: Sequence[str], longest: int = 24) -> tuple[list[str], dict[str, Any]]:
    """The texts as they can be drawn, and the style for `sheet` to draw them with.

    Characters that no installed font has become U+FFFD; line breaks and tabs become signs; "$" and "_" mean nothing.

    Args:
        longest: a text of more characters ends in an ellipsis.
    """
    shown = [shortened(text, longest) for text in texts]
    families, missing = _fonts({character for text in shown for character in text})
    table = {ord(character): UNKNOWN for character in missing}
    return [text.translate(table) for text in shown], {"font.family": families, "text.parse_math": False}


def shortened(text: str, longest: int) -> str:
    """A text in one line of at most so many characters, the last an ellipsis if some are left out."""
    # Enough to cut from: a text may be a whole book.
    text = "".join(map(_visible, text[: 4 * longest + 4]))
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _visible(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    kind = unicodedata.category(character)
    if kind == "Cf":  # joiners and marks of direction
        return ""
    # Controls, halves of surrogate pairs and code points of no character have no place in an SVG.
    return UNKNOWN if kind in ("Cc", "Cs", "Cn") else character


def _fonts(characters: set[str]) -> tuple[list[str], set[str]]:
    """Families that have the characters between them, and the characters that none has."""
    from matplotlib.font_manager import findfont, fontManager, get_font

    families, missing = [FONT], characters - _covered(get_font(findfont(FONT)), characters)
    if not missing:
        return families, missing
    others = {}
    for font in sorted(fontManager.ttflist, key=lambda font: (font.name, font.fname)):
        # The last resort has a box for everything; fonts of formulas have their own idea of code points.
        formulas = font.name.startswith(("Last Resort", "STIX", "cm", "DejaVu"))
        if formulas or font.style != "normal" or font.weight not in (400, "normal", "regular"):
            continue
        try:
            others[font.name] = _covered(get_font(font.fname), missing)
        except (OSError, RuntimeError):  # not all of the fonts on a machine can be read
            continue
    while missing and others:
        best = max(others, key=lambda name: len(others[name] & missing))
        if not others[best] & missing:
            break
        missing = missing - others.pop(best)
        families.append(best)
    return families, missing


def _covered(font: Any, characters: set[str]) -> set[str]:
    glyphs = font.get_charmap()
    return {character for character in characters if ord(character) in glyphs}
