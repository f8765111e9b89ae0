"""HTML inside Markdown, read as the HTML parser would read it. Its version is `markdown`'s.

Blocks of HTML begin and end as CommonMark has it: at a line that opens with a tag, and before the next blank line, so
that Markdown between the tags of a `<details>` stays Markdown. Only tables and lists hold together beyond it.
https://spec.commonmark.org/0.31.2/#html-blocks
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from rag_core.errors import DocumentError
from rag_core.parsing.fences import Fence

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
_FENCE_LINE = re.compile(rf"(?P<lead>{_QUOTING})(?P<fence>`{{3,}}|~{{3,}})?(?P<language>[^\n]*)")
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

_PLAIN = r"[^<\x00-\x08\x0b-\x1f\x7f]"
_ATTRIBUTES = r"""(?:[ \t\n]+[\w:-]+(?:="[^"<>]*"|='[^'<>]*')?)*+[ \t\n]*+"""
_PHRASE = rf"<(?P<phrase>a|b|code|em|i|span|strong|sub|sup|u){_ATTRIBUTES}>{_PLAIN}*+</(?P=phrase)>|<br ?/?>"
_PARAGRAPHS = re.compile(
    rf"(?:[ \t]*+<(?P<name>p|h[1-6]){_ATTRIBUTES}>(?:{_PLAIN}++|{_PHRASE})*+</(?P=name)>[ \t\n]*+)++", re.IGNORECASE
)


def without_html(text: str) -> str:
    """Comments gone, blocks of HTML as Markdown, other tags as what they hold; code as it is."""
    return "".join(_texts(text)) if _SUSPECT.search(text) else text


class _Kind(Enum):
    VERBATIM = "verbatim"
    COMMENT = "comment"
    HTML = "html"
    PROSE = "prose"


@dataclass
class _Code:
    """Whether the lines, told in their order, are code. An indented one is if it follows a blank line or code."""

    fence: Fence
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
    grouped = groupby(_lines(text), key=lambda line: line[0])
    parts = [(kind, "".join(line for _, line in lines)) for kind, lines in grouped]
    paragraphs = _paragraphs([part for kind, part in parts if kind is _Kind.HTML])
    after_prose = False
    for kind, part in parts:
        if kind is _Kind.HTML:
            body = paragraphs[part] if part in paragraphs else _converted(part)
            yield f"\n{body}" if after_prose and body else body
        elif kind is not _Kind.COMMENT:
            yield _unwrapped(part) if kind is _Kind.PROSE else part
        after_prose = kind is _Kind.PROSE


def _lines(text: str) -> Iterator[tuple[_Kind, str]]:
    """Lines of Markdown, and comments and blocks of HTML of several; together they are the text."""
    code, ends, start = _Code(Fence()), _ends(text), 0
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


def _paragraphs(blocks: Sequence[str]) -> Mapping[str, str]:
    """The blocks that leave nothing open and so are converted in one call, which costs a fraction; and as what."""
    found = [block for block in dict.fromkeys(blocks) if _PARAGRAPHS.fullmatch(block)]
    if not found:
        return {}
    from rag_core.parsing.markup.html import markdown_of_each  # see below

    return dict(zip(found, markdown_of_each(found), strict=True))


def _converted(html: str) -> str:
    """Ends with a newline unless it is empty."""
    if _ONLY_TAGS.fullmatch(html):
        return ""
    # it imports `markdown`, which imports this module; and plain Markdown does not pay for its library
    from rag_core.parsing.markup.html import markdown_of

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
