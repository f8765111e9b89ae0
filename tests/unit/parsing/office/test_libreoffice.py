import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from compound import compound
from poison import docx
from waiting import wait_for_end

from rag_core.errors import DocumentError
from rag_core.parsing import sandbox as sandbox_module
from rag_core.parsing.document import parse
from rag_core.parsing.office.libreoffice import OldWordParser, convert
from rag_core.parsing.office.word import WordParser
from rag_core.parsing.sandbox import Sandbox, SandboxLimits

SCRIPT = """#!/bin/sh
{0}
"""
COPIES = """while [ "$1" != --outdir ]; do shift; done
/bin/mkdir "$2"
/bin/cat "$3" > "$2/document.docx"
"""
OLD = compound({"WordDocument": b"old"})
STORY = rb"{\rtf1 Gates\par Opened at spring tide.\par}"
LINKED = """<?xml version="1.0"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"
 xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"
 xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"
 office:version="1.2" office:mimetype="application/vnd.oasis.opendocument.text"><office:body><office:text>
<text:p>Opened at spring tide.<draw:frame svg:width="3cm" svg:height="3cm" text:anchor-type="as-char">
<draw:image xlink:href="{}"/></draw:frame></text:p></office:text></office:body></office:document>"""

needs_libreoffice = pytest.mark.skipif(shutil.which("soffice") is None, reason="needs LibreOffice")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(path: Path, script: str) -> None:
    (path / "soffice").write_text(SCRIPT.format(script))
    (path / "soffice").chmod(0o755)


def failure(timeout: float = 9.0) -> DocumentError:
    with pytest.raises(DocumentError) as failed:
        convert(b"old", "doc", "docx", timeout)
    return failed.value


@pytest.mark.usefixtures("path")
def test_without_libreoffice_a_document_is_skipped() -> None:
    assert (failure().reason, failure().status) == ("needs LibreOffice: no program soffice on the PATH", "skipped")


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("uri", ["file:///a.doc", "file:///a.ppt"])
def test_a_document_that_neither_libreoffice_nor_kreuzberg_can_read_is_skipped(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kreuzberg", None)
    with pytest.raises(DocumentError) as failed:
        parse(uri, compound({"WordDocument" if uri.endswith("doc") else "PowerPoint Document": b"old"}), False, 9, 9)
    assert failed.value.reason == (
        "needs LibreOffice (no program soffice on the PATH) or kreuzberg (the extra [legacy])"
    )
    assert failed.value.status == "skipped"


class DamagedError(Exception):
    pass


def extract(body: bytes, media_type: str, _config: object) -> SimpleNamespace:
    if body == b"damaged":
        raise DamagedError("no text")
    return SimpleNamespace(
        content=f"Click to edit Master text styles\n\nSecond level\n\nGates\r\n\r\n{media_type}",
        metadata={"authors": ["Ann"], "title": ""},
    )


@pytest.fixture
def _kreuzberg(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(ExtractionConfig=SimpleNamespace, KreuzbergError=DamagedError, extract_bytes_sync=extract)
    monkeypatch.setitem(sys.modules, "kreuzberg", fake)


@pytest.mark.usefixtures("path", "_kreuzberg")
def test_without_libreoffice_kreuzberg_reads_the_text_and_sets_a_flag() -> None:
    document = OldWordParser().parse("file:///a.doc", b"old")
    assert (document.title, document.text) == ("Gates", "Gates\n\napplication/msword")
    assert document.metadata == {"authors": ["Ann"], "flags": ["structure-lost"]}


@pytest.mark.usefixtures("path", "_kreuzberg")
def test_a_document_that_kreuzberg_cannot_read_fails_by_name() -> None:
    with pytest.raises(DocumentError, match="damaged document: no text") as failed:
        OldWordParser().parse("file:///a.doc", b"damaged")
    assert failed.value.status == "failed"


def test_the_file_that_libreoffice_writes_is_returned(path: Path) -> None:
    install(path, COPIES)
    assert convert(b"old", "doc", "docx") == b"old"


def test_its_output_is_the_reason_if_it_writes_no_file(path: Path) -> None:
    install(path, "echo Error: source file could not be loaded")
    assert failure().reason == "LibreOffice wrote no docx file: Error: source file could not be loaded"
    assert failure().status == "failed"


def test_a_timeout_kills_it_with_all_processes_that_it_started(path: Path) -> None:
    install(path, "/bin/sleep 30")
    start = time.monotonic()
    assert failure(0.3).reason == "LibreOffice took longer than 0.3 s"
    assert time.monotonic() - start < 5


@pytest.mark.usefixtures("path")
def test_no_file_and_no_process_remain_if_the_sandbox_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    install(tmp_path, f"echo $$ > {tmp_path}/started; exec /bin/sleep 30")
    monkeypatch.setattr(sandbox_module, "WALL_FACTOR", 1)  # a parser that waits uses no CPU time
    sandbox = create_sandbox(SandboxLimits(seconds=3.0))
    with pytest.raises(DocumentError, match="gave no answer within 3 s"):
        sandbox("file:///a.doc", OLD)
    wait_for_end(int((tmp_path / "started").read_text()))
    assert os.listdir(tmp_path / "scratch") == []


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), RecordingHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class RecordingHandler(BaseHTTPRequestHandler):
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_error(404)

    do_HEAD = do_OPTIONS = do_PROPFIND = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@needs_libreoffice
@pytest.mark.timeout(120)
def test_old_documents_are_read_within_the_limits_of_the_sandbox() -> None:
    sandbox = create_sandbox(SandboxLimits())
    read = sandbox("file:///a.doc", convert(STORY, "rtf", "doc"))
    sandbox.close()
    assert read.text == "Gates\n\nOpened at spring tide.\n"
    assert read.metadata["format"] == "doc"


@needs_libreoffice
@pytest.mark.timeout(120)
def test_a_document_cannot_make_libreoffice_fetch_a_picture(server: HTTPServer) -> None:
    linked = LINKED.format(f"http://127.0.0.1:{server.server_port}/picture.png")
    text = WordParser().parse("file:///a.docx", convert(linked.encode(), "fodt", "docx")).text
    assert (text, RecordingHandler.paths) == ("Opened at spring tide.\n", [])


def create_sandbox(bounds: SandboxLimits) -> Sandbox:
    return Sandbox(partial(parse, detect_language=False, file_mb=9, text_mb=9), bounds, [("file:///a.docx", docx("x"))])
