"""Markdown with YAML front matter, and with the HTML that it may hold read as the HTML parser would.

Blocks of HTML begin and end as CommonMark has it: at a line that opens with a tag, and before the next blank line, so
that Markdown between the tags of a `<details>` stays Markdown. Only tables and lists hold together beyond it.
https://spec.commonmark.org/0.31.2/#html-blocks
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from itertools import groupby
from math import isfinite
from typing import Any

import yaml

from rag_core.errors import DocumentError
from rag_core.ingestion.parsing.encoding import decoded
from rag_core.ingestion.parsing.sections import Heading, nested
from rag_core.types import Document, Metadata, Value

VERSION = 2

_FRONT = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
# libyaml's composer recurses in C and ends the process on nesting without bound; nobody writes front matter like that
_LONGEST_FRONT = 16_384
_MOST_BRACKETS = 256
_DEEP = re.compile(r"(?:[-?:][ \t]+){32}")

_MARK = re.compile(
    r"^ {0,3}(?:(?P<fence>`{3,}|~{3,})(?P<language>[^\n]*)"
    r"|(?P<hashes>#{1,6})(?P<heading>[ \t][^\n]*)?"
    r"|(?P<rule>={2,}|-{2,})[ \t]*)$",
    re.MULTILINE,
)
_LONGEST_HEADING = 300
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[-*+>|#]|\d+[.)] |```|~~~|$)")
_CLOSING = re.compile(r"(?:^|[ \t])#+[ \t]*$")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)|<[^<>]*>|\{[^{}]*\}[ \t]*$")
_EMPHASIS = re.compile(r"[*`]+|\\(?=[!-/:-@\[-`{-~])|(?<!\w)_+|_+(?!\w)")

# Of these a line may open a block; those of _SPACED also part words where they stand within a line
_BLOCKS = (
    "address|article|aside|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|"
    "figcaption|figure|footer|form|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|meta|nav|ol|optgroup|"
    "option|p|pre|script|search|section|style|summary|svg|table|tbody|td|textarea|tfoot|th|thead|title|tr|ul"
)
_INLINE = (
    "a|abbr|acronym|audio|b|bdi|bdo|big|br|button|cite|code|data|del|dfn|em|font|i|img|input|ins|kbd|label|map|area|"
    "mark|object|output|param|picture|q|rp|rt|ruby|s|samp|select|small|source|span|strike|strong|sub|sup|time|tt|u|"
    "var|video|wbr"
)
_KNOWN = rf"(?:{_BLOCKS}|{_INLINE})(?=[\s/>])"
_SUSPECT = re.compile(r"<(?:/?[A-Za-z]|!--)")
_HTML_LINE = re.compile(rf"[ \t]*</?(?:{_BLOCKS})(?=[\s/>])[^<>]*>", re.IGNORECASE)
_COMMENT_LINE = re.compile(r"[ \t]*(?=<!--)")
_QUOTING = r"[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]+|>)*"
_FENCE_LINE = re.compile(rf"{_QUOTING}(?P<fence>`{{3,}}|~{{3,}})?(?P<language>[^\n]*)")
_INDENTED = re.compile(r" {4}| {0,3}\t")
# Within lists and elements, indentation is no code
_NESTS = re.compile(r" {0,3}(?:[-*+][ \t]|\d{1,9}[.)][ \t]|<)")
_SPAN = re.compile(
    rf"^{_QUOTING}(?P<fence>`{{3}}|~{{3}})|(?P<comment><!--)"
    r"|<(?P<closes>/?)(?P<name>table|ul|ol|dl|pre|script|style|textarea|svg)(?=[\s/>])",
    re.MULTILINE | re.IGNORECASE,
)
_RAW = frozenset(["pre", "script", "style", "textarea", "svg"])
_OPENING = re.compile("<")
_TICKS = re.compile("`+")
_CLOSER = re.compile(r"</([A-Za-z][A-Za-z0-9]*)\s*>")
_TAG = re.compile(
    r"(?P<ticks>`+)|\\[!-/:-@\[-`{-~]|(?P<comment><!--)"
    r"|(?<=\w)<sup>(?P<power>[-\u2212+]?\d+)</sup>"
    rf"|<(?P<closes>/?)(?P<name>{_KNOWN})(?P<attributes>[^<>]*)>",
    re.IGNORECASE,
)
_GENERIC = re.compile(rf"(?<=\w)<(?!/?{_KNOWN}|!--)", re.IGNORECASE)
_CELL_END = re.compile(r"(?<=</t[dh]>)\s*", re.IGNORECASE)
_ONLY_TAGS = re.compile(r"(?:\s|</?(?!img\b|hr\b)[A-Za-z][^<>]*>)*", re.IGNORECASE)
_SPACED = frozenset(["br", "hr", "dd", "div", "dl", "dt", "img", "li", "ol", "p", "table", "td", "th", "tr", "ul"])
_ALONE = frozenset(["br", "wbr", "hr", "img", "li", "td", "th", "tr", "div", "ul", "ol", "table"])


class MarkdownParser:
    def parse(self, uri: str, body: bytes) -> Document:
        metadata, text = front_matter(decoded(body))
        document = outlined(Document(uri=uri, text=without_html(text), media_type="text/markdown"))
        title = str(metadata.get("title", "")).strip() or document.title
        language = str(metadata.get("language") or metadata.get("lang") or "")
        rest = {key: value for key, value in metadata.items() if key not in ("title", "language", "lang")}
        return replace(document, title=title, language=language, metadata=rest)


def front_matter(text: str) -> tuple[Metadata, str]:
    """What stands between the first `---` and the next, and the text after it; what is no YAML mapping stays text."""
    matter = _FRONT.match(text, 0, _LONGEST_FRONT)
    fields = _mapping(matter[1]) if matter else {}
    values = {str(key): value for key, raw in fields.items() if (value := _value(raw)) != ""}
    return (values, text[matter.end() :]) if matter and fields else ({}, text)


def outlined(document: Document) -> Document:
    """With the sections of its Markdown, titled by its first level-1 heading, else by its first."""
    headings = list(_headings(document.text))
    title = next((heading.text for heading in headings if heading.level == 1), headings[0].text if headings else "")
    return replace(document, sections=nested(headings), title=document.title or title)


def without_html(text: str) -> str:
    """Comments gone, blocks of HTML as Markdown, other tags as what they hold; code as it is."""
    return "".join(_texts(text)) if _SUSPECT.search(text) else text


class _Loader(yaml.CSafeLoader):
    """Without merge keys: they can grow a few lines to gigabytes."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        pass


def _mapping(matter: str) -> Mapping[Any, Any]:
    if matter.count("[") + matter.count("{") > _MOST_BRACKETS or _DEEP.search(matter):
        return {}
    try:
        fields = yaml.load(matter, Loader=_Loader)  # noqa: S506 - a CSafeLoader
    except (yaml.YAMLError, ValueError, TypeError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _value(raw: object) -> Value:
    """Empty for what metadata does not hold."""
    match raw:
        case bool() | int():
            return raw
        case float():
            return raw if isfinite(raw) else ""
        case str():
            return raw.replace("\0", "").strip()  # YAML's escapes can spell it
        case date():
            return raw.isoformat()
        case list():
            return [text for each in raw if (text := _listed(each))]
        case _:
            return ""


def _listed(raw: object) -> str:
    return str(_value(raw)) if isinstance(raw, str | int | float | date) else ""


@dataclass
class _Fence:
    """The code block that is open: its marks, or ''."""

    marks: str = ""

    def hides(self, mark: re.Match[str]) -> bool:
        found = mark["fence"] or ""
        if self.marks:
            closes = found.startswith(self.marks) and not mark["language"].strip()
            self.marks = "" if closes else self.marks
            return True
        opens = found and not (found[0] == "`" and "`" in mark["language"])
        self.marks = found if opens else ""
        return bool(found)


def _headings(text: str) -> Iterator[Heading]:
    fence = _Fence()
    for mark in _MARK.finditer(text):
        if fence.hides(mark):
            continue
        heading = _underlined(text, mark) if mark["rule"] else _atx(mark)
        if 0 < len(heading.text) <= _LONGEST_HEADING:
            yield heading


def _atx(mark: re.Match[str]) -> Heading:
    return Heading(len(mark["hashes"]), _plain(_CLOSING.sub("", mark["heading"] or "")), mark.start())


def _underlined(text: str, mark: re.Match[str]) -> Heading:
    """Only a line of its own: a rule below a longer paragraph was meant as a rule."""
    end = mark.start() - 1
    start = text.rfind("\n", 0, max(end, 0)) + 1
    line = text[start : max(end, 0)]
    before = text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
    alone = not before.strip() or before.lstrip().startswith("#")
    is_heading = alone and not _NO_PARAGRAPH.match(line)
    return Heading(1 if mark["rule"].startswith("=") else 2, _plain(line) if is_heading else "", start)


def _plain(heading: str) -> str:
    return " ".join(_EMPHASIS.sub("", _LINK.sub(r"\1", heading)).split())


class _Kind(Enum):
    VERBATIM = "verbatim"
    COMMENT = "comment"
    HTML = "html"
    PROSE = "prose"


@dataclass
class _Code:
    """Whether the lines, told in their order, are code. An indented one is if it follows a blank line or code."""

    fence: _Fence
    indented: bool = False
    after_blank: bool = True
    nested: bool = False

    def holds(self, text: str, start: int, end: int) -> bool:
        """Blank lines belong to the code before them."""
        mark = _FENCE_LINE.match(text, start)
        if mark and self.fence.hides(mark):
            self.indented = self.after_blank = False
            return True
        if end - start < 2 or text[start:end].isspace():
            self.after_blank = True
            return True
        self.indented = bool(_INDENTED.match(text, start)) and not self.nested and (self.after_blank or self.indented)
        if not self.indented:
            belongs = not self.after_blank or text[start] in " \t"
            self.nested = bool(_NESTS.match(text, start)) or (self.nested and belongs)
        self.after_blank = False
        return self.indented


def _texts(text: str) -> Iterator[str]:
    after_prose = False
    for kind, lines in groupby(_lines(text), key=lambda line: line[0]):
        part = "".join(line for _, line in lines)
        if kind is _Kind.HTML:
            body = _converted(part)
            yield f"\n{body}" if after_prose and body else body
        elif kind is not _Kind.COMMENT:
            yield _unwrapped(part) if kind is _Kind.PROSE else part
        after_prose = kind is _Kind.PROSE


def _lines(text: str) -> Iterator[tuple[_Kind, str]]:
    """Lines of Markdown, and comments and blocks of HTML of several; together they are the text."""
    code, ends, start = _Code(_Fence()), _ends(text), 0
    while start < len(text):
        kind, end = _Kind.PROSE, _line_end(text, start)
        comment = _COMMENT_LINE.match(text, start)
        if code.holds(text, start, end):
            kind = _Kind.VERBATIM
        elif comment and comment.end() in ends:
            kind, end = _Kind.COMMENT, _after_comment(text, ends[comment.end()])
        elif _HTML_LINE.match(text, start):
            kind, end = _Kind.HTML, _html_end(text, start, ends)
        yield kind, text[start:end]
        start = end


def _line_end(text: str, start: int) -> int:
    return text.find("\n", start) + 1 or len(text)


def _after_comment(text: str, end: int) -> int:
    line_end = _line_end(text, end)
    return end if text[end:line_end].strip() else line_end


def _html_end(text: str, start: int, ends: Mapping[int, int]) -> int:
    """Where the next blank line or fence begins that stands in nothing that holds together."""
    while start < len(text):
        end = _line_end(text, start)
        fence = _FENCE_LINE.match(text, start)
        if text[start:end].isspace() or (fence and fence["fence"]):
            return start
        held = max((ends.get(found.start(), 0) for found in _OPENING.finditer(text, start, end)), default=0)
        start = held if held > end else end
    return start


def _ends(text: str) -> dict[int, int]:
    """By where a comment, or an element that holds together, begins: where it ends. No element does over a fence."""
    ends: dict[int, int] = {}
    opened: dict[str, list[int]] = defaultdict(list)
    last, comment_end = text.rfind("-->"), 0
    for found in _SPAN.finditer(text):
        name = (found["name"] or "").lower()
        if found["fence"]:
            opened = defaultdict(list, {raw: starts for raw, starts in opened.items() if raw in _RAW})
        elif found["comment"] and found.end() <= last:
            comment_end = comment_end if comment_end > found.end() + 2 else text.find("-->", found.end()) + 3
            ends[found.start()] = comment_end
        elif name and not found["closes"]:
            opened[name].append(found.start())
        elif name and opened[name]:
            ends[opened[name].pop()] = text.find(">", found.end()) + 1 or len(text)
    return ends


def _converted(html: str) -> str:
    """Ends with a newline unless it is empty."""
    if _ONLY_TAGS.fullmatch(html):
        return ""
    from rag_core.ingestion.parsing.html import (
        markdown_of,
    )  # imports this module; and plain Markdown does not pay for its library

    try:
        return markdown_of(_CELL_END.sub(" ", _GENERIC.sub("&lt;", html)))
    except DocumentError:
        return html


def _unwrapped(text: str) -> str:
    return "".join(_kept(text)) if _SUSPECT.search(text) else text


def _kept(text: str) -> Iterator[str]:
    runs, closers = _tick_runs(text), frozenset(_CLOSER.findall(text))
    last, start, spaced = text.rfind("-->"), 0, True
    while found := _TAG.search(text, start):
        before, end, kept = text[start : found.start()], found.end(), found[0]
        if found["ticks"]:
            end = _closing_ticks(runs, found)
            kept = text[found.start() : end]
        elif found["comment"] and end <= last:
            end, kept = text.find("-->", end) + 3, ""
        elif found["power"]:
            kept = f"^{found['power']}"
        elif found["name"] and _is_markup(found, closers):
            kept = _in_place_of(found)
        spaced = before[-1:].isspace() if before else spaced
        yield before
        yield kept[1:] if spaced and kept.startswith(" ") else kept
        spaced = kept[-1:].isspace() if kept else spaced
        start = end
    yield text[start:]


def _tick_runs(text: str) -> dict[int, list[int]]:
    """Where backtick runs end, by their length."""
    runs: dict[int, list[int]] = defaultdict(list)
    for run in _TICKS.finditer(text):
        runs[len(run[0])].append(run.end())
    return runs


def _closing_ticks(runs: Mapping[int, list[int]], opening: re.Match[str]) -> int:
    """The end of the code that it opens; its own end where it opens none."""
    same = runs.get(len(opening[0]), [])
    place = bisect_right(same, opening.end())
    return same[place] if place < len(same) else opening.end()


def _is_markup(tag: re.Match[str], closers: Collection[str]) -> bool:
    """Not the `<b>` of a generic type, nor the `<source>` of a usage line."""
    attributes = tag["attributes"].strip(" \t\n/")
    if tag["closes"] or attributes:
        return "=" in attributes or not attributes
    return tag["name"].lower() in _ALONE or tag["name"] in closers


def _in_place_of(tag: re.Match[str]) -> str:
    name = tag["name"].lower()
    if name == "img":
        return f" {_converted(tag[0]).strip()} "
    return " " if name in _SPACED else ""
