import time
from pathlib import Path

import pytest

from rag_core.errors import DocumentError
from rag_core.ingestion.parsing.libreoffice import converted

SCRIPT = """#!/bin/sh
{0}
"""
COPIES = """while [ "$1" != --outdir ]; do shift; done
/bin/mkdir "$2"
/bin/cat "$3" > "$2/document.docx"
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(path: Path, script: str) -> None:
    (path / "soffice").write_text(SCRIPT.format(script))
    (path / "soffice").chmod(0o755)


def failure(timeout: float = 9.0) -> DocumentError:
    with pytest.raises(DocumentError) as failed:
        converted(b"old", "doc", "docx", timeout)
    return failed.value


@pytest.mark.usefixtures("path")
def test_without_libreoffice_a_document_is_skipped() -> None:
    assert (failure().reason, failure().status) == ("needs LibreOffice", "skipped")


def test_what_libreoffice_makes_is_returned(path: Path) -> None:
    install(path, COPIES)
    assert converted(b"old", "doc", "docx") == b"old"


def test_what_it_says_is_the_reason_where_it_makes_nothing(path: Path) -> None:
    install(path, "echo Error: source file could not be loaded")
    assert failure().reason == "LibreOffice made no docx: Error: source file could not be loaded"
    assert failure().status == "failed"


def test_it_ends_with_all_that_it_started_at_the_timeout(path: Path) -> None:
    install(path, "/bin/sleep 30")
    start = time.monotonic()
    assert failure(0.3).reason == "LibreOffice took longer than 0.3 s"
    assert time.monotonic() - start < 5
