import pytest
from zips import zip_bytes

from rag_core.errors import DocumentError
from rag_core.parsing.office.opendocument import OpenDocumentParser
from rag_core.types import Document, Section

_SCHEMA = "urn:oasis:names:tc:opendocument:xmlns"
NAMES = ("office", "text", "table", "style", "presentation", "meta")
NAMESPACES = (
    " ".join(f'xmlns:{name}="{_SCHEMA}:{name}:1.0"' for name in NAMES)
    + f' xmlns:draw="{_SCHEMA}:drawing:1.0" xmlns:svg="{_SCHEMA}:svg-compatible:1.0"'
    + ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xlink="http://www.w3.org/1999/xlink"'
)
META = (
    "<dc:title>The title</dc:title><meta:initial-creator>Eva</meta:initial-creator><dc:date>2020-01-02</dc:date>"
    "<meta:keyword>a</meta:keyword><meta:keyword>b</meta:keyword><dc:language>de-DE</dc:language>"
)


def odf(kind: str, content: str, automatic: str = "", meta: str = "", **files: str) -> bytes:
    body = f"<office:body><office:{kind}>{content}</office:{kind}></office:body>"
    return zip_bytes(
        {
            "content.xml": document(f"<office:automatic-styles>{automatic}</office:automatic-styles>{body}"),
            "meta.xml": document(f"<office:meta>{meta}</office:meta>"),
            **{name.replace("__", "/") + ".xml": content for name, content in files.items()},
        }
    )


def document(content: str) -> str:
    return f"<office:document {NAMESPACES}>{content}</office:document>"


def parse(kind: str, content: str, automatic: str = "", meta: str = "", **files: str) -> Document:
    return OpenDocumentParser().parse("file:///a.odf", odf(kind, content, automatic, meta, **files))


def p(text: str, style: str = "") -> str:
    return f'<text:p text:style-name="{style}">{text}</text:p>'


def cell(text: str, properties: str = "") -> str:
    return f"<table:table-cell {properties}>{p(text) if text else ''}</table:table-cell>"


def rows(*cells: str, name: str = "S") -> str:
    lines = "".join(f"<table:table-row>{row}</table:table-row>" for row in cells)
    return f'<table:table table:name="{name}">{lines}</table:table>'


COVERED = "<table:covered-table-cell/>"


def test_headings_and_metadata() -> None:
    heading = '<text:h text:outline-level="2">Two</text:h>'
    title = '<style:style style:name="P1" style:parent-style-name="Title"/>'
    parsed = parse("text", p("One", "P1") + heading + p("text"), title, META)
    assert parsed.text == "# One\n\n## Two\n\ntext\n"
    assert parsed.sections[1] == Section(path=("One", "Two"), start=7)
    assert (parsed.title, parsed.language) == ("The title", "de-DE")
    assert parsed.metadata == {"author": "Eva", "date": "2020-01-02", "tags": ["a", "b"]}
    assert parsed.media_type == "application/vnd.oasis.opendocument.text"


def test_lists_are_numbered_in_the_format_of_their_style() -> None:
    level = '<text:list-level-style-number text:level="{}" style:num-format="{}" style:num-suffix="{}"/>'
    style = f'<text:list-style style:name="L">{level.format(1, "1", ".")}{level.format(2, "a", ")")}</text:list-style>'
    inner = f"<text:list><text:list-item>{p('b')}</text:list-item></text:list>"
    items = f"<text:list-item>{p('a')}{inner}</text:list-item><text:list-item>{p('c')}</text:list-item>"
    numbered, plain = f'<text:list text:style-name="L">{items}</text:list>', f"<text:list>{items}</text:list>"
    assert parse("text", numbered, style).text == "1. a\n    - a) b\n2. c\n"
    assert parse("text", plain, style).text == "- a\n    - b\n- c\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a<text:s/>b<text:tab/>c<text:line-break/>d", "a b c\nd"),
        ("a\n   b <text:span>c</text:span> d", "a b c d"),
        ('10<text:span text:style-name="up">5</text:span>', "10^5"),
        ("a<text:page-number>7</text:page-number>", "a"),
        ('<draw:frame><svg:desc>A red cat</svg:desc><draw:image xlink:href="c.png"/></draw:frame>', "A red cat"),
        (f"out<draw:frame><draw:text-box>{p('in')}</draw:text-box></draw:frame>side", "outside\n\nin"),
        ("a<office:annotation><dc:creator>Bo</dc:creator><text:p>why?</text:p></office:annotation>", "a\n\n> Bo: why?"),
        (
            f"a<text:note><text:note-citation>1</text:note-citation><text:note-body>{p('note')}</text:note-body></text:note>.",
            "a[^1].\n\n[^1]: note",
        ),
        ('is<draw:frame><draw:object xlink:href="./Object"/></draw:frame>', "is E = m c^2"),
    ],
)
def test_visible_text_is_kept(content: str, text: str) -> None:
    style = '<style:style style:name="up"><style:text-properties style:text-position="super 58%"/></style:style>'
    math = '<math xmlns="http://www.w3.org/1998/Math/MathML"><annotation>E = m c^2</annotation></math>'
    assert parse("text", p(content), style, Object__content=math).text.strip() == text


def test_deleted_text_and_the_table_of_contents_are_left_out() -> None:
    deleted = f"<text:tracked-changes><text:deletion>{p('old')}</text:deletion></text:tracked-changes>"
    contents = f"<text:table-of-content><text:index-body>{p('One 1')}</text:index-body></text:table-of-content>"
    assert parse("text", deleted + contents + p("text")).text == "text\n"


def test_a_hidden_section_is_left_out_even_in_a_cell() -> None:
    hidden = f'<text:section text:display="none">{p("hidden")}</text:section>'
    visible = f"<text:section>{p('shown')}</text:section>"
    assert parse("text", hidden + visible).text == "shown\n"
    both = f"<table:table-cell>{hidden}{visible}</table:table-cell>"
    assert parse("text", rows(both)).text == "| shown |\n| --- |\n"


def test_headers_and_footers_occur_once() -> None:
    pages = f"<style:header>{p('Company')}</style:header><style:footer>{p('Page 1')}</style:footer>"
    master = f"<office:master-styles><style:master-page>{pages}</style:master-page></office:master-styles>"
    assert parse("text", p("text"), styles=document(master)).text == "text\n\nCompany\n"


def test_merged_cells_are_repeated_in_each_cell_that_they_cover() -> None:
    first = cell("A", 'table:number-columns-spanned="2"') + COVERED + cell("B", 'table:number-rows-spanned="2"')
    text = parse("text", rows(first, cell("1") + cell("2") + COVERED)).text
    assert text == "| A | A | B |\n| --- | --- | --- |\n| 1 | 2 | B |\n"


def test_a_cell_has_its_displayed_text_and_not_its_value() -> None:
    far = 'table:number-columns-repeated="16000"'
    content = rows(
        cell("Share", 'office:value="1"') + cell("", far), cell("25 %", 'office:value="0.25"'), name="Shares"
    )
    parsed = parse("spreadsheet", content)
    assert (parsed.text, parsed.title) == ("## Shares\n\n| Share |\n| --- |\n| 25 % |\n", "")


def test_a_hidden_sheet_is_left_out() -> None:
    style = '<style:style style:name="h"><style:table-properties table:display="false"/></style:style>'
    hidden = rows(cell("x")).replace("<table:table ", '<table:table table:style-name="h" ')
    assert parse("spreadsheet", hidden + rows(cell("y"), name="T"), style).text == "## T\n\n| y |\n| --- |\n"


def test_repeated_rows_and_cells_make_a_table_of_limited_size() -> None:
    many = 'table:number-columns-repeated="99999999"'
    row = f'<table:table-row table:number-rows-repeated="99999999">{cell("x", many)}</table:table-row>'
    assert parse("spreadsheet", f"<table:table>{row}</table:table>").text.count("x") == 100 * 100


def test_nested_repetition_does_not_multiply() -> None:
    many = 'table:number-columns-repeated="100"'
    content = rows(cell("x", many))
    for _ in range(20):
        content = rows(f"<table:table-cell {many}>{content}</table:table-cell>")
    assert parse("text", content).text.count("x") <= 100


def test_each_slide_is_a_section_and_a_page() -> None:
    title = f'<draw:frame presentation:class="title"><draw:text-box>{p("One")}</draw:text-box></draw:frame>'
    body = f"<draw:custom-shape>{p('text')}</draw:custom-shape>"
    notes = f'<draw:frame presentation:class="notes"><draw:text-box>{p("say this")}</draw:text-box></draw:frame>'
    first = f"<draw:page>{title}{body}<presentation:notes>{notes}</presentation:notes></draw:page>"
    parsed = parse("presentation", first + f"<draw:page>{body}</draw:page>")
    assert parsed.text == "## One\n\ntext\n\nSpeaker notes:\n\nsay this\n\ntext\n"
    assert (parsed.title, parsed.pages) == ("One", (0, parsed.text.rindex("text")))


def test_an_encrypted_document_is_password_protected() -> None:
    manifest = '<m:manifest xmlns:m="urn:m"><m:file-entry><m:encryption-data/></m:file-entry></m:manifest>'
    body = zip_bytes({"META-INF/manifest.xml": manifest, "content.xml": b"\x00\x01"})
    with pytest.raises(DocumentError, match="password protected"):
        OpenDocumentParser().parse("a.odt", body)


def test_another_kind_is_refused() -> None:
    with pytest.raises(DocumentError, match="no OpenDocument text, spreadsheet or presentation"):
        parse("database", "")
