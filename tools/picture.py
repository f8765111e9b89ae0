"""Draws an answer of `rag ask` as a terminal shows it, as SVG.

    python -m tools.picture QUESTION FOLDER FILE.svg

It syncs the folder into a store of its own, asks the question in a pseudo-terminal, and writes what that displays.
"""

import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 88
_WEB_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def draw_answer(question: str, folder: Path) -> str:
    """The terminal after `rag ask QUESTION`, as SVG without references to other files."""
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"RAG_HOME": home, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
        rag = [sys.executable, "-m", "rag_cli"]
        try:
            subprocess.run([*rag, "ingest", str(folder), "--quiet"], env=environment, check=True)
            printed = run_in_terminal([*rag, "ask", question], environment)
        finally:
            subprocess.run([*rag, "store", "stop"], env=environment, check=True, stdout=subprocess.DEVNULL)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ rag ask {shlex.quote(question)}", style="bold"))
    console.print(Text.from_ansi(printed))
    return _WEB_FONTS.sub("", console.export_svg(title="rag ask"))


def run_in_terminal(command: list[str], environment: dict[str, str]) -> str:
    """What the command writes to a terminal, with its control sequences."""
    terminal, side = pty.openpty()
    with subprocess.Popen(command, env=environment, stdin=side, stdout=side, stderr=side) as process:
        os.close(side)
        written = b""
        try:
            while part := os.read(terminal, 1 << 16):
                written += part
        except OSError:  # on Linux, the end of the output is an error
            pass
        os.close(terminal)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, written)
    return written.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    question, folder, file = sys.argv[1:]
    Path(file).write_text(draw_answer(question, Path(folder)))
