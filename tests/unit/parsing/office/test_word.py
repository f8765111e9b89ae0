import pytest
from zips import office, relations

from rag_core.errors import DocumentError
from rag_core.parsing.office.word import WordParser
from rag_core.types import Document, Section

NAMESPACES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml"'
)


def part(tag: str, content: str) -> str:
    return f"<w:{tag} {NAMESPACES}>{content}</w:{tag}>"


def docx(body: str, core: str = "", **parts: str) -> bytes:
    """A document. `parts` are the parts that it has relations to, by kind."""
    files = {f"word/{kind}.xml": content for kind, content in parts.items()}
    return office(
        "word/document.xml",
        {
            "word/document.xml": part("document", f"<w:body>{body}</w:body>"),
            "word/_rels/document.xml.rels": relations({kind: f"{kind}.xml" for kind in parts}),
            **files,
        },
        core,
    )


def parse(body: str, core: str = "", **parts: str) -> Document:
    return WordParser().parse("file:///a.docx", docx(body, core, **parts))


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def p(text: str, style: str = "", properties: str = "") -> str:
    return f'<w:p><w:pPr><w:pStyle w:val="{style}"/>{properties}</w:pPr>{run(text)}</w:p>'


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{p(text)}</w:tc>"


def rows(*cells: str) -> str:
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def numbering_properties(level: int, number: int = 1) -> str:
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'


NUMBERING = part(
    "numbering",
    '<w:abstractNum w:abstractNumId="0">'
    '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>'
    '<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/></w:lvl>'
    '</w:abstractNum><w:abstractNum w:abstractNumId="1">'
    '<w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="o"/></w:lvl></w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>'
    '<w:num w:numId="3"><w:abstractNumId w:val="0"/>'
    '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride></w:num>',
)
STYLES = part(
    "styles",
    '<w:style w:styleId="T"><w:name w:val="Title"/></w:style>'
    '<w:style w:styleId="H1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="H1"/></w:style>'
    '<w:style w:styleId="Deep"><w:name w:val="Deep"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>'
    '<w:style w:styleId="TOC1"><w:name w:val="toc 1"/></w:style>',
)


def test_headings_are_found_by_name_by_inheritance_and_by_outline_level() -> None:
    document = parse(p("One", "H1") + p("text") + p("Two", "Own") + p("Three", "Deep"), styles=STYLES)
    assert document.text == "# One\n\ntext\n\n# Two\n\n## Three\n"
    assert document.sections[-1] == Section(path=("Two", "Three"), start=document.text.index("## Three"))
    assert document.title == "One"


def test_the_core_properties_are_title_language_and_metadata() -> None:
    core = (
        "<dc:title>The title</dc:title><dc:creator>Eva; Bo</dc:creator><cp:keywords>a, b; c</cp:keywords>"
        "<dc:language>de-DE</dc:language><dcterms:created>2020-01-02T03:04:05Z</dcterms:created>"
    )
    document = parse(p("text"), core)
    assert (document.title, document.language) == ("The title", "de-DE")
    assert document.metadata == {"author": "Eva; Bo", "date": "2020-01-02T03:04:05Z", "tags": ["a", "b", "c"]}


def test_a_title_that_a_program_made_up_is_not_used() -> None:
    assert parse(p("One", "H1"), "<dc:title>Document1</dc:title>", styles=STYLES).title == "One"


def test_lists_are_counted_as_word_counts_them() -> None:
    first = (
        p("a", "", numbering_properties(0))
        + p("b", "", numbering_properties(1))
        + p("c", "", numbering_properties(1))
        + p("d", "", numbering_properties(0))
    )
    again = (
        p("bullet", "", numbering_properties(0, 2))
        + p("goes on", "", numbering_properties(0))
        + p("begins anew", "", numbering_properties(0, 3))
    )
    assert parse(first + again, numbering=NUMBERING).text.splitlines() == [
        *("1. a", "    - 1.a) b", "    - 1.b) c", "2. d", "- bullet", "3. goes on", "1. begins anew"),
    ]


def test_a_list_that_links_to_a_style_is_counted_like_the_list_of_that_style() -> None:
    linked = NUMBERING.replace('Id="0">', 'Id="0"><w:styleLink w:val="Legal"/>', 1).replace(
        "</w:numbering>",
        '<w:abstractNum w:abstractNumId="5"><w:numStyleLink w:val="Legal"/></w:abstractNum>'
        '<w:num w:numId="5"><w:abstractNumId w:val="5"/></w:num></w:numbering>',
    )
    text = parse(p("a", "", numbering_properties(0, 5)) + p("b", "", numbering_properties(1, 5)), numbering=linked).text
    assert text == "1. a\n    - 1.a) b\n"


def test_legal_numbering_has_digits_for_every_level() -> None:
    level = '<w:lvl w:ilvl="{}"><w:numFmt w:val="{}"/>{}<w:lvlText w:val="{}"/></w:lvl>'
    levels = level.format(0, "upperRoman", "", "Article %1") + level.format(1, "decimal", "<w:isLgl/>", "%1.%2")
    numbering = part(
        "numbering",
        f'<w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>',
    )
    text = parse(
        p("Rent", "H1", numbering_properties(0)) + p("Due", "H1", numbering_properties(1)),
        styles=STYLES,
        numbering=numbering,
    ).text
    assert text == "# Article I Rent\n\n# 1.1 Due\n"


def test_a_numbered_heading_keeps_its_number() -> None:
    text = parse(
        p("One", "H1", numbering_properties(0)) + p("Two", "H1", numbering_properties(0)),
        styles=STYLES,
        numbering=NUMBERING,
    ).text
    assert text == "# 1. One\n\n# 2. Two\n"


def test_merged_cells_are_repeated_in_each_cell_that_they_cover() -> None:
    wide, down, on = '<w:gridSpan w:val="2"/>', '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    text = parse(rows(cell("A", wide) + cell("B", down), cell("1") + cell("2|3") + cell("", on))).text
    assert text == "| A | A | B |\n| --- | --- | --- |\n| 1 | 2\\|3 | B |\n"


def test_a_table_in_a_cell_is_read_cell_by_cell() -> None:
    inner = f"<w:tc>{rows(cell('x') + cell('y'))}{p('z')}</w:tc>"
    assert parse(rows(cell("A") + inner, cell("1") + cell("2"))).text.startswith("| A | x y z |\n")


def test_a_single_cell_is_a_frame_around_text() -> None:
    assert parse(rows(f"<w:tc>{p('One', 'H1')}{p('text')}</w:tc>"), styles=STYLES).text == "# One\n\ntext\n"


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (run("a") + "<w:r><w:tab/></w:r>" + run("b") + "<w:r><w:br/></w:r>" + run("c"), "a b\nc"),
        (run("10") + run("5", '<w:vertAlign w:val="superscript"/>') + run(" m"), "10^5 m"),
        (run("seen") + run("hidden", "<w:vanish/>") + run("too", '<w:vanish w:val="0"/>'), "seentoo"),
        (f"<w:ins>{run('new')}</w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del>", "new"),
        (f"<w:hyperlink>{run('a link')}</w:hyperlink>", "a link"),
        (f"<w:sdt><w:sdtContent>{run('control')}</w:sdtContent></w:sdt>", "control"),
        (f"<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>{run('Click')}</w:sdtContent></w:sdt>", ""),
        (
            f'<w:sdt><w:sdtPr><w14:checkbox><w14:checked w14:val="1"/></w14:checkbox></w:sdtPr><w:sdtContent>'
            f"{run('X')}</w:sdtContent></w:sdt>{run(' done')}",
            "- [x] done",
        ),
        ('<w:r><w:sym w:font="Symbol" w:char="F061"/><w:sym w:font="Symbol" w:char="F0B3"/></w:r>', "\u03b1≥"),
        ("<w:r><w:instrText>PAGE</w:instrText></w:r>" + run("# no heading"), "\\# no heading"),
        (
            "<m:oMath><m:f><m:num><m:r><m:t>a+b</m:t></m:r></m:num><m:den><m:r><m:t>c</m:t></m:r></m:den></m:f>"
            "<m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath>",
            "(a+b)/cx^2",
        ),
        (
            '<w:r><w:drawing><wp:docPr id="1" descr="A red cat"/></w:drawing><w:drawing><wp:docPr id="2" '
            'descr="cat.png"/></w:drawing></w:r>',
            "A red cat",
        ),
    ],
)
def test_visible_text_is_kept(runs: str, text: str) -> None:
    assert parse(f"<w:p>{runs}</w:p>").text.strip() == text


def test_a_text_box_follows_its_paragraph_once() -> None:
    box = f"<w:txbxContent>{p('in the box')}</w:txbxContent>"
    choice = f"<mc:Choice><w:drawing>{box}</w:drawing></mc:Choice><mc:Fallback><w:pict>{box}</w:pict></mc:Fallback>"
    assert (
        parse(f"<w:p>{run('before')}<w:r><mc:AlternateContent>{choice}</mc:AlternateContent></w:r></w:p>").text
        == "before\n\nin the box\n"
    )


def test_notes_are_at_the_end_and_comments_after_their_paragraph() -> None:
    refers = '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:commentReference w:id="0"/></w:r>'
    document = parse(
        f"<w:p>{run('said')}{refers}</w:p>" + p("after"),
        footnotes=part("footnotes", f'<w:footnote w:id="2">{p("a note")}</w:footnote>'),
        comments=part("comments", f'<w:comment w:id="0" w:author="Bo">{p("really?")}</w:comment>'),
    )
    assert document.text == "said[^1]\n\n> Bo: really?\n\nafter\n\n[^1]: a note\n"


def test_headers_and_footers_occur_once_without_page_numbers() -> None:
    document = parse(
        p("text"),
        header1=part("hdr", p("Company")),
        header2=part("hdr", p("Company")),
        footer1=part("ftr", p("Page 1 of 10") + p("Confidential")),
    )
    assert document.text == "text\n\nCompany\n\nConfidential\n"


def test_a_table_of_contents_is_left_out() -> None:
    gallery = '<w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
    contents = f"<w:sdt>{gallery}<w:sdtContent>{p('One 1')}</w:sdtContent></w:sdt>{p('Two 2', 'TOC1')}"
    assert parse(contents + p("text"), styles=STYLES).text == "text\n"


def test_a_chart_is_a_table_of_its_series() -> None:
    def points(*values: str) -> str:
        return "".join(f'<c:pt idx="{place}"><c:v>{value}</c:v></c:pt>' for place, value in enumerate(values))

    values = points("4.4000000000000004", "5")
    series = f"<c:tx>{points('Sales')}</c:tx><c:cat>{points('Q1', 'Q2')}</c:cat><c:val>{values}</c:val>"
    chart = (
        f"<c:chartSpace {NAMESPACES}><c:chart><c:plotArea><c:ser>{series}</c:ser></c:plotArea></c:chart></c:chartSpace>"
    )
    drawing = '<w:r><w:drawing><c:chart r:id="chart"/></w:drawing></w:r>'
    assert parse(f"<w:p>{drawing}</w:p>", chart=chart).text == "|  | Sales |\n| --- | --- |\n| Q1 | 4.4 |\n| Q2 | 5 |\n"


def test_the_strict_variant_is_read_too() -> None:
    body = part("document", f"<w:body>{p('strict')}</w:body>").replace(
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "http://purl.oclc.org/ooxml/wordprocessingml/main",
    )
    assert WordParser().parse("a.docx", office("word/document.xml", {"word/document.xml": body})).text == "strict\n"


def test_another_office_document_is_refused() -> None:
    with pytest.raises(DocumentError, match="no document in word/"):
        WordParser().parse("a.docx", office("ppt/presentation.xml", {"ppt/presentation.xml": "<a/>"}))


@pytest.mark.parametrize("depth", [60, 120, 250])
def test_deep_nesting_ends_in_text_or_in_a_refusal(depth: int) -> None:
    open_, close = "<w:sdt><w:sdtContent>" * (depth // 2), "</w:sdtContent></w:sdt>" * (depth // 2)
    try:
        assert parse(open_ + p("deep") + close).text == "deep\n"
    except DocumentError as error:
        assert depth > 200, error  # noqa: PT017 - small depths must be read


def test_a_note_that_refers_to_itself_ends() -> None:
    note = f'<w:footnote w:id="2"><w:p>{run("again")}<w:r><w:footnoteReference w:id="2"/></w:r></w:p></w:footnote>'
    text = parse('<w:p><w:r><w:footnoteReference w:id="2"/></w:r></w:p>', footnotes=part("footnotes", note)).text
    assert text == "[^1]\n\n[^1]: again[^1]\n"


def test_a_comment_on_itself_is_refused() -> None:
    refers = '<w:p><w:r><w:commentReference w:id="0"/></w:r></w:p>'
    with pytest.raises(DocumentError, match="nested too deep"):
        parse(refers, comments=part("comments", f'<w:comment w:id="0">{refers}</w:comment>'))
