import pytest

from rag_core.errors import DocumentError
from rag_core.parsing.markup.html import HtmlParser
from rag_core.types import Document, Section


def parse(html: str) -> Document:
    return HtmlParser().parse("file:///a.html", html.encode())


def test_a_page_becomes_text_with_sections_title_and_metadata() -> None:
    document = parse(
        '<html lang="de-DE"><head><title>Das\n Buch</title><meta name="author" content="Eva"><meta name="date" '
        'content="2020-01-02"><meta name="keywords" content="a, b"></head><body><h1>Eins</h1><p>Ein <b>Wort</b>.</p>'
        "<h2>Zwei</h2></body></html>"
    )
    assert (document.title, document.language, document.media_type) == ("Das Buch", "de-DE", "text/html")
    assert document.text == "# Eins\n\nEin **Wort**.\n\n## Zwei\n"
    assert document.sections == (Section(path=("Eins",), start=0), Section(path=("Eins", "Zwei"), start=23))
    assert document.metadata == {"author": "Eva", "keywords": ["a", "b"], "meta-date": "2020-01-02"}


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<p>See <a href="http://x/">the link</a>.</p>', "See the link."),
        ('<p>A <img src="data:image/png;base64,AAAA" alt="red cat"> here</p>', "A red cat here"),
        ("<p>A <img src=x.png alt=cat data-alt=dog> here</p>", "A cat here"),
        ("<p>10<sup>5</sup> of H<sub>2</sub>O</p>", "10^5 of H2O"),
        ("<p>a</p><script>s</script><style>s</style><div hidden>s</div><div style='display:none'>s</div>", "a"),
        ("<nav>home</nav><p>a</p><div role=navigation>home</div>", "a"),
        ("<nav>nothing but this</nav>", "nothing but this"),
        ("<form><header><h1>T</h1></header><p>a</p></form>", "# T\n\na"),
        ("<hr><p>a: b</p><hr><p>c</p>", "---\n\na: b\n\n---\n\nc"),
        (
            "<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>",
            "| A | B |\n| --- | --- |\n| 1 | 2 |",
        ),
    ],
)
def test_visible_text_is_kept(html: str, text: str) -> None:
    assert parse(html).text.strip() == text


@pytest.mark.parametrize("end", ["<style>b { color: red }</sty", "<SCRIPT>b()", "<", "<p class='b", "<!-- b"])
def test_nothing_of_the_markup_of_a_cut_page_becomes_text(end: str) -> None:
    assert parse(f"<p>a</p><style>c</style>{end}").text == "a\n"


@pytest.mark.parametrize("end", ["a < b", "<!-- <script> --><p>b</p>"])
def test_the_end_of_a_whole_page_stays(end: str) -> None:
    assert parse(end).text.strip().endswith("b")


def test_a_page_of_one_pre_is_plain_text_titled_by_its_first_line() -> None:
    document = parse("<html>\n<pre>\n\nCurve-Fit &lt;2&gt;\n\n# no heading ```\n</pre>\n</html>")
    assert document.text == "Curve-Fit <2>\n\n# no heading ```"
    assert document.title == "Curve-Fit <2>"
    assert document.sections == ()


def test_two_pres_stay_code() -> None:
    assert parse("<pre>a</pre><pre>b</pre>").text.count("```") == 4


def test_a_meta_charset_is_used() -> None:
    page = '<html><head><meta charset="iso-8859-2"></head><p>Łódź</p></html>'
    assert HtmlParser().parse("a.html", page.encode("iso-8859-2")).text.strip() == "Łódź"


def test_a_page_nested_too_deep_fails_instead_of_losing_its_text() -> None:
    with pytest.raises(DocumentError, match="nested more than 1024 deep"):
        parse("<div>" * 3000 + "x" + "</div>" * 3000)


def test_the_link_sign_of_documentation_headings_is_removed() -> None:
    page = '<body><h1>Set-up<a class="headerlink" href="#i">\u00b6</a></h1><p>See <a href="x">this</a>.</p></body>'
    document = HtmlParser().parse("file:///a.html", page.encode())
    assert (document.title, document.text) == ("Set-up", "# Set-up\n\nSee this.\n")


def test_heads_of_several_rows_are_joined_and_signs_are_in_the_cells_of_their_numbers() -> None:
    body = b"""<p>Before</p><table><tr><th rowspan="2">Mill</th><th colspan="4">2023</th></tr>
<tr><th colspan="2">Sales</th><th colspan="2">Cost</th></tr>
<tr><td>Weir <b>x</b>|y</td><td>$</td><td>7</td><td>$</td><td>9</td></tr></table><p>After</p>"""
    assert HtmlParser().parse("file:///a.html", body).text == (
        "Before\n\n| Mill | 2023 / Sales | 2023 / Cost |\n| --- | --- | --- |\n"
        "| Weir **x**\\|y | $ 7 | $ 9 |\n\nAfter\n"
    )
