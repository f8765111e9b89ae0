"""The supported formats, their parsers, and the versions that a document's text depends on besides its bytes."""

import re
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from rag_core.errors import DocumentError
from rag_core.parsing.compression import strip_gz_suffix
from rag_core.parsing.detection import SUFFIXES, suffix_of
from rag_core.parsing.pdf.tesseract import Tesseract
from rag_core.protocols import Parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The parser of a format, as `module:class` in this package, and the versions that its output depends on.

    `versioned_modules` are further modules whose VERSION counts; `packages` are the distributions whose release counts.
    `program` must be on the PATH. `reads_scans`: the parser takes the OCR.
    """

    parser: str
    versioned_modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    program: str = ""
    reads_scans: bool = False

    @property
    def module(self) -> str:
        return self.parser.partition(":")[0]


_HTML = ("markup.html", "markup.markdown", "plain.text")
_TO_MARKDOWN = "html-to-markdown"
FORMATS = {
    "markdown": Format(
        parser="markup.markdown:MarkdownParser", versioned_modules=("markup.html",), packages=(_TO_MARKDOWN,)
    ),
    "html": Format(parser="markup.html:HtmlParser", versioned_modules=_HTML, packages=(_TO_MARKDOWN,)),
    "text": Format(parser="plain.text:TextParser"),
    "asciidoc": Format(parser="markup.asciidoc:AsciidocParser", versioned_modules=("markup.markdown",)),
    "csv": Format(parser="plain.delimited:DelimitedParser"),
    "json": Format(parser="plain.data:DataParser", versioned_modules=("markup.markdown",)),
    "rst": Format(parser="markup.rst:RstParser", versioned_modules=("markup.markdown",)),
    "subtitles": Format(parser="plain.subtitles:SubtitlesParser", versioned_modules=("markup.markdown",)),
    "notebook": Format(parser="markup.notebook:NotebookParser", versioned_modules=_HTML[:2], packages=(_TO_MARKDOWN,)),
    "xml": Format(parser="markup.xml:XmlParser", versioned_modules=("markup.markdown",), packages=("lxml",)),
    "pdf": Format(
        parser="pdf.pdf:PdfParser",
        versioned_modules=("pdf.layout", "pdf.grid"),
        packages=("pypdfium2",),
        reads_scans=True,
    ),
    "image": Format(
        parser="pdf.images:ImageParser",
        versioned_modules=("pdf.layout", "pdf.grid"),
        packages=("pillow",),
        reads_scans=True,
    ),
    "docx": Format(parser="office.word:WordParser", versioned_modules=("markup.markdown",), packages=("lxml",)),
    "pptx": Format(parser="office.slides:SlidesParser", versioned_modules=("markup.markdown",), packages=("lxml",)),
    "xlsx": Format(
        parser="office.sheets:SheetsParser",
        versioned_modules=("markup.markdown",),
        packages=("python-calamine", "lxml"),
    ),
    "xls": Format(
        parser="office.sheets:LegacySheetsParser",
        versioned_modules=("markup.markdown",),
        packages=("python-calamine", "lxml", "xlrd"),
    ),
    **dict.fromkeys(
        ("odt", "ods", "odp"),
        Format(
            parser="office.opendocument:OpenDocumentParser", versioned_modules=("markup.markdown",), packages=("lxml",)
        ),
    ),
    "epub": Format(parser="markup.epub:EpubParser", versioned_modules=_HTML, packages=("lxml", _TO_MARKDOWN)),
    "rtf": Format(parser="office.rtf:RtfParser", versioned_modules=("markup.markdown",)),
    "eml": Format(parser="plain.mail:MailParser", versioned_modules=_HTML, packages=(_TO_MARKDOWN,)),
    "msg": Format(
        parser="office.outlook:OutlookParser",
        versioned_modules=("plain.mail", *_HTML),
        packages=("olefile", _TO_MARKDOWN),
    ),
    "doc": Format(
        parser="office.libreoffice:OldWordParser",
        versioned_modules=("office.word", "office.legacy", "markup.markdown"),
        packages=("lxml", "kreuzberg"),
        program="soffice",
    ),
    "ppt": Format(
        parser="office.libreoffice:OldSlidesParser",
        versioned_modules=("office.slides", "office.legacy", "markup.markdown"),
        packages=("lxml", "kreuzberg"),
        program="soffice",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserChoice:
    """The formats that the library unstructured reads instead of our own parsers, and the OCR of scans, if any."""

    unstructured: frozenset[str] = frozenset()
    strategy: str = "fast"
    ocr: Tesseract | None = None


NATIVE = ParserChoice()
_SHARED = ("detection", "encoding")
_VERSION = re.compile(r"^VERSION = (\d+)$", re.MULTILINE)


@cache
def load_parser(name: str, choice: ParserChoice = NATIVE) -> Parser:
    """The parser of a format. Its libraries are loaded with it, so other formats' libraries cost nothing.

    Raises DocumentError with status `skipped` if a library is not installed.
    """
    format_ = FORMATS[name]
    module, _, attribute = format_.parser.partition(":")
    arguments: tuple[object, ...] = (choice.ocr,) if format_.reads_scans else ()
    if name in choice.unstructured:
        module, attribute, arguments = "unstructured_parser", "UnstructuredParser", (name, choice.strategy)
    try:
        parser: Parser = getattr(import_module(f"{__package__}.{module}"), attribute)(*arguments)
    except ModuleNotFoundError as error:
        raise DocumentError("parse", f"unsupported: {name} needs {error.name}", status="skipped") from error
    return parser


def recipe_part(uri: str, choice: ParserChoice = NATIVE) -> str:
    """The versions that the parsed text of this uri depends on. It changes when the parsed text can change.

    The suffix decides: content in another format than its suffix says is parsed again only when `detection` changes.
    An unknown suffix depends on all formats.
    """
    return _format_recipe(SUFFIXES.get(suffix_of(strip_gz_suffix(uri)), ""), choice)


@cache
def _format_recipe(name: str, choice: ParserChoice) -> str:
    parts: dict[str, None] = {}
    for format_name in [name] if name else FORMATS:
        if format_name in choice.unstructured:
            parts |= dict.fromkeys(map(_module_part, ("unstructured_parser", "markup.xml", "markup.markdown")))
            parts[f"{_package_part('unstructured')} {choice.strategy}"] = None
            continue
        format_ = FORMATS[format_name]
        modules = (format_.module, *format_.versioned_modules)
        parts |= dict.fromkeys(_module_part(module) for module in modules)
        parts |= dict.fromkeys(map(_package_part, format_.packages))
        if format_.program:
            parts[f"{format_.program} {'found' if shutil.which(format_.program) else 'missing'}"] = None
        if format_.reads_scans and choice.ocr:
            parts |= dict.fromkeys((_module_part("pdf.tesseract"), choice.ocr.recipe))
    shared = [_module_part(module) for module in _SHARED]
    metadata = f"metadata {_read_version('rag_core.parsing.metadata')}"
    return ", ".join([name or "unknown", *shared, metadata, *parts])


def _package_part(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} missing"


def _module_part(module: str) -> str:
    """The module's own name and version. Its package is left out: stored fingerprints survive a move of the module."""
    return f"{module.rpartition('.')[2]} {_read_version(f'{__package__}.{module}')}"


def _read_version(module: str) -> int:
    """The VERSION of a module, read from its source if it is not loaded: its libraries need not be loaded for that."""
    if module in sys.modules:
        return int(sys.modules[module].VERSION)
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec and spec.loader else ""  # type: ignore[attr-defined]
    match = _VERSION.search(source or "")
    return int(match[1]) if match else 0
