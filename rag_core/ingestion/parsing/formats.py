"""The formats that are read, the parser of each, and what a document's text depends on beside its bytes."""

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from rag_core.errors import DocumentError
from rag_core.ingestion.parsing.compression import inner
from rag_core.ingestion.parsing.detection import SUFFIXES, suffix_of
from rag_core.protocols import Parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """`parser` is a class in a module of this package. `made_with` are further modules whose VERSION counts, `packages`
    the distributions whose release does, `program` one that has to be on the PATH.
    """

    parser: str
    made_with: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    program: str = ""

    @property
    def module(self) -> str:
        return self.parser.partition(":")[0]


_HTML = ("html", "markdown", "text")
_TO_MARKDOWN = "html-to-markdown"
FORMATS = {
    "markdown": Format(parser="markdown:MarkdownParser", made_with=("html",), packages=(_TO_MARKDOWN,)),
    "html": Format(parser="html:HtmlParser", made_with=_HTML, packages=(_TO_MARKDOWN,)),
    "text": Format(parser="text:TextParser"),
    "asciidoc": Format(parser="asciidoc:AsciidocParser", made_with=("markdown",)),
    "csv": Format(parser="delimited:DelimitedParser"),
    "json": Format(parser="data:DataParser", made_with=("markdown",)),
    "xml": Format(parser="xml:XmlParser", made_with=("markdown",), packages=("lxml",)),
    "pdf": Format(parser="pdf:PdfParser", made_with=("layout", "grid"), packages=("pypdfium2",)),
    "docx": Format(parser="word:WordParser", made_with=("markdown",), packages=("lxml",)),
    "pptx": Format(parser="slides:SlidesParser", made_with=("markdown",), packages=("lxml",)),
    "xlsx": Format(parser="sheets:SheetsParser", made_with=("markdown",), packages=("python-calamine", "lxml")),
    "xls": Format(
        parser="sheets:LegacySheetsParser", made_with=("markdown",), packages=("python-calamine", "lxml", "xlrd")
    ),
    **dict.fromkeys(
        ("odt", "ods", "odp"),
        Format(parser="opendocument:OpenDocumentParser", made_with=("markdown",), packages=("lxml",)),
    ),
    "epub": Format(parser="epub:EpubParser", made_with=_HTML, packages=("lxml", _TO_MARKDOWN)),
    "rtf": Format(parser="rtf:RtfParser", made_with=("markdown",)),
    "eml": Format(parser="mail:MailParser", made_with=_HTML, packages=(_TO_MARKDOWN,)),
    "msg": Format(parser="outlook:OutlookParser", made_with=("mail", *_HTML), packages=("olefile", _TO_MARKDOWN)),
    "doc": Format(
        parser="libreoffice:OldWordParser", made_with=("word", "markdown"), packages=("lxml",), program="soffice"
    ),
    "ppt": Format(
        parser="libreoffice:OldSlidesParser", made_with=("slides", "markdown"), packages=("lxml",), program="soffice"
    ),
}

_SHARED = ("detection", "encoding")
_VERSION = re.compile(r"^VERSION = (\d+)$", re.MULTILINE)


@cache
def parser_of(name: str) -> Parser:
    """Its libraries are loaded with it, so that whoever reads one format pays for no other."""
    module, _, attribute = FORMATS[name].parser.partition(":")
    try:
        parser: Parser = getattr(import_module(f"{__package__}.{module}"), attribute)()
    except ModuleNotFoundError as error:
        raise DocumentError("parse", f"unsupported: {name} needs {error.name}", status="skipped") from error
    return parser


def recipe_part(uri: str) -> str:
    """Changes when the way may change in which a document of this uri would be parsed: content that is not what its
    suffix says is only told from the others when `detection` changes. Of an unknown suffix it depends on all.
    """
    return _recipe(SUFFIXES.get(suffix_of(inner(uri)), ""))


@cache
def _recipe(name: str) -> str:
    formats = [name] if name else list(FORMATS)
    parts = [f"{module} {_version(_full(module))}" for module in _SHARED]
    parts += [f"metadata {_version('rag_core.ingestion.metadata')}"]
    return ", ".join([name or "unknown", *parts, *dict.fromkeys(part for each in formats for part in _made_of(each))])


def _made_of(name: str) -> Iterator[str]:
    made = FORMATS[name]
    for module in dict.fromkeys((made.module, *made.made_with)):
        yield f"{module} {_version(_full(module))}"
    for package in made.packages:
        yield f"{package} {_release(package)}"
    if made.program:
        yield f"{made.program} {'found' if shutil.which(made.program) else 'missing'}"


def _full(module: str) -> str:
    return f"{__package__}.{module}"


def _version(module: str) -> int:
    """A module's VERSION without its libraries: read from its source unless it is loaded."""
    if module in sys.modules:
        return int(sys.modules[module].VERSION)
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec and spec.loader else ""  # type: ignore[attr-defined]
    found = _VERSION.search(source or "")
    return int(found[1]) if found else 0


def _release(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
