"""The two file formats of IWSLT: XML with a `<seg>` for each sentence, and training text with lines of tags in it."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from xml.parsers import expat

from quasirnn.data.text_files import read_lines
from quasirnn.errors import TextError, one_line

MAX_BYTES = 256 * 2**20

# What a talk begins and ends with in a training file, each on a line of its own. Both languages have the same lines of
# text between, but not the same of these: a transcript has no translator.
_TAGS = re.compile(r"\s*</?(?:doc|url|speaker|talkid|title|description|keywords|reviewer|translator)\b")
# The entities that XML itself has, and characters by their number. Others, and a bare "&", are text.
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});")


def read_segments(path: Path) -> list[str]:
    """The text of every `<seg>` of an XML file in order, with entities decoded; tags inside of it are left out.

    Line ends inside become spaces. A document type may be named but is not looked up, and entities of the file's own
    are refused: nothing is fetched, and a small file stays small.

    Raises:
        TextError: not such XML, in one line that begins with FILE:LINE.
        OSError: the file cannot be read.
    """
    reader = _Segments(path)
    with path.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TextError(f"{path}:1: has more than {MAX_BYTES:,} bytes; the XML files of IWSLT have a few million")
    try:
        # All at once: piece by piece, what is not finished (a long comment) would be read again with every piece.
        reader.parser.Parse(content, True)
    except TextError:
        raise
    except expat.ExpatError as error:
        raise TextError(f"{path}:{error.lineno}: not XML: {expat.ErrorString(error.code)}") from None
    except (LookupError, ValueError) as error:
        raise TextError(f"{path}:1: its encoding cannot be read ({one_line(error)}). Convert it to UTF-8") from None
    if not reader.segments:
        raise TextError(f"{path}:1: contains no <seg>, which IWSLT files use for sentences")
    return reader.segments


def read_tagged_lines(path: Path) -> Iterator[str]:
    """The lines of a training file, `train.tags.*`, that are text, with entities decoded: no titles, no tags.

    Raises:
        TextError, OSError: as of `read_lines`.
    """
    for line in read_lines(path):
        if not _TAGS.match(line):
            yield _ENTITY.sub(lambda entity: unescape(entity[0]), line)


class _Segments:
    """What is gathered while a file is parsed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments: list[str] = []
        self.pieces: list[str] | None = None  # of the segment that is being read
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._entity_declared
        parser.SkippedEntityHandler = self._entity_unknown

    def _start(self, name: str, _: dict[str, str]) -> None:
        if name == "seg":
            self.pieces = []

    def _end(self, name: str) -> None:
        if name == "seg" and self.pieces is not None:
            self.segments.append("".join(self.pieces).replace("\n", " "))
            self.pieces = None

    def _text(self, text: str) -> None:
        if self.pieces is not None:
            self.pieces.append(text)

    def _entity_declared(self, name: str, *_: object) -> None:
        raise TextError(f"{self._place()}: declares an entity, {name!r:.60}, which IWSLT files never do")

    def _entity_unknown(self, name: str, _: object) -> None:
        raise TextError(f"{self._place()}: unknown entity {name!r:.60}; XML has amp, lt, gt, quot and apos")

    def _place(self) -> str:
        return f"{self.path}:{self.parser.CurrentLineNumber}"
