"""Old Office formats, converted by LibreOffice where it is installed."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from rag_core.errors import DocumentError
from rag_core.parsing.office.slides import SlidesParser
from rag_core.parsing.office.word import WordParser
from rag_core.parsing.sandbox_child import scratch_prefix
from rag_core.types import Document

VERSION = 1

_PROGRAM = "soffice"
_PROFILE = "profile"
_TIMEOUT = 60.0
_LONGEST_REASON = 200

# A document may name pictures and texts that are fetched when it is opened: from this machine or by it
_ALONE = {"BlockUntrustedRefererLinks": "true", "DisableMacrosExecution": "true"}
_SETTINGS = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting">{}</item>
</oor:items>
"""
_SETTING = '<prop oor:name="{}" oor:op="fuse"><value>{}</value></prop>'


class OldWordParser:
    def parse(self, uri: str, body: bytes) -> Document:
        return WordParser().parse(uri, converted(body, "doc", "docx"))


class OldSlidesParser:
    def parse(self, uri: str, body: bytes) -> Document:
        return SlidesParser().parse(uri, converted(body, "ppt", "pptx"))


def converted(body: bytes, suffix: str, wanted: str, timeout: float = _TIMEOUT) -> bytes:
    """DocumentError, skipped, without LibreOffice; failed if it does, or takes longer than `timeout` seconds."""
    program = shutil.which(_PROGRAM)
    if program is None:
        raise DocumentError("parse", "needs LibreOffice", status="skipped")
    with TemporaryDirectory(prefix=scratch_prefix(os.getpid()), ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / f"document.{suffix}").write_bytes(body)
        _write_settings(folder)
        said = _ran(_command(program, folder, suffix, wanted), folder, timeout)
        made = folder / "out" / f"document.{wanted}"
        if not made.is_file():
            raise DocumentError("parse", f"LibreOffice made no {wanted}: {' '.join(said.split())[-_LONGEST_REASON:]}")
        return made.read_bytes()


def _write_settings(folder: Path) -> None:
    user = folder / _PROFILE / "user"
    user.mkdir(parents=True)
    settings = "".join(_SETTING.format(name, value) for name, value in _ALONE.items())
    (user / "registrymodifications.xcu").write_text(_SETTINGS.format(settings))


def _command(program: str, folder: Path, suffix: str, wanted: str) -> list[str]:
    """With a profile of its own: two that share one do not run at the same time."""
    profile = f"-env:UserInstallation={(folder / _PROFILE).as_uri()}"
    out = str(folder / "out")
    return [program, profile, "--headless", "--convert-to", wanted, "--outdir", out, str(folder / f"document.{suffix}")]


def _ran(command: list[str], folder: Path, timeout: float) -> str:
    """What it said. Its whole group is ended at the timeout: `soffice` is a script around the program that works."""
    with subprocess.Popen(  # noqa: S603 - the program stands on the PATH, the rest is ours
        command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise DocumentError("parse", f"LibreOffice took longer than {timeout:g} s") from error
    return said.decode("utf-8", "replace")
