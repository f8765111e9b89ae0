"""XML as it occurs: with HTML's named characters, in encodings that libxml2 lacks, and damaged."""

import re
from dataclasses import dataclass
from html.entities import html5

from lxml import etree

from rag_core.errors import DocumentError
from rag_core.parsing.encoding import decode_text, find_unicode_encoding
from rag_core.parsing.safe_xml import MAX_DEPTH, Element, build_parser, parse_xml, strip_entities

REPAIRED = "repaired"
"""The flag of a document whose damage was repaired."""

_LIMIT_CODES = (etree.ErrorTypes.ERR_RESOURCE_LIMIT, etree.ErrorTypes.ERR_ENTITY_LOOP)
_DECLARATION = re.compile(r"\s*<\?xml\b[^<>]{0,256}\?>")
_DECLARED_ENCODING = re.compile(rb"""\s*<\?xml\b[^<>]{1,256}?encoding\s*=\s*["']([\w.:-]+)""")
_ENTITY_DECLARATION = re.compile(rb"<!ENTITY\s+([\w.:-]+)")
_NAMED = re.compile(rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|&([A-Za-z][A-Za-z0-9]*);", re.DOTALL)
_XML_NAMES = {b"amp", b"lt", b"gt", b"quot", b"apos"}
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")
_ATTRIBUTE = re.compile(r"""\s([^\W\d][\w:.-]*)\s*=\s*("[^"<]*"|'[^'<]*')""")
_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|<!\[CDATA\[(?P<cdata>.*?)(?:\]\]>|\Z)"
    r"|<!DOCTYPE[^\[<>]{0,1024}+(?:\[[^\]]{0,65536}+\]\s*+)?>"
    r"""|<(?P<slash>/?)(?P<name>[^\W\d][\w:.-]*+)(?P<rest>(?:[^<>"']|"[^"<]*"|'[^'<]*')*+)>""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class LenientXml:
    root: Element
    is_repaired: bool


def parse_lenient_xml(content: bytes) -> LenientXml:
    """The root element, as `parse_xml` returns it.

    Damage is repaired as far as it can be: bytes that do not belong to the encoding become U+FFFD, a bare `&` or `<`
    becomes text, elements end with their parents, and end tags without a start are dropped. Raises the DocumentError
    of `parse_xml` if the content exceeds a limit, or if no text remains.
    """
    declared = match[1].decode("ascii") if (match := _DECLARED_ENCODING.match(content[:1024])) else ""
    if find_unicode_encoding(content)[1]:  # else bytes would be searched for characters
        content = _DECLARATION.sub("", decode_text(content), count=1).encode()
    try:
        return LenientXml(parse_xml(_replace_named_characters(content)), is_repaired=False)
    except DocumentError as error:
        if _error_code(error) in _LIMIT_CODES:
            raise
        decoded = _decode(content, declared)
        if _error_code(error) == etree.ErrorTypes.ERR_UNSUPPORTED_ENCODING and b"\xef\xbf\xbd" not in decoded:
            return LenientXml(parse_xml(_replace_named_characters(decoded)), is_repaired=False)
        root = _parse_balanced(_balance(_replace_named_characters(decoded).decode()))
        if root is None or not any(text.strip() for text in root.itertext("*")):
            raise
        return LenientXml(root, is_repaired=True)


def _decode(content: bytes, declared: str) -> bytes:
    """The content in UTF-8, without a declaration of another encoding.

    XML without a declaration is UTF-8 if more of its characters are than are not: the rest is damage.
    """
    text = content.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    is_utf8 = declared.lower() in ("", "utf-8", "utf8") and damaged <= len(_NOT_ASCII.findall(text)) - damaged
    return _DECLARATION.sub("", text if is_utf8 else decode_text(content, declared), count=1).encode()


def _replace_named_characters(content: bytes) -> bytes:
    """The content with numbers in place of HTML's names, except those that the document itself declares."""
    reserved_names = _XML_NAMES.union(_ENTITY_DECLARATION.findall(content))

    def number(match: re.Match[bytes]) -> bytes:
        name = match[1]
        characters = html5.get(f"{name.decode()};", "") if name and name not in reserved_names else ""
        return b"".join(b"&#%d;" % ord(character) for character in characters) or match[0]

    return _NAMED.sub(number, content)


def _error_code(error: DocumentError) -> int:
    """The code of the syntax error that caused this one; 0 if another error did."""
    cause = error.__cause__
    return cause.code if isinstance(cause, etree.XMLSyntaxError) else 0


def _balance(text: str) -> str:
    """The elements and the text, well-formed. The first element contains all others."""
    parts: list[str] = []
    open_names: list[str] = []
    end = 0
    for markup in _MARKUP.finditer(text):
        parts.append(_escape(text[end : markup.start()]) if open_names else "")
        end = markup.end()
        name = markup["name"]
        if not name:
            parts.append(_escape(markup["cdata"] or "") if open_names else "")
        elif not markup["slash"]:
            is_empty = markup["rest"].endswith("/")
            parts.append(f"<{name}{_well_formed_attributes(markup['rest'])}{'/' if is_empty else ''}>")
            open_names += [] if is_empty else [name]
            if len(open_names) > MAX_DEPTH:
                break
        elif name in open_names[1:]:
            position = max(index for index, open_name in enumerate(open_names) if open_name == name)
            parts += [f"</{open_name}>" for open_name in reversed(open_names[position:])]
            del open_names[position:]
    parts += [_escape(text[end:]) if open_names else "", *(f"</{name}>" for name in reversed(open_names))]
    return "".join(parts)


def _well_formed_attributes(text: str) -> str:
    attributes = {match[1]: match[2] for match in _ATTRIBUTE.finditer(text)}
    return "".join(f" {name}={_BARE_AMPERSAND.sub('&amp;', value)}" for name, value in attributes.items())


def _escape(text: str) -> str:
    return _BARE_AMPERSAND.sub("&amp;", _NOT_XML.sub("", text)).replace("<", "&lt;").replace("]]>", "]]&gt;")


def _parse_balanced(text: str) -> Element | None:
    """None if there is damage besides prefixes without a namespace."""
    parser = build_parser(recover=True)
    try:
        root = etree.fromstring(text.encode(), parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    if root is None or any(entry.domain != etree.ErrorDomains.NAMESPACE for entry in parser.error_log):
        return None
    return strip_entities(root)
