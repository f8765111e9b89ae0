"""The readers that `benchmarks.parse` compares, each in a process with the Python that has its library.

Reads paths from standard input, and writes a JSON line for each: the text, the CPU seconds of a second reading with
those of its child processes, so that imports do not count, and the reason if the file cannot be read.

    python -m benchmarks.parse_readers NAME
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

Read: TypeAlias = Callable[[Path], str]


def main() -> None:
    read = READERS[sys.argv[1]]()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    for line in sys.stdin:
        out.write(json.dumps(read_twice(read, Path(line.rstrip("\n")))) + "\n")
        out.flush()


def read_twice(read: Read, path: Path) -> dict[str, Any]:
    try:
        read(path)
        start = _cpu_seconds()
        text = read(path)
    except Exception as error:  # noqa: BLE001 - each library has its own
        return {"text": "", "seconds": 0.0, "reason": f"{type(error).__name__}: {error}"[:200]}
    return {"text": text, "seconds": _cpu_seconds() - start, "reason": ""}


def _cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _load_ours() -> Read:
    from rag_core.parsing.formats import NATIVE

    return partial(_parse, NATIVE)


def _load_unstructured() -> Read:
    """Its elements as our parser writes them: the library itself writes no Markdown."""
    from rag_core.parsing.detection import SUFFIXES
    from rag_core.parsing.formats import ParserChoice
    from rag_core.parsing.unstructured_parser import PARTITIONERS

    def read(path: Path) -> str:
        if SUFFIXES.get(path.suffix.lower()) not in PARTITIONERS:
            raise ValueError(f"unsupported: {path.suffix}")
        return _parse(ParserChoice(unstructured=frozenset(PARTITIONERS)), path)

    return read


def _load_tesseract() -> Read:
    """Pictures of a PDF's pages, as a scanner makes them, read by OCR."""
    import pypdfium2

    from rag_core.parsing.formats import ParserChoice, load_parser
    from rag_core.parsing.pdf.tesseract import Tesseract

    choice = ParserChoice(ocr=Tesseract(languages=("eng",), max_pages=1000, timeout=3600))

    def read(path: Path) -> str:
        pages = [page.render(scale=200 / 72, grayscale=True).to_pil() for page in pypdfium2.PdfDocument(path)]
        out = BytesIO()
        pages[0].save(out, "PDF", save_all=True, append_images=pages[1:], resolution=200)
        return load_parser("pdf", choice).parse(path.as_uri(), out.getvalue()).text

    return read


def _parse(choice: Any, path: Path) -> str:
    from rag_core.parsing.document import parse

    return parse(path.as_uri(), path.read_bytes(), detect_language=True, file_mb=200, text_mb=200, choice=choice).text


def _load_pdfium() -> Read:
    import pypdfium2

    def read(path: Path) -> str:
        return "\n".join(page.get_textpage().get_text_range() for page in pypdfium2.PdfDocument(path))

    return read


def _load_markitdown() -> Read:
    from markitdown import MarkItDown  # type: ignore[import-not-found]

    converter = MarkItDown()
    return lambda path: str(converter.convert(path).markdown)


def _load_kreuzberg() -> Read:
    from kreuzberg import ExtractionConfig, extract_file_sync  # type: ignore[import-not-found]

    config = ExtractionConfig(output_format="markdown")
    return lambda path: str(extract_file_sync(path, config=config).content)


READERS: dict[str, Callable[[], Read]] = {
    "ours": _load_ours,
    "unstructured": _load_unstructured,
    "tesseract": _load_tesseract,
    "pdfium": _load_pdfium,
    "markitdown": _load_markitdown,
    "kreuzberg": _load_kreuzberg,
}


if __name__ == "__main__":
    main()
