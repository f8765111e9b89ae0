from pathlib import Path

import pytest

from rag_core.errors import DocumentError
from rag_core.parsing.markup.xml import XmlParser
from rag_core.types import Document

BOMB = "".join(f'<!ENTITY b{n} "{f"&b{n - 1};" * 10 if n else "boom"}">' for n in range(10))


def parse(text: str) -> Document:
    return XmlParser().parse("file:///a.xml", text.encode())


def test_obvious_structure_becomes_markdown() -> None:
    document = parse(
        "<book><title>Mills</title><section><title>Wheels</title><p>They <b>turn</b>.</p><list><item>one</item>"
        "<item>two</item></list><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
        "<section><head>Spokes</head><p>Oak.</p></section></section></book>"
    )
    assert document.text == (
        "# Mills\n\n## Wheels\n\nThey turn.\n\n- one\n- two\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
        "### Spokes\n\nOak.\n"
    )
    assert document.title == "Mills"
    assert document.sections[-1].path == ("Mills", "Wheels", "Spokes")


def test_the_elements_of_a_record_keep_their_names() -> None:
    text = parse("<mills xmlns='urn:m'><mill><name>Ferry</name><wheels>2</wheels></mill><mill/></mills>").text
    assert text == "- name: Ferry\n- wheels: 2\n"


def test_mixed_text_stays_in_order() -> None:
    assert parse("<note>One <em>two</em> three <!-- no --><x/>four</note>").text == "One two three four\n"


JATS = """<!DOCTYPE article PUBLIC "-//NLM//DTD JATS" "JATS.dtd">
<article xml:lang="en"><front><journal-meta><journal-title>Mills</journal-title></journal-meta><article-meta>
<article-id pub-id-type="doi">10.1/x</article-id><title-group><article-title>On <italic>wheels</italic></article-title>
</title-group><contrib-group>
<contrib contrib-type="author"><name><surname>Weir</surname><given-names>Ada</given-names></name></contrib>
<contrib contrib-type="editor"><name><surname>No</surname></name></contrib>
<aff><label>1</label><institution>Mill</institution><country>UK</country></aff></contrib-group>
<pub-date><day>1</day><month>6</month><year>2020</year></pub-date>
<abstract><p>Short.</p></abstract><kwd-group><kwd>oak</kwd></kwd-group></article-meta></front>
<body><sec><title>Results</title><p>Seen in <xref>Fig 1</xref><fig><label>Figure 1.</label>
<caption><p>A wheel.</p></caption></fig>.</p><sec><title>More</title>
<table-wrap><label>Table 1.</label><table><tr><th>a</th></tr><tr><td>1</td></tr></table></table-wrap></sec></sec></body>
<back><ref-list><title>References</title><ref><element-citation>
<person-group><name><surname>Lee</surname><given-names>B</given-names></name></person-group><year>1999</year>
<article-title>Stones</article-title></element-citation></ref></ref-list></back></article>"""


def test_a_jats_article_has_title_authors_abstract_sections_and_references() -> None:
    document = parse(JATS)
    assert document.text == (
        "# On wheels\n\nAda Weir\n\nMill, UK\n\n## Abstract\n\nShort.\n\n"
        "## Results\n\nSeen in Fig 1 .\n\nFigure 1. A wheel.\n\n"
        "### More\n\nTable 1.\n\n| a |\n| --- |\n| 1 |\n\n## References\n\n- B Lee, 1999, Stones\n"
    )
    assert (document.title, document.language) == ("On wheels", "en")
    assert document.metadata == {
        "authors": ["Ada Weir"],
        "keywords": ["oak"],
        "date": "2020-06-01",
        "journal": "Mills",
        "doi": "10.1/x",
    }


def test_an_entity_bomb_does_not_grow() -> None:
    with pytest.raises(DocumentError, match=r"damaged XML: Maximum entity amplification"):
        parse(f"<!DOCTYPE x [{BOMB}]><x>a<p>&b9;</p>z</x>")
    assert parse("<!DOCTYPE x [<!ENTITY b 'boom'>]><x>a<p>&b;</p>z</x>").text == "a\n\nz\n"


def test_an_external_entity_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    document = parse(f'<!DOCTYPE x [<!ENTITY e SYSTEM "{secret.as_uri()}">]><x><title>&e;</title>a &e; b</x>')
    assert "secret" not in document.text + document.title


@pytest.mark.parametrize("text", ["", "<a>", "no xml", "<a>\0</a>", "<a b='c'>\x01<d/>"])
def test_damage_is_reported_with_its_reason(text: str) -> None:
    with pytest.raises(DocumentError) as failed:
        parse(text)
    assert failed.value.reason.startswith("damaged XML: ")


def test_too_many_levels_are_named() -> None:
    with pytest.raises(DocumentError, match="XML elements nested more than 256 deep"):
        parse("<a>" * 5000 + "</a>" * 5000)


def test_a_merged_cell_is_repeated_in_every_cell_that_it_covers() -> None:
    """Nearly every table of an article is like this; a row span ends with the group of rows."""
    text = (
        XmlParser()
        .parse(
            "file:///a.xml",
            b"""<doc><table>
<thead><tr><th rowspan="2">Drug</th><th colspan="2">Dose</th></tr><tr><th>Low</th><th>High</th></tr></thead>
<tbody><tr><td rowspan="2">A</td><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr>
<tr><td rowspan="9">B</td><td>5</td><td>6</td></tr></tbody>
<tfoot><tr><td>C</td><td colspan="x">7</td><td rowspan="99999999999">8</td></tr></tfoot></table></doc>""",
        )
        .text
    )
    assert text.splitlines() == [
        "| Drug | Dose / Low | Dose / High |",
        "| --- | --- | --- |",
        "| A | 1 | 2 |",
        "| A | 3 | 4 |",
        "| B | 5 | 6 |",
        "| C | 7 | 8 |",
    ]


def test_named_characters_of_html_are_kept() -> None:
    text = "<x>12&nbsp;&euro; caf&eacute; &amp;nbsp; <![CDATA[&eacute;]]> &NotEqualTilde;</x>"
    assert parse(text).text == "12 \u20ac caf\u00e9 &nbsp; &eacute; \u2242\u0338\n"
    declared = "<!DOCTYPE x [<!ENTITY eacute 'a trap'>]><x>a<p>&eacute;</p>z</x>"
    assert parse(declared).text == "a\n\nz\n"


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("<x><p>AT&T pays</p></x>", "AT&T pays\n"),
        ("<x><p>a &unknown; b</p></x>", "a &unknown; b\n"),
        ("<x><p>if 1 < 2 then</p></x>", "if 1 < 2 then\n"),
        ("<x><p>one</p><p>two <b>bold</p></x>", "one\n\ntwo bold\n"),
        ("<x><p>one</b> two</p><p>three</p></x>", "one two\n\nthree\n"),
        ("<x><p>one</p></x><x><p>two</p></x>", "one\n\ntwo\n"),
        ("<x><p>one</p><p><![CDATA[two", "one\n\ntwo\n"),
        ("<x><p a=b c='d & e'>one</p></x>", "one\n"),
        ("<x><dc:p>one</dc:p> two</x>", "one two\n"),
        ("<x><p>one\x01 two</p></x>", "one two\n"),
        ("<x><p>one</p><!-- no end <p>two</p></x>", "one\n"),
    ],
)
def test_damage_is_repaired_and_flagged(text: str, repaired: str) -> None:
    document = parse(text)
    assert (document.text, document.metadata) == (repaired, {"flags": ["repaired"]})


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<x><p>caf\xc3\xa9 \xff caf\xc3\xa9</p></x>", "caf\u00e9 \ufffd caf\u00e9\n"),
        (b"<?xml version='1.0' encoding='UTF-8'?><x><p>le caf\xe9</p></x>", "le caf\u00e9\n"),
    ],
)
def test_bytes_of_another_encoding_damage_no_other_characters(body: bytes, text: str) -> None:
    document = XmlParser().parse("file:///a.xml", body)
    assert (document.text, document.metadata) == (text, {"flags": ["repaired"]})


@pytest.mark.parametrize("encoding", ["utf-16", "cp949", "cp1255", "koi8-r"])
def test_declared_encodings_are_decoded(encoding: str) -> None:
    letters = {"cp949": "\ud55c\uae00", "cp1255": "\u05e9\u05dc\u05d5\u05dd"}.get(
        encoding, "\u0441\u043b\u043e\u0432\u043e"
    )
    text = f'<?xml version="1.0" encoding="{encoding}"?><x><p>{letters}</p></x>'
    document = XmlParser().parse("file:///a.xml", text.encode(encoding))
    assert (document.text, document.metadata) == (f"{letters}\n", {})


def test_breaks_and_blocks_keep_words_apart_and_inline_elements_are_not_items() -> None:
    text = "<x><p>one<br/>two</p><cell><p>a</p><p>b</p>c</cell><div>see <b>this</b><p>and</p>that<i>!</i></div></x>"
    assert parse(text).text == "one two\n\na\n\nb\n\nc\n\nsee this\n\nand\n\nthat!\n"
    table = "<x><table><tr><td><p>a</p>b<br/>c</td></tr></table></x>"
    assert "| a b c |" in parse(table).text


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["<!--", "<![CDATA[", "<a ", "<a b='", "<!DOCTYPE[", "</a>", "&a", "<a>&amp", "<?x"])
def test_no_repetition_takes_long(piece: str) -> None:
    with pytest.raises(DocumentError):
        parse(f"<x/>{piece * 20_000}")
