"""The parsers of documents, in the sandbox or in this process."""

from collections.abc import Callable
from functools import lru_cache, partial
from importlib.util import find_spec

from rag_core.config import Limits, ParsingSettings, UnstructuredParsing
from rag_core.errors import ConfigError
from rag_core.parsing.detection import SUFFIXES
from rag_core.parsing.document import parse
from rag_core.parsing.formats import ParserChoice
from rag_core.parsing.pdf.tesseract import Tesseract
from rag_core.parsing.sandbox import ParserInput, Sandbox, SandboxLimits
from rag_core.types import Document

WARM_UP_DOCUMENT = ("file:///sample.txt", b"A text with enough letters to load the language detection model.")
MEGABYTE = 1_000_000
_LIBRARIES = {
    "csv": "pandas",
    "docx": "docx",
    "markdown": "markdown",
    "pptx": "pptx",
    "xls": "xlrd",
    "xlsx": "openpyxl",
}
"""The library that unstructured needs for a format, by format."""
_ZIP_SAMPLE = b"PK\x03\x04"
_SAMPLES = {"csv": b"a,b", "html": b"<p>a</p>", "markdown": b"a", "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"}


def choose_parsers(parsing: ParsingSettings) -> ParserChoice:
    section = parsing.ocr
    ocr = (
        Tesseract(languages=section.languages, max_pages=section.pages, timeout=section.timeout_s) if section else None
    )
    if isinstance(parsing, UnstructuredParsing):
        return ParserChoice(unstructured=frozenset(parsing.formats), strategy=parsing.strategy, ocr=ocr)
    return ParserChoice(ocr=ocr)


def check_parsers(parsing: ParsingSettings) -> None:
    """Raises ConfigError if a library or a program is not installed that the settings require."""
    choice = choose_parsers(parsing)
    libraries = {_LIBRARIES.get(name, "unstructured") for name in choice.unstructured} | {"unstructured"}
    missing = sorted(name for name in libraries if choice.unstructured and find_spec(name) is None)
    if missing:
        raise ConfigError(
            f"parsing.type unstructured requires {', '.join(missing)}, which is not installed: "
            "install the extra [unstructured]"
        )
    if choice.ocr and (defect := choice.ocr.find_defect()):
        raise ConfigError(f"parsing.ocr: {defect}")


@lru_cache(maxsize=1)
def open_parser(parsing: ParsingSettings, limits: Limits) -> Callable[[str, bytes], Document]:
    """The parser of this process. Jobs with equal settings share its sandbox, which takes half a second to start."""
    choice = choose_parsers(parsing)
    parse_body = partial(
        parse,
        detect_language=parsing.detect_language,
        file_mb=limits.file_mb,
        text_mb=limits.text_mb,
        choice=choice,
    )
    if not parsing.sandbox:
        return parse_body
    sandbox_limits = SandboxLimits(
        seconds=parsing.timeout_s + (choice.ocr.timeout if choice.ocr else 0),
        memory_mb=parsing.memory_mb,
        output_bytes=int(limits.text_mb * 4 * MEGABYTE) + MEGABYTE,
    )
    return Sandbox(parse_body, sandbox_limits, [WARM_UP_DOCUMENT, *_list_library_samples(choice)])


def _list_library_samples(choice: ParserChoice) -> list[ParserInput]:
    """Inputs that load unstructured, which takes seconds and hundreds of megabytes, before the limits apply.

    Some are damaged archives: the library is loaded before it finds out.
    """
    suffixes = {name: suffix for suffix, name in reversed(SUFFIXES.items())}
    return [(f"file:///sample{suffixes[name]}", _SAMPLES.get(name, _ZIP_SAMPLE)) for name in choice.unstructured]
