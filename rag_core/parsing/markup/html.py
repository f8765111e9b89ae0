"""HTML, read as the Markdown that html-to-markdown makes of it: link texts without their links, images as their alt
text, tables as tables; no scripts, no hidden elements, no navigation.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from html_to_markdown import (
    CodeBlockStyle,
    ConversionError,
    ConversionOptions,
    ConversionResult,
    HeadingStyle,
    HiddenContent,
    HighlightStyle,
    InlineDataMedia,
    LinkStyle,
    ListIndentType,
    NewlineStyle,
    OutputFormat,
    PreprocessingOptions,
    PreprocessingPreset,
    TierStrategy,
    UrlEscapeStyle,
    WhitespaceMode,
    convert,
)

from rag_core.errors import DocumentError
from rag_core.parsing.encoding import decoded
from rag_core.parsing.outline import outlined
from rag_core.parsing.sections import first_line
from rag_core.types import Document, Metadata, Value

VERSION = 3
PACKAGE = "html-to-markdown"

# The last is the sign beside each heading of generated documentation, shown where a mouse is.
_NEVER = ["svg", "iframe", "select", "video", "audio", "a.headerlink"]
_NAVIGATION = ["nav", '[role="navigation"]']
# Its own preprocessing drops every form and the header of a page, and with them whole ASP.NET pages and titles. What it
# would look up by name at each call, which took longer than the conversion of a small page, is told as a value.
_WHOLE = ConversionOptions(
    strip_tags=["a"],
    compact_tables=True,
    exclude_selectors=_NEVER,
    highlight_style=HighlightStyle.NONE,
    preprocessing=PreprocessingOptions(enabled=False, preset=PreprocessingPreset.STANDARD),
    heading_style=HeadingStyle.ATX,
    list_indent_type=ListIndentType.SPACES,
    whitespace_mode=WhitespaceMode.NORMALIZED,
    newline_style=NewlineStyle.SPACES,
    code_block_style=CodeBlockStyle.BACKTICKS,
    inline_data_media=InlineDataMedia.KEEP,
    hidden_content=HiddenContent.DROP,
    url_escape_style=UrlEscapeStyle.ANGLE,
    link_style=LinkStyle.INLINE,
    output_format=OutputFormat.MARKDOWN,
    tier_strategy=TierStrategy.AUTO,
)
_WITHOUT_NAVIGATION = replace(_WHOLE, exclude_selectors=_NEVER + _NAVIGATION)

_CHARSET = re.compile(
    rb"""<meta[^<>]{1,256}?charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^<>]{1,256}?encoding=["']([\w.-]+)""", re.I
)
_IMAGE = re.compile(r"<img\b[^<>]*>", re.I)
_ALT = re.compile(r"""\salt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.I)
_POWER = re.compile(r"<sup>([-\u2212+]?\d+)</sup>")
_SEPARATOR = "\U000f0a7d"  # for private use
_FENCE = re.compile(r"(`{3,})[^`\n]*\n")


class HtmlParser:
    def parse(self, uri: str, body: bytes, charset: str = "") -> Document:
        """`charset` is what the page came with; it is heard before what the page says itself."""
        html = _prepared(decoded(body, charset or _charset(body[:2048])))
        page = _converted(html, _WITHOUT_NAVIGATION)
        text = _body(page.content or "")
        if not text.strip():
            text = _body(_converted(html, _WHOLE).content or "")
        return _document(Document(uri=uri, text=text, media_type="text/html"), page)


def markdown_of(html: str) -> str:
    """Of a part of a page: what HtmlParser would make of it."""
    return _body(_converted(_prepared(html), _WITHOUT_NAVIGATION).content or "")


def markdown_of_each(parts: Sequence[str]) -> list[str]:
    """`markdown_of` of each part, in one call of the converter; for parts that leave no element open."""
    separated = f"\n<p>{_SEPARATOR}</p>\n".join(parts)
    converted = (_converted(_prepared(separated), _WITHOUT_NAVIGATION).content or "").split(_SEPARATOR)
    if len(converted) != len(parts):  # one of them holds the separator
        return [markdown_of(part) for part in parts]
    return [_body(f"{text}\n") if (text := each.strip("\n")) else "" for each in converted]


def _prepared(html: str) -> str:
    return _POWER.sub(r"^\1", _IMAGE.sub(_alt, html))


def _document(document: Document, page: ConversionResult) -> Document:
    head = page.metadata.document
    known = replace(document, title=_line(head.title), language=head.language or "", metadata=_metadata(page))
    lines = _sole_pre(document.text)
    return replace(known, text=lines, title=known.title or first_line(lines)) if lines else outlined(known)


def _charset(head: bytes) -> str:
    found = _CHARSET.search(head)
    return (found[1] or found[2]).decode("ascii", "replace") if found else ""


def _alt(image: re.Match[str]) -> str:
    found = _ALT.search(image[0])
    return f" {found[1] or found[2] or found[3] or ''} " if found else " "


def _converted(html: str, options: ConversionOptions) -> ConversionResult:
    try:
        page = convert(html, options)
    except ConversionError as error:
        raise DocumentError("parse", f"no readable HTML: {error}") from error
    if any(str(warning.kind).endswith("depth_limit_exceeded") for warning in page.warnings):
        raise DocumentError("parse", "HTML elements nested more than 1024 deep")
    return page


def _body(content: str) -> str:
    """Without the front matter that the converter writes; a rule at the top is followed by an empty line."""
    if content.startswith("---\n") and not content.startswith("---\n\n"):
        return content.partition("\n---\n")[2].lstrip("\n")
    return content


def _sole_pre(content: str) -> str:
    """What stands in the one `<pre>` that is the whole page; empty for any other page."""
    fence = _FENCE.match(content)
    closing = f"\n{fence[1]}" if fence else "\n"
    inside = content[fence.end() - 1 : -len(closing) - 1] if fence else ""
    return inside.strip("\n") if content.endswith(closing + "\n") and f"{closing}\n" not in inside else ""


def _metadata(page: ConversionResult) -> Metadata:
    head = page.metadata.document
    named: dict[str, Value] = {
        "canonical": _line(head.canonical_url),
        "description": _line(head.description),
        "author": _line(head.author),
        "keywords": [word.strip() for word in head.keywords],
    }
    return {key: value for key, value in (named | _meta(page)).items() if value}


def _meta(page: ConversionResult) -> dict[str, Value]:
    head = page.metadata.document
    return {f"meta-{key}": _line(value) for key, value in (head.meta_tags | head.open_graph).items()}


def _line(text: str | None) -> str:
    return " ".join((text or "").split())
