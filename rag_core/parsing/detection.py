"""Detection of a document's format: by its content, and by its suffix if the text could be in several formats."""

import re
import zipfile
from io import BytesIO

from rag_core.errors import DocumentError
from rag_core.parsing.container_names import container_suffix
from rag_core.parsing.encoding import KOREAN_ESCAPE, find_unicode_encoding
from rag_core.parsing.machine_text import is_ebcdic, is_word_xml, name_machine_text
from rag_core.parsing.signatures import BINARY, name_binary

VERSION = 4
"""The version of this module, `machine_text` and `signatures`."""

READ_AS_TEXT = "read-as-text"
"""The flag of a document that was read as plain text, which its suffix does not say."""

_CODE_SUFFIXES = frozenset(
    (
        *(".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".css", ".scss", ".sass", ".less", ".vue"),
        *(".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".cs", ".java", ".kt", ".scala", ".go", ".rs", ".swift"),
        *(".rb", ".php", ".pl", ".pm", ".lua", ".r", ".jl", ".m", ".hs", ".ml", ".ex", ".exs", ".erl", ".clj", ".el"),
        *(".lisp", ".scm", ".dart", ".groovy", ".f90", ".pas", ".asm", ".s", ".sql", ".sh", ".bash", ".zsh", ".fish"),
        *(".bat", ".cmd", ".ps1", ".vbs", ".proto", ".graphql", ".tf", ".cmake", ".mk", ".gradle", ".diff", ".patch"),
        *(".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties", ".env", ".tex", ".bib"),
    )
)
"""The suffixes of code and settings. Such a file is read as plain text whatever it contains, if it is text."""

SUFFIXES = {
    **dict.fromkeys(_CODE_SUFFIXES, "text"),
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".txt", ".text", ".log"), "text"),
    **dict.fromkeys((".rst", ".rest"), "rst"),
    **dict.fromkeys((".adoc", ".asciidoc"), "asciidoc"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".vtt", ".srt"), "subtitles"),
    ".ipynb": "notebook",
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
_TEXT_FORMATS = {"markdown", "html", "text", "asciidoc", "rst", "csv", "json", "notebook", "subtitles", "xml", "eml"}
# A web page and a dump of JSON can contain scripts and encoded pictures
_PROSE_FORMATS = {"markdown", "text", "asciidoc", "rst", "csv"}
# These can begin with HTML, as examples or quotations; a file with another suffix that does is HTML with a wrong name
_CAN_BEGIN_WITH_HTML = {"markdown", "html", "text", "asciidoc", "rst"}
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
_PAGE = re.compile(r"(?:<!doctype html[^<>]{0,200}>\s*)?<(html)[\s>]", re.IGNORECASE)
_XML_DOCUMENT = re.compile(r"<\?xml\s[^<>]{0,200}\?>\s*(?:<!DOCTYPE\s[^<>\[]{0,500}>\s*)?<([\w:.-]+)")
_JSON = re.compile(r'\{\s*"|\[\s*(?:\{\s*["}]|\[)')
_NOTEBOOK = re.compile(rb'"nbformat": ?[34],')  # at the end, because the keys are sorted
_SUBTITLES = re.compile(r"WEBVTT(?:[ \t][^\n]*)?\r?\n|\d+\s*\n\d{1,2}:\d\d:\d\d[,.]\d{1,3}[ \t]*-->")
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*):[ \t]")
_MAIL_HEADERS = {
    *("received", "return-path", "delivered-to", "from", "to", "date", "subject"),
    *("message-id", "mime-version", "reply-to", "sender", "cc", "content-type"),
}
_MIN_MAIL_HEADERS = 3


def detect_format(uri: str, body: bytes, with_images: bool = False) -> str:
    """The name of the format; an image has one only `with_images`.

    Raises DocumentError with status `skipped` if no parser reads the content. The reason names what it is.
    """
    suffix = suffix_of(uri)
    named = SUFFIXES.get(suffix, "")
    if with_images and body.startswith(_IMAGE_MAGICS):
        return "image"
    detected = _detect_document_format(body, named) or _detect_text_format(body, named)
    unreadable = ""
    if not detected:
        unreadable = "EBCDIC text" if is_ebcdic(body[:_HEAD_BYTES]) else name_binary(body)
    elif detected == "xml" and is_word_xml(_decode_samples(body)[0]):
        unreadable = "Word 2003 XML: save it as DOCX"
    elif detected in _PROSE_FORMATS and suffix not in _CODE_SUFFIXES:
        unreadable = name_machine_text(_decode_samples(body))
    if unreadable:
        kind, colon, advice = unreadable.partition(":")
        name = f" named {suffix}" if suffix and (named not in ("", "image") or kind == BINARY) else ""
        hint = "; an archive cannot be uploaded, `rag ingest` reads the files in it" if container_suffix(uri) else ""
        raise DocumentError("parse", f"unsupported: {kind}{name}{colon}{advice}{hint}", status="skipped")
    return detected


def is_read_as_text(uri: str, format_: str) -> bool:
    """True if the content is read as plain text and the suffix does not say that it is."""
    return format_ == "text" and SUFFIXES.get(suffix_of(uri)) != "text"


def suffix_of(uri: str) -> str:
    """The suffix in lower case, with its dot; empty if there is none."""
    stem, dot, suffix = uri[uri.rfind("/") + 1 :].rpartition(".")
    return f".{suffix.lower()}" if dot and stem else ""


def _detect_document_format(body: bytes, named: str) -> str:
    """The format of a PDF, an Office document or a book; empty for other content."""
    if _PDF.match(body, 0, 1024) or (named == "pdf" and b"%PDF-" in body[:1024]):
        return "pdf"
    if body.startswith(_ZIP_MAGIC):
        return _detect_zip_format(body) or (named if named in _ZIP_FORMATS else "")
    if body.startswith(_OLE_MAGIC):
        return _detect_ole_format(body, named)
    return "rtf" if body.startswith(rb"{\rtf") else ""


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
    """The format of a text; empty for binary content, PostScript and EBCDIC."""
    head = body[:_HEAD_BYTES]
    mark, encoding = find_unicode_encoding(body)
    has_many_controls = len(_CONTROL.findall(head)) * 50 > len(head)
    is_binary = b"\0" in head or (has_many_controls and KOREAN_ESCAPE not in head)
    if is_ebcdic(head) or (not encoding and (is_binary or head.startswith(b"%!PS"))):
        return ""
    start = head[len(mark) :].decode(encoding or "latin-1", "replace").lstrip()
    is_html = start.startswith("<") and _HTML.search(start, 0, 1024) is not None
    if is_html and (named not in _CAN_BEGIN_WITH_HTML or _is_whole(_PAGE, start, body)):
        return "html"
    if named not in ("html", "eml") and _is_whole(_XML_DOCUMENT, start, body) and body.count(b"<?xml") == 1:
        return "xml"
    if named not in ("json", "notebook") and _is_json(start, body):
        return "notebook" if _NOTEBOOK.search(body, max(0, len(body) - _HEAD_BYTES)) else "json"
    if _SUBTITLES.match(start):
        return "subtitles"
    if named in _TEXT_FORMATS:
        return named
    if _XML.match(start):
        return "xml"
    return "eml" if _is_mail(start) else "text"


def _is_whole(markup: re.Pattern[str], start: str, body: bytes) -> bool:
    """True if the text is nothing but one page or XML document: its root begins it and ends it."""
    root = markup.match(start)
    return root is not None and body[-_HEAD_BYTES:].rstrip().lower().endswith(f"</{root[1]}>".lower().encode())


def _is_json(start: str, body: bytes) -> bool:
    # the end too: a wiki page can begin with a link in brackets, a note with a brace
    if not _JSON.match(start) or not body[-_HEAD_BYTES:].rstrip(b" \t\r\n\0").endswith((b"}", b"]")):
        return False
    from rag_core.parsing.plain.data import is_parsable_json  # only documents that look like JSON need it

    return is_parsable_json(body)


def _decode_samples(body: bytes) -> list[str]:
    """The start of a text and, if it is long, its end."""
    mark, encoding = find_unicode_encoding(body)
    content = body[len(mark) :]
    samples = [content[:_HEAD_BYTES], content[-_HEAD_BYTES:]] if len(content) > _HEAD_BYTES else [content]
    return [sample.decode(encoding or "latin-1", "replace").lstrip().replace("\r\n", "\n") for sample in samples]


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
