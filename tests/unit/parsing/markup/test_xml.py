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


@pytest.mark.parametrize("text", ["", "<a>", "no xml", "<a>&unknown;</a>", "<a>\0</a>", "<a>" * 5000 + "</a>" * 5000])
def test_damage_is_reported_with_its_reason(text: str) -> None:
    with pytest.raises(DocumentError) as failed:
        parse(text)
    assert failed.value.reason.startswith("damaged XML: ")


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
        "| Drug | Dose | Dose |",
        "| --- | --- | --- |",
        "| Drug | Low | High |",
        "| A | 1 | 2 |",
        "| A | 3 | 4 |",
        "| B | 5 | 6 |",
        "| C | 7 | 8 |",
    ]
