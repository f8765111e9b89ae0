"""Old Office formats, which LibreOffice converts if it is installed. If not, only their text is read."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from rag_core.errors import DocumentError
from rag_core.parsing.office.legacy import read_text
from rag_core.parsing.office.slides import SlidesParser
from rag_core.parsing.office.word import WordParser
from rag_core.parsing.sandbox_child import scratch_prefix
from rag_core.types import Document

VERSION = 2

_PROGRAM = "soffice"
_TIMEOUT = 60.0
_MAX_REASON_CHARS = 200

# A document can link to pictures and texts that LibreOffice would fetch from this machine or over the network
_SECURITY = {"BlockUntrustedRefererLinks": "true", "DisableMacrosExecution": "true"}
_SETTINGS = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting">{}</item>
</oor:items>
"""
_SETTING = '<prop oor:name="{}" oor:op="fuse"><value>{}</value></prop>'


class OldWordParser:
    def parse(self, uri: str, body: bytes) -> Document:
        if shutil.which(_PROGRAM) is None:
            return read_text(uri, body, "application/msword")
        return WordParser().parse(uri, convert(body, "doc", "docx"))


class OldSlidesParser:
    def parse(self, uri: str, body: bytes) -> Document:
        if shutil.which(_PROGRAM) is None:
            return read_text(uri, body, "application/vnd.ms-powerpoint")
        return SlidesParser().parse(uri, convert(body, "ppt", "pptx"))


def convert(body: bytes, suffix: str, target: str, timeout: float = _TIMEOUT) -> bytes:
    """Converts a document from one format to another, both named by their suffixes.

    Raises DocumentError: skipped if LibreOffice is not installed, failed if it fails or takes longer than `timeout`
    seconds.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise DocumentError("parse", f"needs LibreOffice: no program {_PROGRAM} on the PATH", status="skipped")
    with TemporaryDirectory(prefix=scratch_prefix(os.getpid()), ignore_cleanup_errors=True) as name:
        folder = Path(name)
        source, output = folder / f"document.{suffix}", folder / "out" / f"document.{target}"
        source.write_bytes(body)
        profile = folder / "profile"  # two runs that share a profile exclude each other
        (profile / "user").mkdir(parents=True)
        settings = "".join(_SETTING.format(setting, value) for setting, value in _SECURITY.items())
        (profile / "user" / "registrymodifications.xcu").write_text(_SETTINGS.format(settings))
        options = [f"-env:UserInstallation={profile.as_uri()}", "--headless", "--convert-to", target]
        printed = _run_program([program, *options, "--outdir", str(output.parent), str(source)], folder, timeout)
        if not output.is_file():
            reason = " ".join(printed.split())[-_MAX_REASON_CHARS:]
            raise DocumentError("parse", f"LibreOffice wrote no {target} file: {reason}")
        return output.read_bytes()


def _run_program(command: list[str], folder: Path, timeout: float) -> str:
    """Runs a command in `folder` and returns its output.

    At the timeout its whole process group is killed: `soffice` is a script that starts the actual program.
    """
    with subprocess.Popen(  # noqa: S603 - the program is on the PATH, the arguments are ours
        command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise DocumentError("parse", f"LibreOffice took longer than {timeout:g} s") from error
    return printed.decode("utf-8", "replace")
