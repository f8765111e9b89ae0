"""XML of any kind, JATS articles and feeds.

The names of elements decide what is a heading, paragraph, list or table.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby

from rag_core.parsing.blocks import Block, heading, join_blocks, list_item, paragraph
from rag_core.parsing.flags import with_flags
from rag_core.parsing.lenient_xml import REPAIRED, parse_lenient_xml
from rag_core.parsing.markup.feeds import parse_feed
from rag_core.parsing.outline import with_outline
from rag_core.parsing.safe_xml import Element, child_elements
from rag_core.parsing.tables import Cell, CoveredBy, table
from rag_core.types import Document, Metadata, Value

VERSION = 3

_HEADINGS = {"title", "head", "heading", "caption-title", "h1", "h2", "h3", "h4", "h5", "h6"}
_SECTIONS = {"section", "sec", "chapter", "part", "div", "div1", "div2", "div3", "div4", "appendix", "app", "article"}
_SECTIONS |= {f"sect{level}" for level in range(1, 6)} | {
    "abstract",
    "ack",
    "ref-list",
    "glossary",
    "topic",
    "subsection",
}
_PARAGRAPHS = {"p", "para", "simpara", "paragraph", "quote", "blockquote", "disp-formula", "verse", "l"}
_TABLES = {"table", "tgroup", "informaltable"}
_ROWS = {"row", "tr"}
_LISTS = {"list", "ul", "ol", "itemizedlist", "orderedlist", "simplelist", "listbibl"}
_ITEMS = {"item", "li", "listitem", "list-item", "member"}
_BLOCKS = (
    _HEADINGS | _SECTIONS | _PARAGRAPHS | _TABLES | _LISTS | _ITEMS | {"fig", "table-wrap", "boxed-text", "figure"}
)
_BREAKS = {"br", "lb", "break", "cr"}
_SEPARATED = _BLOCKS | _BREAKS
_INLINE = {"a", "abbr", "b", "big", "bold", "cite", "code", "del", "em", "emph", "emphasis", "ext-link", "font", "hi"}
_INLINE |= {"i", "ins", "it", "italic", "kbd", "link", "literal", "mark", "monospace", "q", "ref", "roman", "s", "sc"}
_INLINE |= {"small", "span", "strike", "strong", "sub", "sup", "tt", "u", "ulink", "underline", "uri", "var", "xref"}
_INVISIBLE_ELEMENTS = {"script", "style", "tex-math", "annotation", "object-id", "alt-text"}
_MAX_TITLE_CHARS = 300
_MAX_SPAN = 63


class XmlParser:
    def parse(self, uri: str, body: bytes) -> Document:
        xml = parse_lenient_xml(body)
        return with_flags(_parse_root(uri, xml.root), [REPAIRED] if xml.is_repaired else ())


def _parse_root(uri: str, root: Element) -> Document:
    articles = (article for article in root.iter("{*}article") if article.find("{*}front") is not None)
    if (article := next(articles, None)) is not None:
        return _parse_article(uri, article)
    if feed := parse_feed(uri, root):
        return feed
    text = join_blocks(_parse_element(root, 1))
    title = next((title for element in root.iter("{*}title") if (title := _visible_text(element))), "")
    title = title if len(title) <= _MAX_TITLE_CHARS else ""
    return with_outline(Document(uri=uri, text=text, title=title, media_type="application/xml"))


def _local_name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2].lower()


def _visible_text(element: Element | None) -> str:
    """The visible text in the element, on one line."""
    return "" if element is None else " ".join("".join(_text_pieces(element)).split())


def _text_pieces(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str) and _local_name(child) not in _INVISIBLE_ELEMENTS:
            separator = " " if _local_name(child) in _SEPARATED else ""
            yield separator
            yield from _text_pieces(child)
            yield separator
        yield child.tail or ""


def _parse_element(element: Element, level: int) -> Iterator[Block]:
    name = _local_name(element)
    if name in _HEADINGS:
        yield heading(level, _visible_text(element))
    elif name in _TABLES:
        yield table(parse_table(element))
    elif name in _LISTS:
        yield from _parse_list(element, 0)
    elif name not in _INVISIBLE_ELEMENTS:
        yield from _parse_content(element, level + 1 if name in _SECTIONS and level else level)


def _parse_content(element: Element, level: int) -> Iterator[Block]:
    """The blocks of the children. A child without children is a field of a record: its name explains its text."""
    children = list(child_elements(element))
    is_text = _has_mixed_content(element) or _local_name(element) in _PARAGRAPHS
    if is_text and not any(_local_name(inner) in _BLOCKS for child in children for inner in child.iter("*")):
        yield paragraph(_visible_text(element))
        return
    text = element.text or ""
    for child in children:
        name = _local_name(child)
        if name in _BREAKS or (name in _INLINE and (text.strip() or (child.tail or "").strip())):
            text += f" {_visible_text(child)} " if name in _BREAKS else "".join(_text_pieces(child))
        else:
            yield paragraph(" ".join(text.split()))
            text = ""
            has_children = any(True for _ in child_elements(child))
            if has_children or name in _BLOCKS | _INVISIBLE_ELEMENTS:
                yield from _parse_element(child, level)
            elif value := _visible_text(child):
                yield list_item(f"{name}: {value}")
        text += child.tail or ""
    yield paragraph(" ".join(text.split()))


def _has_mixed_content(element: Element) -> bool:
    """True if there is text next to the children."""
    return bool((element.text or "").strip()) or any((child.tail or "").strip() for child in element)


def parse_table(element: Element) -> list[list[Cell]]:
    """The rows. As in HTML, a cell can span columns, and rows of the same group."""
    rows: list[list[Cell]] = []
    for _, group in groupby(
        (row for row in element.iter("*") if _local_name(row) in _ROWS), lambda row: row.getparent()
    ):
        rows_left: dict[int, int] = {}
        rows += [_parse_row(row, rows_left) for row in group]
    return rows


def _parse_row(row: Element, rows_left: dict[int, int]) -> list[Cell]:
    """`rows_left` holds, by column, how many more rows a cell above covers."""
    cells: list[Cell] = []
    for cell in child_elements(row):
        cells += _cells_from_above(len(cells), rows_left)
        columns, rows = _cell_span(cell, "colspan"), _cell_span(cell, "rowspan")
        for column in range(columns):
            rows_left[len(cells)] = rows - 1
            cells.append(CoveredBy.LEFT if column else _visible_text(cell))
    return [*cells, *_cells_from_above(len(cells), rows_left)]


def _cells_from_above(start: int, rows_left: dict[int, int]) -> list[Cell]:
    """The cells from column `start` on that cells above cover."""
    covered: list[Cell] = []
    while rows_left.get(column := start + len(covered), 0) > 0:
        rows_left[column] -= 1
        covered.append(CoveredBy.ABOVE)
    return covered


def _cell_span(cell: Element, attribute: str) -> int:
    count = cell.get(attribute, "")[:4]
    return max(1, min(int(count), _MAX_SPAN)) if count.isdecimal() else 1


def _parse_list(element: Element, level: int) -> Iterator[Block]:
    for child in child_elements(element):
        if _local_name(child) in _HEADINGS:
            yield paragraph(_visible_text(child))
            continue
        inner_lists = [inner for inner in child_elements(child) if _local_name(inner) in _LISTS]
        yield list_item(_text_without(child, inner_lists), level=level)
        for inner in inner_lists:
            yield from _parse_list(inner, min(level + 1, 6))


def _text_without(element: Element, excluded: Collection[Element]) -> str:
    """The visible text without that of the excluded children."""
    if not excluded:
        return _visible_text(element)
    excluded_children = set(excluded)
    texts = [element.text or ""]
    for child in child_elements(element):
        texts += [" " if child in excluded_children else f" {_visible_text(child)}", child.tail or ""]
    return " ".join("".join(texts).split())


def _parse_article(uri: str, article: Element) -> Document:
    meta = article.find("{*}front/{*}article-meta")
    front = article.find("{*}front") if meta is None else meta
    title = _visible_text(None if front is None else front.find(".//{*}article-title"))
    metadata = {} if front is None else _article_metadata(front, article)
    text = join_blocks(_article_blocks(article, front, title))
    document = Document(uri=uri, text=text, title=title, media_type="application/jats+xml")
    language = article.get("{http://www.w3.org/XML/1998/namespace}lang", "")
    return replace(with_outline(document), title=title, metadata=metadata, language=language)


def _article_blocks(article: Element, front: Element | None, title: str) -> Iterator[Block]:
    yield heading(1, title)
    if front is not None:
        yield paragraph(", ".join(_authors(front)))
        affiliations: list[str] = []
        for affiliation in front.iterfind(".//{*}aff"):
            parent = affiliation.getparent()
            if parent is not None and _local_name(parent) != "contrib":
                parts = [_visible_text(part) for part in child_elements(affiliation) if _local_name(part) != "label"]
                is_mixed = _has_mixed_content(affiliation)
                affiliations.append(_visible_text(affiliation) if is_mixed else ", ".join(filter(None, parts)))
        yield paragraph("; ".join(affiliations))
        for abstract in front.iterfind("{*}abstract"):
            if abstract.find("{*}title") is None:
                yield heading(2, "Abstract")
            yield from _parse_section(abstract, 2)
    for name in ("body", "back", "floats-group"):
        part = article.find(f"{{*}}{name}")
        for child in child_elements(part) if part is not None else ():
            yield from _parse_section(child, 2)


def _parse_section(element: Element, level: int) -> Iterator[Block]:
    """`level` is the level of the section's title."""
    match _local_name(element):
        case "sec" | "abstract" | "app" | "app-group" | "ack" | "glossary" | "notes" | "fn-group":
            yield from _parse_titled_section(element, level)
        case "ref-list":
            yield heading(level, _visible_text(element.find("{*}title")) or "References")
            yield from (list_item(_format_reference(reference)) for reference in element.iterfind("{*}ref"))
        case "table-wrap" | "fig" | "table-wrap-group" | "fig-group":
            yield from _parse_figure(element, level)
        case "p":  # figures, tables and lists within a paragraph follow it
            floats = ("fig", "table-wrap", "list", "fig-group")
            following = [child for child in child_elements(element) if _local_name(child) in floats]
            yield paragraph(_text_without(element, following))
            for child in following:
                yield from _parse_section(child, level)
        case "list":
            yield from _parse_list(element, 0)
        case "disp-quote" | "boxed-text" | "supplementary-material":
            yield from _parse_titled_section(element, level)
        case _:
            yield paragraph(_visible_text(element))


def _parse_titled_section(element: Element, level: int) -> Iterator[Block]:
    title = element.find("{*}title")
    label = _visible_text(element.find("{*}label"))
    yield heading(level, f"{label} {_visible_text(title)}")
    for child in child_elements(element):
        if _local_name(child) not in ("title", "label", "sec-meta"):
            yield from _parse_section(child, level + 1 if title is not None else level)


def _parse_figure(element: Element, level: int) -> Iterator[Block]:
    label, caption = _visible_text(element.find("{*}label")), _visible_text(element.find("{*}caption"))
    yield paragraph(f"{label} {caption}")
    for child in child_elements(element):
        match _local_name(child):
            case "label" | "caption" | "graphic" | "object-id":
                continue
            case "table":
                yield table(parse_table(child))
            case "alternatives":
                yield from (table(parse_table(inner)) for inner in child.iterfind("{*}table"))
            case _:
                yield from _parse_section(child, level)


def _format_reference(reference: Element) -> str:
    """Authors, title, source, year and identifiers. The parts of an element citation are not separated by blanks."""
    citations = (child for child in child_elements(reference) if "citation" in _local_name(child))
    citation = next(citations, reference)
    if _has_mixed_content(citation):
        return _visible_text(citation)
    authors = ", ".join(_person_name(name) for name in citation.iter("{*}name"))
    other_parts = [
        _visible_text(child)
        for child in child_elements(citation)
        if _local_name(child) not in ("person-group", "name", "pub-id")
    ]
    ids = [f"{id.get('pub-id-type', '').upper()}: {_visible_text(id)}" for id in citation.iterfind("{*}pub-id")]
    return ", ".join(filter(None, (authors, *other_parts, *ids)))


def _person_name(element: Element) -> str:
    return " ".join(filter(None, (_visible_text(element.find(f"{{*}}{part}")) for part in ("given-names", "surname"))))


def _authors(front: Element) -> list[str]:
    authors: list[str] = []
    for contributor in front.iterfind(".//{*}contrib-group/{*}contrib"):
        if contributor.get("contrib-type", "author") == "author":
            name = contributor.find(".//{*}name")
            group = contributor.find(".//{*}collab")
            authors.append(_visible_text(group) if name is None else _person_name(name))
    return [author for author in authors if author]


def _article_metadata(front: Element, article: Element) -> Metadata:
    """The metadata of the article. Its date is the most complete one of its publication dates."""
    dates = (
        tuple(_visible_text(date.find(f"{{*}}{part}")) for part in ("year", "month", "day"))
        for date in front.iterfind("{*}pub-date")
    )
    date = max(dates, key=lambda parts: sum(map(bool, parts)), default=())
    metadata: dict[str, Value] = {
        "authors": _authors(front),
        "keywords": [_visible_text(keyword) for keyword in front.iterfind(".//{*}kwd")],
        "date": "-".join(part.zfill(2) for part in date if part.isdigit()),
        "journal": _visible_text(article.find(".//{*}journal-title")),
        "doi": _visible_text(front.find("{*}article-id[@pub-id-type='doi']")),
        "pmid": _visible_text(front.find("{*}article-id[@pub-id-type='pmid']")),
    }
    return {key: value for key, value in metadata.items() if value}
