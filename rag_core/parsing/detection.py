"""Which format content is in: told by the content itself, and by the suffix where text could be several things."""

import re
import zipfile
from io import BytesIO

from rag_core.errors import DocumentError
from rag_core.parsing import encoding

VERSION = 2

SUFFIXES = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".txt", ".text", ".log", ".rst"), "text"),
    **dict.fromkeys((".adoc", ".asciidoc"), "asciidoc"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".xml", ".nxml", ".jats"), "xml"),
    **dict.fromkeys((".eml", ".mht", ".mhtml"), "eml"),
    **dict.fromkeys((".docx", ".docm", ".dotx"), "docx"),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx", ".potx"), "pptx"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx", ".xlsb"), "xlsx"),
    **dict.fromkeys((".odt", ".ott"), "odt"),
    **dict.fromkeys((".ods", ".ots"), "ods"),
    **dict.fromkeys((".odp", ".otp"), "odp"),
    **dict.fromkeys((".doc", ".dot"), "doc"),
    **dict.fromkeys((".ppt", ".pps"), "ppt"),
    **dict.fromkeys((".xls", ".xlt"), "xls"),
    **{".pdf": "pdf", ".epub": "epub", ".rtf": "rtf", ".msg": "msg"},
}

_HEAD = 8192
_TEXT = {"markdown", "html", "text", "asciidoc", "csv", "json", "xml", "eml"}
# These show or quote HTML; the others are exports of it under a wrong name
_MAY_BEGIN_AS_HTML = {"markdown", "html", "text", "asciidoc"}
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ZIP = b"PK\x03\x04"
_ZIP_ENTRY = b"PK\x01\x02"
_MOST_ZIP_ENTRIES = 10_000
_ZIPS = {"docx", "pptx", "xlsx", "odt", "ods", "odp", "epub"}
_STREAMS = {"WordDocument": "doc", "PowerPoint Document": "ppt", "Workbook": "xls", "Book": "xls"}
_MESSAGE = "__properties_version1.0"
_FOLDERS = {"word/": "docx", "ppt/": "pptx", "xl/": "xlsx"}
_MIMETYPES = {
    "application/epub+zip": "epub",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.presentation": "odp",
}
_LONGEST_MIMETYPE = 128
_CONTROL = re.compile(rb"[\x01-\x07\x0e-\x1a\x1c-\x1f\x7f]")
_PDF = re.compile(rb"\s*%PDF-")
_HTML = re.compile(r"<(?:!doctype )?html[\s>]", re.IGNORECASE)
_XML = re.compile(r"<\?xml\s|<!DOCTYPE\s+[\w:.-]+[\s>\[]")
_JSON = re.compile(r'\{\s*"|\[\s*(?:\{\s*["}]|\[)')
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*):[ \t]")
_OF_MAIL = {
    *("received", "return-path", "delivered-to", "from", "to", "date", "subject"),
    *("message-id", "mime-version", "reply-to", "sender", "cc", "content-type"),
}
_HEADERS_OF_MAIL = 3


def format_of(uri: str, body: bytes) -> str:
    """DocumentError, skipped, if nothing here reads it."""
    suffix = suffix_of(uri)
    named = SUFFIXES.get(suffix, "")
    found = _binary(body, named) or ("" if _is_binary(body[:_HEAD]) else _textual(body, named))
    if not found:
        raise DocumentError("parse", f"unsupported: {suffix or 'binary content'}", status="skipped")
    return found


def suffix_of(uri: str) -> str:
    """Lower case, with its dot; empty where there is none."""
    stem, dot, suffix = uri[uri.rfind("/") + 1 :].rpartition(".")
    return f".{suffix.lower()}" if dot and stem else ""


def _binary(body: bytes, named: str) -> str:
    if _PDF.match(body, 0, 1024) or (named == "pdf" and b"%PDF-" in body[:1024]):
        return "pdf"
    if body.startswith(_ZIP):
        return _zipped(body) or (named if named in _ZIPS else "")
    if body.startswith(_OLE):
        return _compound(body, named)
    return "rtf" if body.startswith(rb"{\rtf") else ""


def _zipped(body: bytes) -> str:
    """By the entries of its directory; empty for archives of other things, and for damaged ones."""
    if body.count(_ZIP_ENTRY) > _MOST_ZIP_ENTRIES:
        raise DocumentError("parse", f"too large: more than {_MOST_ZIP_ENTRIES} archive entries")
    try:
        with zipfile.ZipFile(BytesIO(body)) as archive:
            names = archive.namelist()
            mimetype = _mimetype(archive) if "mimetype" in names else ""
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, RuntimeError, EOFError):
        return ""
    folder = next((folder for folder in _FOLDERS if any(name.startswith(folder) for name in names)), "")
    return _MIMETYPES.get(mimetype.removesuffix("-template"), "") or _FOLDERS.get(folder, "")


def _mimetype(archive: zipfile.ZipFile) -> str:
    with archive.open("mimetype") as entry:
        return entry.read(_LONGEST_MIMETYPE).decode("ascii", "replace").strip()


def _compound(body: bytes, named: str) -> str:
    """By the streams at its root; what Office encrypts is such a file, too."""
    names = _streams(body)
    if "EncryptedPackage" in names:
        raise DocumentError("parse", "password protected")
    found = next((format_ for name, format_ in _STREAMS.items() if name in names), "")
    return found or ("msg" if _MESSAGE in names else "") or (named if named in {*_STREAMS.values(), "msg"} else "")


def _streams(body: bytes) -> set[str]:
    from olefile import OleFileIO  # not for those who have no old Office files

    try:
        with OleFileIO(BytesIO(body)) as file:
            return {path[0] for path in file.listdir() if len(path) == 1}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError):
        return set()


def _textual(body: bytes, named: str) -> str:
    mark, unicode = encoding.marked(body)
    start = body[len(mark) : _HEAD].decode(unicode or "latin-1", "replace").lstrip()
    if _is_html(start) and named not in _MAY_BEGIN_AS_HTML:
        return "html"
    if named in _TEXT:
        return named
    if _XML.match(start):
        return "xml"
    if _JSON.match(start) and _is_json(body):
        return "json"
    return "eml" if _is_mail(start) else "text"


def _is_json(body: bytes) -> bool:
    """A wiki's page may begin with a link, and a note with a brace."""
    if not body[-_HEAD:].rstrip(b" \t\r\n\0").endswith((b"}", b"]")):
        return False
    from rag_core.parsing.plain.data import readable  # not for those who have no JSON

    return readable(body)


def _is_html(start: str) -> bool:
    return start.startswith("<") and _HTML.search(start, 0, 1024) is not None


def _is_mail(start: str) -> bool:
    """Its first lines are headers, and enough of them are those of a mail."""
    names = set()
    for line in start.split("\n"):
        header = _HEADER.match(line)
        if header:
            names.add(header[1].lower())
        elif not line.startswith((" ", "\t")):
            break
    return len(names & _OF_MAIL) >= _HEADERS_OF_MAIL


def _is_binary(head: bytes) -> bool:
    mark, _ = encoding.marked(head)
    if mark:
        return False
    controls = len(_CONTROL.findall(head))
    return b"\0" in head or head.startswith(b"%!PS") or controls * 50 > len(head)
