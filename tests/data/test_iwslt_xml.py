import pytest

from quasirnn.data.iwslt_xml import read_segments, read_tagged_lines
from quasirnn.errors import TextError

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
XML = (
    HEAD
    + """<mteval>
<refset setid="iwslt2014-tst2014" srclang="German" trglang="English">
<doc docid="1" genre="lectures">
<title>Left out: R&amp;D</title>
<seg id="1"> Jack &amp; Jill &lt;3 &quot;it&apos;s&quot; &#8364; </seg>
<seg id="2">Grüße \u2028 aus
Köln</seg>
<seg id="3"></seg>
<seg id="4">a <hl>bold</hl> word<![CDATA[ & more]]></seg>
</doc>
</refset>
</mteval>
"""
)
SEGMENTS = [' Jack & Jill <3 "it\'s" € ', "Grüße \u2028 aus Köln", "", "a bold word & more"]


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "IWSLT14.TED.tst2014.de-en.de.xml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_segments_in_order(file):
    assert read_segments(file(XML)) == SEGMENTS


def test_a_byte_order_mark_other_line_ends_and_other_encodings(file):
    assert read_segments(file(XML.encode("utf-8-sig"))) == SEGMENTS
    assert read_segments(file(XML.replace("\n", "\r\n"))) == SEGMENTS
    assert read_segments(file(XML.replace("UTF-8", "UTF-16").encode("utf-16"))) == SEGMENTS


def test_a_document_type_is_named_but_not_looked_up(file):
    kind = '<!DOCTYPE mteval SYSTEM "file:///nowhere/mteval.dtd">\n'
    assert read_segments(file(XML.replace(HEAD, HEAD + kind))) == SEGMENTS


BOMB = '<!DOCTYPE mteval [<!ENTITY a "ha">\n<!ENTITY b "&a;&a;">]>\n<mteval><seg>&b;</seg></mteval>'
FETCHED = '<!DOCTYPE mteval [\n<!ENTITY a SYSTEM "file:///etc/hostname">]>\n<mteval><seg>&a;</seg></mteval>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, r":1: declares an entity, 'a'"),
        (FETCHED, r":2: declares an entity, 'a'"),
        ('<!DOCTYPE m SYSTEM "m.dtd">\n<m><seg>a&nbsp;b</seg></m>', r":2: unknown entity 'nbsp'; XML has amp, "),
        ("<m>\n<seg>a&nbsp;b</seg></m>", ":2: not XML: undefined entity"),
        ("<m>\n<seg>R & D</seg></m>", ":2: not XML: not well-formed"),
        (b"<m>\n\n<seg>\xff</seg></m>", ":3: not XML: not well-formed"),
        (b"<m>\n<seg>a\0b</seg></m>", ":2: not XML: not well-formed"),
        ("<m>\n<seg>cut short", ":2: not XML: no element found"),
        ("", ":1: not XML: no element found"),
        ("<m>\n</m>", ":1: contains no <seg>"),
        ("plain text\n", ":1: not XML: syntax error"),
    ],
)
def test_what_is_refused(file, text, message):
    with pytest.raises(TextError, match=message) as caught:
        read_segments(file(text))
    assert str(caught.value).startswith(str(file(text)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["Shift_JIS", "utf-32", "foo", "base64"])
def test_an_encoding_that_the_parser_does_not_have(file, encoding):
    with pytest.raises(TextError, match=r":1: its encoding cannot be read \(.*\)\. Convert it to UTF-8$"):
        read_segments(file(XML.replace("UTF-8", encoding)))


def test_a_long_comment_is_read_once(file):
    """Read in pieces, every piece would have the parser begin with the comment again: 10 s for one of 6 MB."""
    assert read_segments(file(XML.replace("<mteval>", f"<mteval><!-- {'a ' * 3_000_000} -->"))) == SEGMENTS


def test_a_file_that_is_far_too_large(file, monkeypatch):
    monkeypatch.setattr("quasirnn.data.iwslt_xml.MAX_BYTES", 100)
    with pytest.raises(TextError, match=":1: has more than 100 bytes"):
        read_segments(file(XML))


def test_deep_nesting_is_no_harm(file):
    assert read_segments(file("<a>" * 100_000 + "<seg>deep</seg>" + "</a>" * 100_000)) == ["deep"]


TAGGED = """<doc docid="1">
<url>http://www.example.org/talks/1</url>
<speaker>Someone</speaker>
<talkid>1</talkid>
<title>Someone: A talk</title>
<description>What it is about</description>
<keywords>one, two</keywords>
<reviewer href="http://www.example.org/2">Someone else</reviewer>
<translator href="http://www.example.org/3">A third</translator>
 Vielen Dank, Chris.
(Applaus) R&amp;D oder R&D, &#39;so&#39; &unbekannt;
<3 is no tag, <i>this</i> neither

</doc>
"""


def test_lines_between_the_tags(tmp_path):
    path = tmp_path / "train.tags.de-en.de"
    path.write_text(TAGGED, encoding="utf-8")
    assert list(read_tagged_lines(path)) == [
        " Vielen Dank, Chris.",
        "(Applaus) R&D oder R&D, 'so' &unbekannt;",
        "<3 is no tag, <i>this</i> neither",
        "",
    ]
