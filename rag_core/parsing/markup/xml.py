"""XML of any kind: what looks like a heading, paragraph, list or table is one; JATS articles in particular."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from rag_core.parsing.blocks import Block, heading, joined, listed, paragraph
from rag_core.parsing.outline import outlined
from rag_core.parsing.safe_xml import Element, elements, parsed
from rag_core.parsing.tables import Cell, Covered, table
from rag_core.types import Document, Metadata, Value

VERSION = 2

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
_UNSEEN = {"script", "style", "tex-math", "annotation", "object-id", "alt-text"}
_LONGEST_TITLE = 300
_WIDEST = 63


class XmlParser:
    def parse(self, uri: str, body: bytes) -> Document:
        root = parsed(body)
        article = _article(root)
        if article is not None:
            return _jats(uri, article)
        text = joined(_blocks(root, 1))
        title = next((spoken for each in root.iter("{*}title") if (spoken := _spoken(each))), "")
        titled = title if len(title) <= _LONGEST_TITLE else ""
        return outlined(Document(uri=uri, text=text, title=titled, media_type="application/xml"))


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2].lower()


def _spoken(element: Element | None) -> str:
    """All text that is read in it, on one line."""
    return "" if element is None else " ".join("".join(_texts(element)).split())


def _texts(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str) and _name(child) not in _UNSEEN:
            yield " " if _name(child) in _BLOCKS else ""
            yield from _texts(child)
        yield child.tail or ""


def _blocks(element: Element, level: int) -> Iterator[Block]:
    name = _name(element)
    if name in _HEADINGS:
        yield heading(level, _spoken(element))
    elif name in _TABLES:
        yield table(_rows(element))
    elif name in _LISTS:
        yield from _listed(element, 0)
    elif name not in _UNSEEN:
        yield from _inside(element, level + 1 if name in _SECTIONS and level else level)


def _inside(element: Element, level: int) -> Iterator[Block]:
    children = list(elements(element))
    is_text = _is_mixed(element) or _name(element) in _PARAGRAPHS
    if is_text and not any(_has_blocks(child) for child in children):
        yield paragraph(_spoken(element))
        return
    if element.text and element.text.strip():
        yield paragraph(" ".join(element.text.split()))
    for child in children:
        yield from _leaf(child) if _is_leaf(child) else _blocks(child, level)
        if child.tail and child.tail.strip():
            yield paragraph(" ".join(child.tail.split()))


def _has_blocks(element: Element) -> bool:
    return any(_name(each) in _BLOCKS for each in element.iter("*"))


def _is_mixed(element: Element) -> bool:
    return bool((element.text or "").strip()) or any((child.tail or "").strip() for child in element)


def _is_leaf(element: Element) -> bool:
    return not any(True for _ in elements(element)) and _name(element) not in _BLOCKS | _UNSEEN


def _leaf(element: Element) -> Iterator[Block]:
    """An element of a record: its name says what its text means."""
    text = _spoken(element)
    if text:
        yield listed(f"{_name(element)}: {text}")


def _rows(element: Element) -> list[list[Cell]]:
    """As HTML has them: a cell may reach over columns, and over rows of the same group."""
    rows: list[list[Cell]] = []
    for _, group in groupby((row for row in element.iter("*") if _name(row) in _ROWS), lambda row: row.getparent()):
        reaching: dict[int, int] = {}
        rows += [_row(row, reaching) for row in group]
    return rows


def _row(row: Element, reaching: dict[int, int]) -> list[Cell]:
    """`reaching` says by column over how many rows more a cell above reaches."""
    cells: list[Cell] = []
    for cell in elements(row):
        cells += _covered(len(cells), reaching)
        columns, rows = (_span(cell, name) for name in ("colspan", "rowspan"))
        for column in range(columns):
            reaching[len(cells)] = rows - 1
            cells.append(Covered.LEFT if column else _spoken(cell))
    return [*cells, *_covered(len(cells), reaching)]


def _covered(column: int, reaching: dict[int, int]) -> list[Cell]:
    """By cells above, from that column on."""
    covered: list[Cell] = []
    while reaching.get(place := column + len(covered), 0) > 0:
        reaching[place] -= 1
        covered.append(Covered.ABOVE)
    return covered


def _span(cell: Element, name: str) -> int:
    count = cell.get(name, "")[:4]
    return max(1, min(int(count), _WIDEST)) if count.isdecimal() else 1


def _listed(element: Element, level: int) -> Iterator[Block]:
    for each in elements(element):
        if _name(each) in _HEADINGS:
            yield paragraph(_spoken(each))
            continue
        inner = [child for child in elements(each) if _name(child) in _LISTS]
        yield listed(_without(each, inner), level=level)
        for child in inner:
            yield from _listed(child, min(level + 1, 6))


def _without(element: Element, inner: Iterable[Element]) -> str:
    left_out = set(inner)
    if not left_out:
        return _spoken(element)
    texts = [element.text or ""]
    for child in elements(element):
        texts += [" " if child in left_out else f" {_spoken(child)}", child.tail or ""]
    return " ".join("".join(texts).split())


def _article(root: Element) -> Element | None:
    """A JATS article, or the first one in what an archive wraps around it."""
    return next((each for each in root.iter("{*}article") if each.find("{*}front") is not None), None)


def _jats(uri: str, article: Element) -> Document:
    meta = article.find("{*}front/{*}article-meta")
    front = article.find("{*}front") if meta is None else meta
    title = _spoken(None if front is None else front.find(".//{*}article-title"))
    metadata = {} if front is None else _metadata(front, article)
    document = Document(
        uri=uri, text=joined(_parts(article, front, title)), title=title, media_type="application/jats+xml"
    )
    language = article.get("{http://www.w3.org/XML/1998/namespace}lang", "")
    return replace(outlined(document), title=title, metadata=metadata, language=language)


def _parts(article: Element, front: Element | None, title: str) -> Iterator[Block]:
    yield heading(1, title)
    if front is not None:
        yield paragraph(", ".join(_authors(front)))
        yield paragraph("; ".join(_affiliations(front)))
        for abstract in front.iterfind("{*}abstract"):
            yield from [] if abstract.find("{*}title") is not None else [heading(2, "Abstract")]
            yield from _section(abstract, 2)
    for part in ("body", "back", "floats-group"):
        for each in elements(found) if (found := article.find(f"{{*}}{part}")) is not None else ():
            yield from _section(each, 2)


def _section(element: Element, level: int) -> Iterator[Block]:
    """`level` is that of its title."""
    match _name(element):
        case "sec" | "abstract" | "app" | "app-group" | "ack" | "glossary" | "notes" | "fn-group":
            yield from _titled(element, level)
        case "ref-list":
            yield heading(level, _spoken(element.find("{*}title")) or "References")
            yield from (listed(_reference(each)) for each in element.iterfind("{*}ref"))
        case "table-wrap" | "fig" | "table-wrap-group" | "fig-group":
            yield from _figure(element, level)
        case "p":
            yield from _paragraph(element, level)
        case "list":
            yield from _listed(element, 0)
        case "disp-quote" | "boxed-text" | "supplementary-material":
            yield from _titled(element, level)
        case _:
            yield paragraph(_spoken(element))


def _titled(element: Element, level: int) -> Iterator[Block]:
    title = element.find("{*}title")
    label = _spoken(element.find("{*}label"))
    yield heading(level, f"{label} {_spoken(title)}")
    for child in elements(element):
        if _name(child) not in ("title", "label", "sec-meta"):
            yield from _section(child, level + 1 if title is not None else level)


def _paragraph(element: Element, level: int) -> Iterator[Block]:
    """Figures, tables and lists may stand within it: they follow it."""
    apart = [child for child in elements(element) if _name(child) in ("fig", "table-wrap", "list", "fig-group")]
    yield paragraph(_without(element, apart))
    for child in apart:
        yield from _section(child, level)


def _figure(element: Element, level: int) -> Iterator[Block]:
    label, caption = _spoken(element.find("{*}label")), _spoken(element.find("{*}caption"))
    yield paragraph(f"{label} {caption}")
    for child in elements(element):
        match _name(child):
            case "label" | "caption" | "graphic" | "object-id":
                continue
            case "table":
                yield table(_rows(child))
            case "alternatives":
                yield from (table(_rows(each)) for each in child.iterfind("{*}table"))
            case _:
                yield from _section(child, level)


def _reference(element: Element) -> str:
    """Authors, title, source, year: the parts of an element citation stand beside each other without a blank."""
    citation = next((each for each in elements(element) if "citation" in _name(each)), element)
    if _is_mixed(citation):
        return _spoken(citation)
    authors = ", ".join(_person(each) for each in citation.iter("{*}name"))
    rest = (_spoken(each) for each in elements(citation) if _name(each) not in ("person-group", "name", "pub-id"))
    found = (f"{each.get('pub-id-type', '').upper()}: {_spoken(each)}" for each in citation.iterfind("{*}pub-id"))
    return ", ".join(filter(None, (authors, *rest, *found)))


def _person(element: Element) -> str:
    return " ".join(filter(None, (_spoken(element.find(f"{{*}}{part}")) for part in ("given-names", "surname"))))


def _authors(front: Element) -> list[str]:
    people = front.iterfind(".//{*}contrib-group/{*}contrib")
    named = [each for each in people if each.get("contrib-type", "author") == "author"]
    return [spoken for each in named if (spoken := _author(each))]


def _author(contributor: Element) -> str:
    name = contributor.find(".//{*}name")
    return _person(name) if name is not None else _spoken(contributor.find(".//{*}collab"))


def _affiliations(front: Element) -> Iterator[str]:
    for each in front.iterfind(".//{*}aff"):
        parent = each.getparent()
        if parent is not None and _name(parent) != "contrib":
            parts = [_spoken(part) for part in elements(each) if _name(part) != "label"]
            yield _spoken(each) if _is_mixed(each) else ", ".join(filter(None, parts))


def _metadata(front: Element, article: Element) -> Metadata:
    known: dict[str, Value] = {
        "authors": _authors(front),
        "keywords": [_spoken(each) for each in front.iterfind(".//{*}kwd")],
        "date": _date(front),
        "journal": _spoken(article.find(".//{*}journal-title")),
        "doi": _spoken(front.find("{*}article-id[@pub-id-type='doi']")),
        "pmid": _spoken(front.find("{*}article-id[@pub-id-type='pmid']")),
    }
    return {key: value for key, value in known.items() if value}


def _date(front: Element) -> str:
    """The fullest of its publication dates."""
    dates = (
        tuple(_spoken(each.find(f"{{*}}{part}")) for part in ("year", "month", "day"))
        for each in front.iterfind("{*}pub-date")
    )
    fullest = max(dates, key=lambda parts: sum(map(bool, parts)), default=())
    digits = [part.zfill(2) for part in fullest if part.isdigit()]
    return "-".join(digits)
