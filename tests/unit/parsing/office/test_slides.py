from zips import office, relations

from rag_core.parsing.office.slides import SlidesParser
from rag_core.types import Document

NAMESPACES = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)


def parse(*slides: str, core: str = "", notes: str = "", comments: str = "") -> Document:
    """Parses a presentation of these slides; the first one has the notes and the comments."""
    ids = "".join(f'<p:sldId r:id="slide{number}"/>' for number in range(len(slides)))
    targets = {f"slide{number}": f"slides/slide{number}.xml" for number in range(len(slides))}
    files = {
        "ppt/presentation.xml": f"<p:presentation {NAMESPACES}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations({**targets, "commentAuthors": "authors.xml"}),
        "ppt/authors.xml": f'<p:cmAuthorLst {NAMESPACES}><p:cmAuthor id="0" name="Bo"/></p:cmAuthorLst>',
        "ppt/slides/_rels/slide0.xml.rels": relations({"notesSlide": "../notes.xml", "comments": "../comments.xml"}),
        "ppt/notes.xml": slide(notes),
        "ppt/comments.xml": f"<p:cmLst {NAMESPACES}>{comments}</p:cmLst>",
    }
    files |= {f"ppt/slides/slide{number}.xml": slide(content) for number, content in enumerate(slides)}
    return SlidesParser().parse("file:///a.pptx", office("ppt/presentation.xml", files, core))


def slide(content: str) -> str:
    shows = 'show="0"' if "hidden" in content else ""
    return f"<p:sld {NAMESPACES} {shows}><p:cSld><p:spTree>{content}</p:spTree></p:cSld></p:sld>"


def shape(*paragraphs: str, role: str = "", description: str = "") -> str:
    place = f'<p:nvPr><p:ph type="{role}"/></p:nvPr>' if role else ""
    lines = "".join(f"<a:p>{content}</a:p>" for content in paragraphs)
    name = f'<p:cNvPr id="1" name="x" descr="{description}"/>'
    return f"<p:sp><p:nvSpPr>{name}{place}</p:nvSpPr><p:txBody>{lines}</p:txBody></p:sp>"


def words(text: str, properties: str = "") -> str:
    return f"{properties}<a:r><a:t>{text}</a:t></a:r>"


def test_each_slide_is_a_section_and_a_page() -> None:
    document = parse(shape(words("one"), role="title") + shape(words("text")), shape(words("no title")))
    assert document.text == "## one\n\ntext\n\nno title\n"
    assert document.pages == (0, document.text.index("no title"))
    assert [section.path for section in document.sections] == [("one",), ()]
    assert document.title == "one"


def test_a_slide_without_words_is_a_page() -> None:
    document = parse(shape(words("one")), "", shape(words("three")))
    assert (document.text, document.pages) == ("one\n\n\nthree\n", (0, 5, 6))


def test_a_hidden_slide_is_an_empty_page() -> None:
    document = parse(shape(words("one")), shape(words("hidden"), role="title"), shape(words("three")))
    assert (document.text, document.pages) == ("one\n\n\nthree\n", (0, 5, 6))


def test_a_deck_without_titles_is_not_titled_by_a_number() -> None:
    assert parse(shape(words("text"))).title == ""
    assert parse(shape(words("text")), core="<dc:title>Deck</dc:title>").title == "Deck"


def test_the_paragraphs_of_a_body_are_a_list() -> None:
    body = shape(words("a"), words("b", '<a:pPr lvl="1"/>'), words("c", "<a:pPr><a:buNone/></a:pPr>"), role="body")
    assert parse(body).text == "- a\n    - b\n\nc\n"


def test_a_table_keeps_its_merged_cells() -> None:
    def cell(text: str, merge: str = "") -> str:
        return f"<a:tc {merge}><a:txBody><a:p>{words(text)}</a:p></a:txBody></a:tc>"

    first = cell("A", 'gridSpan="2"') + cell("", 'hMerge="1"') + cell("B", 'rowSpan="2"')
    second = cell("1") + cell("2") + cell("", 'vMerge="1"')
    table = f"<p:graphicFrame><a:tbl><a:tr>{first}</a:tr><a:tr>{second}</a:tr></a:tbl></p:graphicFrame>"
    assert parse(table).text.endswith("| A | A | B |\n| --- | --- | --- |\n| 1 | 2 | B |\n")


def test_notes_comments_and_alternative_texts_are_kept_and_furniture_is_not() -> None:
    document = parse(
        shape(words("text"), description="A red cat")
        + shape(words("7"), role="sldNum")
        + shape(words("f"), role="ftr"),
        notes=shape(words("say this"), role="body") + shape(words("7"), role="sldNum"),
        comments='<p:cm authorId="0"><p:text>why?</p:text></p:cm>',
    )
    assert document.text == "A red cat\n\ntext\n\n> Bo: why?\n\nSpeaker notes:\n\nsay this\n"


def test_shapes_in_groups_are_read_and_line_breaks_are_kept() -> None:
    group = f"<p:grpSp><p:grpSp>{shape(words('a') + '<a:br/>' + words('b'))}</p:grpSp></p:grpSp>"
    assert parse(group).text == "a\nb\n"


def test_numbered_paragraphs_keep_their_numbers() -> None:
    def step(text: str, scheme: str = "arabicPeriod", more: str = "", level: int = 0) -> str:
        return words(text, f'<a:pPr lvl="{level}"><a:buAutoNum type="{scheme}" {more}/></a:pPr>')

    steps = shape(
        step("a"),
        step("b", "alphaLcParenR", level=1),
        step("c", "alphaLcParenR", level=1),
        step("d"),
        words("between"),
        step("e", more='startAt="5"'),
        step("f", "anotherScheme"),
    )
    assert parse(steps).text == "1. a\n    - a) b\n    - b) c\n2. d\n\nbetween\n\n5. e\n- f\n"


def test_a_comment_has_its_author_and_its_time() -> None:
    new = '<m:reply xmlns:m="urn:m" authorId="9" created="2026-06-18T17:35:35.236"><m:txBody>so</m:txBody></m:reply>'
    document = parse(
        shape(words("text")),
        comments=f'<p:cm authorId="0" dt="2026-01-02T09:30:00"><p:text>why?</p:text></p:cm>{new}',
    )
    assert document.text == "text\n\n> Bo, 2026-01-02 09:30: why?\n\n> 2026-06-18 17:35: so\n"
