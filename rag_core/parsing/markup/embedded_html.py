"""HTML inside Markdown, converted as the HTML parser converts it. The VERSION of `markdown` covers this module.

Blocks of HTML begin and end as in CommonMark: at a line that opens with a tag, and before the next blank line. So
Markdown between the tags of a `<details>` stays Markdown. Only tables, lists and raw elements continue after a blank
line.
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
from rag_core.parsing.fences import FenceState

# Elements whose tags open a block at the start of a line. Those of _SPACED_ELEMENTS also separate words within a line
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
_ELEMENT = rf"(?:{_BLOCKS}|{_INLINE})(?=[\s/>])"
_HTML_START = re.compile(r"<(?:/?[A-Za-z]|!--)")
_HTML_LINE = re.compile(rf"[ \t]*</?(?:{_BLOCKS})(?=[\s/>])[^<>]*>", re.IGNORECASE)
_COMMENT_LINE = re.compile(r"[ \t]*(?=<!--)")
_QUOTING = r"[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]+|>)*"
_FENCE_LINE = re.compile(rf"(?P<lead>{_QUOTING})(?P<fence>`{{3,}}|~{{3,}})?(?P<language>[^\n]*)")
_INDENTED = re.compile(r" {4}| {0,3}\t")
# Within lists and elements, indented lines are not code
_NESTING = re.compile(r" {0,3}(?:[-*+][ \t]|\d{1,9}[.)][ \t]|<)")
_SPAN = re.compile(
    rf"^{_QUOTING}(?P<fence>`{{3}}|~{{3}})|(?P<comment><!--)"
    r"|<(?P<closes>/?)(?P<name>table|ul|ol|dl|pre|script|style|textarea|svg)(?=[\s/>])",
    re.MULTILINE | re.IGNORECASE,
)
_RAW_ELEMENTS = frozenset(["pre", "script", "style", "textarea", "svg"])
_TAG_START = re.compile("<")
_BACKTICKS = re.compile("`+")
_CLOSING_TAG = re.compile(r"</([A-Za-z][A-Za-z0-9]*)\s*>")
_TAG = re.compile(
    r"(?P<ticks>`+)|\\[!-/:-@\[-`{-~]|(?P<comment><!--)"
    r"|(?<=\w)<sup>(?P<power>[-\u2212+]?\d+)</sup>"
    rf"|<(?P<closes>/?)(?P<name>{_ELEMENT})(?P<attributes>[^<>]*)>",
    re.IGNORECASE,
)
_GENERIC_TYPE = re.compile(rf"(?<=\w)<(?!/?{_ELEMENT}|!--)", re.IGNORECASE)
_CELL_END = re.compile(r"(?<=</t[dh]>)\s*", re.IGNORECASE)
_TAGS_WITHOUT_TEXT = re.compile(r"(?:\s|</?(?!img\b|hr\b)[A-Za-z][^<>]*>)*", re.IGNORECASE)
_SPACED_ELEMENTS = frozenset(
    ["br", "hr", "dd", "div", "dl", "dt", "img", "li", "ol", "p", "table", "td", "th", "tr", "ul"]
)
_STANDALONE_ELEMENTS = frozenset(["br", "wbr", "hr", "img", "li", "td", "th", "tr", "div", "ul", "ol", "table"])

_PLAIN = r"[^<\x00-\x08\x0b-\x1f\x7f]"
_ATTRIBUTES = r"""(?:[ \t\n]+[\w:-]+(?:="[^"<>]*"|='[^'<>]*')?)*+[ \t\n]*+"""
_PHRASE = rf"<(?P<phrase>a|b|code|em|i|span|strong|sub|sup|u){_ATTRIBUTES}>{_PLAIN}*+</(?P=phrase)>|<br ?/?>"
_CLOSED_PARAGRAPHS = re.compile(
    rf"(?:[ \t]*+<(?P<name>p|h[1-6]){_ATTRIBUTES}>(?:{_PLAIN}++|{_PHRASE})*+</(?P=name)>[ \t\n]*+)++", re.IGNORECASE
)


def convert_embedded_html(text: str) -> str:
    """The text without comments, with blocks of HTML as Markdown, and without other tags. Code stays unchanged."""
    if not _HTML_START.search(text):
        return text
    grouped = groupby(_split_parts(text), key=lambda part: part[0])
    parts = [(kind, "".join(part for _, part in group)) for kind, group in grouped]
    paragraphs = _convert_paragraphs([part for kind, part in parts if kind is _Kind.HTML])
    converted: list[str] = []
    after_prose = False
    for kind, part in parts:
        if kind is _Kind.HTML:
            block = paragraphs[part] if part in paragraphs else _convert_block(part)
            converted.append(f"\n{block}" if after_prose and block else block)
        elif kind is not _Kind.COMMENT:
            converted.append(_convert_inline_html(part) if kind is _Kind.PROSE else part)
        after_prose = kind is _Kind.PROSE
    return "".join(converted)


class _Kind(Enum):
    VERBATIM = "verbatim"
    COMMENT = "comment"
    HTML = "html"
    PROSE = "prose"


@dataclass
class _CodeState:
    """Tracks whether lines, given in their order, are code. An indented line is if it follows a blank line or code."""

    fence: FenceState
    indented: bool = False
    after_blank: bool = True
    nested: bool = False

    def advance(self, text: str, start: int, end: int) -> bool:
        """Moves past the line; True if it is code. A blank line counts as code."""
        line = _FENCE_LINE.match(text, start)
        if line and self.fence.advance(line):
            self.indented = self.after_blank = False
            return True
        if end - start < 2 or text[start:end].isspace():
            self.after_blank = True
            return True
        self.indented = bool(_INDENTED.match(text, start)) and not self.nested and (self.after_blank or self.indented)
        if not self.indented:
            continues = not self.after_blank or text[start] in " \t"
            self.nested = bool(_NESTING.match(text, start)) or (self.nested and continues)
        self.after_blank = False
        return self.indented


def _split_parts(text: str) -> Iterator[tuple[_Kind, str]]:
    """Lines of Markdown, and comments and blocks of HTML of one or more lines. Together they are the text."""
    code, span_ends, start = _CodeState(FenceState()), _find_span_ends(text), 0
    while start < len(text):
        kind, end = _Kind.PROSE, _line_end(text, start)
        comment = _COMMENT_LINE.match(text, start)
        if code.advance(text, start, end):
            kind = _Kind.VERBATIM
        elif comment and comment.end() in span_ends:
            kind, end = _Kind.COMMENT, span_ends[comment.end()]
            line_end = _line_end(text, end)
            end = end if text[end:line_end].strip() else line_end
        elif _HTML_LINE.match(text, start):
            kind, end = _Kind.HTML, _html_block_end(text, start, span_ends)
        yield kind, text[start:end]
        start = end


def _line_end(text: str, start: int) -> int:
    return text.find("\n", start) + 1 or len(text)


def _html_block_end(text: str, start: int, span_ends: Mapping[int, int]) -> int:
    """The start of the next blank line or fence that is outside all spans."""
    while start < len(text):
        end = _line_end(text, start)
        fence = _FENCE_LINE.match(text, start)
        if text[start:end].isspace() or (fence and fence["fence"]):
            return start
        tags = _TAG_START.finditer(text, start, end)
        start = max(end, max((span_ends.get(tag.start(), 0) for tag in tags), default=0))
    return start


def _find_span_ends(text: str) -> dict[int, int]:
    """The ends of comments, tables, lists and raw elements, by their starts. No such element spans a fence."""
    ends: dict[int, int] = {}
    open_starts: dict[str, list[int]] = defaultdict(list)
    last_comment_end, comment_end = text.rfind("-->"), 0
    for match in _SPAN.finditer(text):
        name = (match["name"] or "").lower()
        if match["fence"]:
            raw_starts = {raw: starts for raw, starts in open_starts.items() if raw in _RAW_ELEMENTS}
            open_starts = defaultdict(list, raw_starts)
        elif match["comment"] and match.end() <= last_comment_end:
            if comment_end <= match.end() + 2:
                comment_end = text.find("-->", match.end()) + 3
            ends[match.start()] = comment_end
        elif name and not match["closes"]:
            open_starts[name].append(match.start())
        elif name and open_starts[name]:
            ends[open_starts[name].pop()] = text.find(">", match.end()) + 1 or len(text)
    return ends


def _convert_paragraphs(blocks: Sequence[str]) -> Mapping[str, str]:
    """The Markdown of the blocks that leave no element open, by block. One call converts all, at a fraction of the cost
    of one call for each.
    """
    closed = [block for block in dict.fromkeys(blocks) if _CLOSED_PARAGRAPHS.fullmatch(block)]
    if not closed:
        return {}
    from rag_core.parsing.markup.html import convert_html_parts  # not at the top: see _convert_block

    return dict(zip(closed, convert_html_parts(closed), strict=True))


def _convert_block(html: str) -> str:
    """The Markdown of the HTML; it ends with a newline unless it is empty."""
    if _TAGS_WITHOUT_TEXT.fullmatch(html):
        return ""
    # `html` needs `markdown`, which needs this module; and its library need not be loaded for plain Markdown
    from rag_core.parsing.markup.html import convert_html

    try:
        return convert_html(_CELL_END.sub(" ", _GENERIC_TYPE.sub("&lt;", html)))
    except DocumentError:
        return html


def _convert_inline_html(text: str) -> str:
    """The text without comments and tags, except in code between backticks."""
    if not _HTML_START.search(text):
        return text
    tick_ends: dict[int, list[int]] = defaultdict(list)  # the ends of backtick runs, by their length
    for run in _BACKTICKS.finditer(text):
        tick_ends[len(run[0])].append(run.end())
    closing_tags = frozenset(_CLOSING_TAG.findall(text))
    last_comment_end, start, after_space = text.rfind("-->"), 0, True
    parts: list[str] = []
    while match := _TAG.search(text, start):
        before, end, replacement = text[start : match.start()], match.end(), match[0]
        if match["ticks"]:
            same_length = tick_ends[len(match[0])]
            position = bisect_right(same_length, end)
            end = same_length[position] if position < len(same_length) else end
            replacement = text[match.start() : end]
        elif match["comment"] and end <= last_comment_end:
            end, replacement = text.find("-->", end) + 3, ""
        elif match["power"]:
            replacement = f"^{match['power']}"
        elif match["name"]:
            replacement = _replace_tag(match, closing_tags)
        after_space = before[-1:].isspace() if before else after_space
        parts += [before, replacement[1:] if after_space and replacement.startswith(" ") else replacement]
        after_space = replacement[-1:].isspace() if replacement else after_space
        start = end
    return "".join([*parts, text[start:]])


def _replace_tag(tag: re.Match[str], closing_tags: Collection[str]) -> str:
    """The text in place of the tag. The `<b>` of a generic type and the `<source>` of a usage line stay unchanged."""
    name, attributes = tag["name"].lower(), tag["attributes"].strip(" \t\n/")
    if attributes:
        is_markup = "=" in attributes
    else:
        is_markup = bool(tag["closes"]) or name in _STANDALONE_ELEMENTS or tag["name"] in closing_tags
    if not is_markup:
        return tag[0]
    if name == "img":
        return f" {_convert_block(tag[0]).strip()} "
    return " " if name in _SPACED_ELEMENTS else ""
