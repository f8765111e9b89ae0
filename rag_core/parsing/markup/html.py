"""HTML, converted to Markdown by html-to-markdown.

Links become their texts, images their alt texts, tables stay tables. Scripts, hidden elements and navigation are left
out.
"""

import re
from collections import deque
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
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.markup.html_tables import needs_rewriting, rewrite_tables
from rag_core.parsing.outline import with_outline
from rag_core.parsing.sections import title_from_first_line
from rag_core.types import Document, Metadata, Value

VERSION = 5

# The last is the sign next to each heading of generated documentation, shown under the mouse.
_EXCLUDED = ["svg", "iframe", "select", "video", "audio", "a.headerlink"]
_NAVIGATION = ["nav", '[role="navigation"]']
# The library's own preprocessing would drop forms and page headers, and with them whole ASP.NET pages and titles. The
# other options are its defaults: looking them up by name at each call took longer than converting a small page.
_WHOLE_PAGE = ConversionOptions(
    strip_tags=["a"],
    compact_tables=True,
    exclude_selectors=_EXCLUDED,
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
_WITHOUT_NAVIGATION = replace(_WHOLE_PAGE, exclude_selectors=_EXCLUDED + _NAVIGATION)

_CHARSET = re.compile(
    rb"""<meta[^<>]{1,256}?charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^<>]{1,256}?encoding=["']([\w.-]+)""", re.I
)
_IMAGE = re.compile(r"<img\b[^<>]*>", re.I)
_ALT = re.compile(r"""\salt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.I)
_RAW_TAG = re.compile(r"<(/?)(script|style)\b", re.I)
_CUT_TAG = re.compile(r"<(?:/?[a-z][^<>]*)?\s*\Z", re.I)
_POWER = re.compile(r"<sup>([-\u2212+]?\d+)</sup>")
_SEPARATOR = "\U000f0a7d"  # a private-use character
_FENCE = re.compile(r"(`{3,})[^`\n]*\n")


class HtmlParser:
    def parse(self, uri: str, body: bytes, charset: str = "") -> Document:
        """`charset` is the encoding that was sent with the page; it overrides the page's own declaration."""
        declaration = _CHARSET.search(body[:2048])
        if declaration and not charset:
            charset = (declaration[1] or declaration[2]).decode("ascii", "replace")
        html = _prepare(_complete(decode_text(body, charset)))
        page = _convert(html, _WITHOUT_NAVIGATION)
        text = _strip_front_matter(rewrite_tables(page))
        if not text.strip():
            text = _strip_front_matter(rewrite_tables(_convert(html, _WHOLE_PAGE)))
        head = page.metadata.document
        title, language = _one_line(head.title), head.language or ""
        document = Document(
            uri=uri, text=text, media_type="text/html", title=title, language=language, metadata=_page_metadata(page)
        )
        if plain_text := _sole_pre(text):
            return replace(document, text=plain_text, title=title or title_from_first_line(plain_text))
        return with_outline(document)


def convert_html(html: str) -> str:
    """The Markdown that HtmlParser would make of a part of a page."""
    return _strip_front_matter(rewrite_tables(_convert(_prepare(html), _WITHOUT_NAVIGATION)))


def convert_html_parts(parts: Sequence[str]) -> list[str]:
    """The result of `convert_html` for each part, in one call of the converter. No part may leave an element open."""
    separated = f"\n<p>{_SEPARATOR}</p>\n".join(parts)
    converted = rewrite_tables(_convert(_prepare(separated), _WITHOUT_NAVIGATION)).split(_SEPARATOR)
    if len(converted) != len(parts):  # one of them contains the separator
        return [convert_html(part) for part in parts]
    return [_strip_front_matter(f"{text}\n") if (text := part.strip("\n")) else "" for part in converted]


def _complete(html: str) -> str:
    """Closes a script or a style that a cut page leaves open, and removes half a tag: both would count as text."""
    start = html.rfind("<")
    if start >= 0 and _CUT_TAG.match(html, start):
        html = html[:start]
    tags = deque(_RAW_TAG.finditer(html), maxlen=1)
    return f"{html}</{tags[0][2]}>" if tags and not tags[0][1] else html


def _prepare(html: str) -> str:
    """Replaces images by their alt texts, and superscript numbers by powers such as `^2`."""
    return _POWER.sub(r"^\1", _IMAGE.sub(_alt_text, html))


def _alt_text(image: re.Match[str]) -> str:
    match = _ALT.search(image[0])
    return f" {match[1] or match[2] or match[3] or ''} " if match else " "


def _convert(html: str, options: ConversionOptions) -> ConversionResult:
    if needs_rewriting(html):
        options = replace(options, include_document_structure=True)
    try:
        page = convert(html, options)
    except ConversionError as error:
        raise DocumentError("parse", f"unreadable HTML: {error}") from error
    if any(str(warning.kind).endswith("depth_limit_exceeded") for warning in page.warnings):
        raise DocumentError("parse", "HTML elements nested more than 1024 deep")
    return page


def _strip_front_matter(content: str) -> str:
    """Removes the front matter that the converter writes. A rule at the top differs from it: an empty line follows."""
    if content.startswith("---\n") and not content.startswith("---\n\n"):
        return content.partition("\n---\n")[2].lstrip("\n")
    return content


def _sole_pre(content: str) -> str:
    """The content of the `<pre>` that is the whole page; empty for any other page."""
    fence = _FENCE.match(content)
    if not fence:
        return ""
    closing = f"\n{fence[1]}"
    inside = content[fence.end() - 1 : -len(closing) - 1]
    return inside.strip("\n") if content.endswith(closing + "\n") and f"{closing}\n" not in inside else ""


def _page_metadata(page: ConversionResult) -> Metadata:
    head = page.metadata.document
    metadata: dict[str, Value] = {
        "canonical": _one_line(head.canonical_url),
        "description": _one_line(head.description),
        "author": _one_line(head.author),
        "keywords": [word.strip() for word in head.keywords],
    }
    metadata |= {f"meta-{key}": _one_line(value) for key, value in (head.meta_tags | head.open_graph).items()}
    return {key: value for key, value in metadata.items() if value}


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
