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
from rag_core.parsing.compression import inner
from rag_core.parsing.detection import SUFFIXES, suffix_of
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


_HTML = ("markup.html", "markup.markdown", "plain.text")
_TO_MARKDOWN = "html-to-markdown"
FORMATS = {
    "markdown": Format(parser="markup.markdown:MarkdownParser", made_with=("markup.html",), packages=(_TO_MARKDOWN,)),
    "html": Format(parser="markup.html:HtmlParser", made_with=_HTML, packages=(_TO_MARKDOWN,)),
    "text": Format(parser="plain.text:TextParser"),
    "asciidoc": Format(parser="markup.asciidoc:AsciidocParser", made_with=("markup.markdown",)),
    "csv": Format(parser="plain.delimited:DelimitedParser"),
    "json": Format(parser="plain.data:DataParser", made_with=("markup.markdown",)),
    "xml": Format(parser="markup.xml:XmlParser", made_with=("markup.markdown",), packages=("lxml",)),
    "pdf": Format(parser="pdf.pdf:PdfParser", made_with=("pdf.layout", "pdf.grid"), packages=("pypdfium2",)),
    "docx": Format(parser="office.word:WordParser", made_with=("markup.markdown",), packages=("lxml",)),
    "pptx": Format(parser="office.slides:SlidesParser", made_with=("markup.markdown",), packages=("lxml",)),
    "xlsx": Format(
        parser="office.sheets:SheetsParser", made_with=("markup.markdown",), packages=("python-calamine", "lxml")
    ),
    "xls": Format(
        parser="office.sheets:LegacySheetsParser",
        made_with=("markup.markdown",),
        packages=("python-calamine", "lxml", "xlrd"),
    ),
    **dict.fromkeys(
        ("odt", "ods", "odp"),
        Format(parser="office.opendocument:OpenDocumentParser", made_with=("markup.markdown",), packages=("lxml",)),
    ),
    "epub": Format(parser="markup.epub:EpubParser", made_with=_HTML, packages=("lxml", _TO_MARKDOWN)),
    "rtf": Format(parser="office.rtf:RtfParser", made_with=("markup.markdown",)),
    "eml": Format(parser="plain.mail:MailParser", made_with=_HTML, packages=(_TO_MARKDOWN,)),
    "msg": Format(
        parser="office.outlook:OutlookParser", made_with=("plain.mail", *_HTML), packages=("olefile", _TO_MARKDOWN)
    ),
    "doc": Format(
        parser="office.libreoffice:OldWordParser",
        made_with=("office.word", "markup.markdown"),
        packages=("lxml",),
        program="soffice",
    ),
    "ppt": Format(
        parser="office.libreoffice:OldSlidesParser",
        made_with=("office.slides", "markup.markdown"),
        packages=("lxml",),
        program="soffice",
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
    parts = [_module_part(module) for module in _SHARED]
    parts += [f"metadata {_version('rag_core.parsing.metadata')}"]
    return ", ".join([name or "unknown", *parts, *dict.fromkeys(part for each in formats for part in _made_of(each))])


def _made_of(name: str) -> Iterator[str]:
    made = FORMATS[name]
    for module in dict.fromkeys((made.module, *made.made_with)):
        yield _module_part(module)
    for package in made.packages:
        yield f"{package} {_release(package)}"
    if made.program:
        yield f"{made.program} {'found' if shutil.which(made.program) else 'missing'}"


def _module_part(module: str) -> str:
    """Without the package: stored fingerprints outlive a move of the module, but not a change of its own name."""
    return f"{module.rpartition('.')[2]} {_version(f'{__package__}.{module}')}"


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
