"""Feeds by entry."""

from rag_core.parsing.document import parse
from rag_core.parsing.markup.xml import XmlParser

RSS = """<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel><title>Mill news</title>
<link>https://example.org</link><description>All of it</description>
<item><title>Wheels &amp;amp; stones</title><link>https://example.org/1</link>
<pubDate>Mon, 01 Jun 2020 10:00:00 +0200</pubDate><description>Short</description>
<content:encoded><![CDATA[<h2>Oak</h2><p>It <b>turns</b>.</p>]]></content:encoded></item>
<item><title>Bare</title><pubDate>some day</pubDate></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Mill log</title><subtitle>Days</subtitle>
<entry><title type="html">On &lt;i>oak&lt;/i></title><link rel="alternate" href="https://example.org/a"/>
<updated>2021-02-03T04:05:06Z</updated><content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>One</p>
<p>Two</p></div></content></entry></feed>"""
OPML = """<opml version="2.0"><head><title>Subscriptions</title></head><body><outline text="Mills">
<outline text="Ferry" xmlUrl="https://example.org/f.xml"/></outline><outline title="Alone"/></body></opml>"""


def test_rss_has_title_date_link_and_the_whole_content_of_each_entry() -> None:
    document = XmlParser().parse("file:///a.rss", RSS.encode())
    assert document.text == (
        "# Mill news\n\nAll of it\n\n## Wheels & stones\n\n2020-06-01 https://example.org/1\n\nOak\n\nIt **turns**.\n\n"
        "## Bare\n\nsome day\n"
    )
    assert (document.title, document.media_type) == ("Mill news", "application/rss+xml")


def test_atom_has_xhtml_and_links_in_attributes() -> None:
    document = XmlParser().parse("file:///a.atom", ATOM.encode())
    assert document.text == ("# Mill log\n\nDays\n\n## On *oak*\n\n2021-02-03 https://example.org/a\n\nOne\n\nTwo\n")
    assert document.media_type == "application/atom+xml"


def test_opml_is_an_outline() -> None:
    text = XmlParser().parse("file:///a.opml", OPML.encode()).text
    assert text == "# Subscriptions\n\n- Mills\n    - Ferry https://example.org/f.xml\n- Alone\n"


def test_a_feed_is_recognised_by_its_root_and_keeps_the_flag_of_a_repair() -> None:
    document = parse("file:///feed", RSS.replace("Short", "A & B").encode(), False, 1.0, 1.0)
    assert document.metadata["format"] == "xml"
    assert document.metadata["flags"] == ["repaired"]
    assert document.title == "Mill news"
