"""Detection of a document's format: by its content, and by its suffix if the text could be in several formats."""

import re
import zipfile
from io import BytesIO

from rag_core.errors import DocumentError
from rag_core.parsing.encoding import KOREAN_ESCAPE, find_unicode_encoding

VERSION = 3

SUFFIXES = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".txt", ".text", ".log", ".rst"), "text"),
    **dict.fromkeys((".adoc", ".asciidoc"), "asciidoc"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".xml", ".nxml", ".jats", ".rss", ".atom", ".opml"), "xml"),
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
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff"), "image"),
    **{".pdf": "pdf", ".epub": "epub", ".rtf": "rtf", ".msg": "msg"},
}

_HEAD_BYTES = 8192
_TEXT_FORMATS = {"markdown", "html", "text", "asciidoc", "csv", "json", "xml", "eml"}
# These can begin with HTML, as examples or quotations; a file with another suffix that does is HTML with a wrong name
_CAN_BEGIN_WITH_HTML = {"markdown", "html", "text", "asciidoc"}
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_IMAGE_MAGICS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*")
_ZIP_MAGIC = b"PK\x03\x04"
_ZIP_ENTRY = b"PK\x01\x02"
_MAX_ZIP_ENTRIES = 10_000
_ZIP_FORMATS = {"docx", "pptx", "xlsx", "odt", "ods", "odp", "epub"}
_OLE_STREAMS = {"WordDocument": "doc", "PowerPoint Document": "ppt", "Workbook": "xls", "Book": "xls"}
_MSG_STREAM = "__properties_version1.0"
_OFFICE_FOLDERS = {"word/": "docx", "ppt/": "pptx", "xl/": "xlsx"}
_MIMETYPES = {
    "application/epub+zip": "epub",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.presentation": "odp",
}
_MAX_MIMETYPE_BYTES = 128
_CONTROL = re.compile(rb"[\x01-\x07\x0e-\x1a\x1c-\x1f\x7f]")
_PDF = re.compile(rb"\s*%PDF-")
_HTML = re.compile(r"<(?:!doctype )?html[\s>]", re.IGNORECASE)
_XML = re.compile(r"<\?xml\s|<!DOCTYPE\s+[\w:.-]+[\s>\[]|<(?:rss|feed|opml|rdf:RDF)\s")
_JSON = re.compile(r'\{\s*"|\[\s*(?:\{\s*["}]|\[)')
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*):[ \t]")
_MAIL_HEADERS = {
    *("received", "return-path", "delivered-to", "from", "to", "date", "subject"),
    *("message-id", "mime-version", "reply-to", "sender", "cc", "content-type"),
}
_MIN_MAIL_HEADERS = 3


def detect_format(uri: str, body: bytes, with_images: bool = False) -> str:
    """The name of the format; an image has one only `with_images`.

    Raises DocumentError with status `skipped` if no parser reads the format.
    """
    suffix = suffix_of(uri)
    named, detected = SUFFIXES.get(suffix, ""), ""
    if _PDF.match(body, 0, 1024) or (named == "pdf" and b"%PDF-" in body[:1024]):
        detected = "pdf"
    elif body.startswith(_ZIP_MAGIC):
        detected = _detect_zip_format(body) or (named if named in _ZIP_FORMATS else "")
    elif body.startswith(_OLE_MAGIC):
        detected = _detect_ole_format(body, named)
    elif body.startswith(rb"{\rtf"):
        detected = "rtf"
    elif with_images and body.startswith(_IMAGE_MAGICS):
        detected = "image"
    detected = detected or _detect_text_format(body, named)
    if not detected:
        raise DocumentError("parse", f"unsupported: {suffix or 'binary content'}", status="skipped")
    return detected


def suffix_of(uri: str) -> str:
    """The suffix in lower case, with its dot; empty if there is none."""
    stem, dot, suffix = uri[uri.rfind("/") + 1 :].rpartition(".")
    return f".{suffix.lower()}" if dot and stem else ""


def _detect_zip_format(body: bytes) -> str:
    """The format by the entries of the archive; empty for a damaged archive or one of another kind."""
    if body.count(_ZIP_ENTRY) > _MAX_ZIP_ENTRIES:
        raise DocumentError("parse", f"too large: more than {_MAX_ZIP_ENTRIES} archive entries")
    mimetype = ""
    try:
        with zipfile.ZipFile(BytesIO(body)) as archive:
            names = archive.namelist()
            if "mimetype" in names:
                with archive.open("mimetype") as entry:
                    mimetype = entry.read(_MAX_MIMETYPE_BYTES).decode("ascii", "replace").strip()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, RuntimeError, EOFError):
        return ""
    folder = next((folder for folder in _OFFICE_FOLDERS if any(name.startswith(folder) for name in names)), "")
    return _MIMETYPES.get(mimetype.removesuffix("-template"), "") or _OFFICE_FOLDERS.get(folder, "")


def _detect_ole_format(body: bytes, named: str) -> str:
    """The format by the streams at the file's root, else `named`, the format of the suffix.

    An encrypted DOCX, XLSX or PPTX is such a file, too.
    """
    from olefile import OleFileIO  # only documents in old Office formats need it

    try:
        with OleFileIO(BytesIO(body)) as file:
            streams = {path[0] for path in file.listdir() if len(path) == 1}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError):
        streams = set()
    if "EncryptedPackage" in streams:
        raise DocumentError("parse", "password protected")
    detected = next((format_ for name, format_ in _OLE_STREAMS.items() if name in streams), "")
    if detected or _MSG_STREAM in streams:
        return detected or "msg"
    return named if named in {*_OLE_STREAMS.values(), "msg"} else ""


def _detect_text_format(body: bytes, named: str) -> str:
    """The format of a text; empty for binary content."""
    head = body[:_HEAD_BYTES]
    mark, encoding = find_unicode_encoding(body)
    has_many_controls = len(_CONTROL.findall(head)) * 50 > len(head)
    is_binary = b"\0" in head or (has_many_controls and KOREAN_ESCAPE not in head)
    if not encoding and (is_binary or head.startswith(b"%!PS")):
        return ""
    start = head[len(mark) :].decode(encoding or "latin-1", "replace").lstrip()
    is_html = start.startswith("<") and _HTML.search(start, 0, 1024) is not None
    if is_html and named not in _CAN_BEGIN_WITH_HTML:
        return "html"
    if named in _TEXT_FORMATS:
        return named
    if _XML.match(start):
        return "xml"
    # the end too: a wiki page can begin with a link in brackets, a note with a brace
    if _JSON.match(start) and body[-_HEAD_BYTES:].rstrip(b" \t\r\n\0").endswith((b"}", b"]")):
        from rag_core.parsing.plain.data import is_parsable_json  # only documents that look like JSON need it

        if is_parsable_json(body):
            return "json"
    return "eml" if _is_mail(start) else "text"


def _is_mail(start: str) -> bool:
    """True if the text begins with headers of which at least three are typical of mail."""
    names = set()
    for line in start.split("\n"):
        header = _HEADER.match(line)
        if header:
            names.add(header[1].lower())
        elif not line.startswith((" ", "\t")):
            break
    return len(names & _MAIL_HEADERS) >= _MIN_MAIL_HEADERS
