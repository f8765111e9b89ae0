"""Markdown documents whose fenced blocks are run, as a reader would type them.

| block | what the test does |
|---|---|
| `console` | runs each `$ command`, and compares what it prints with the lines below; `…` matches any text |
| `sh` | runs the lines in one shell that ends at the first error; later blocks keep its `export NAME=VALUE` |
| `python`, `py` | runs the program |
| `console` with `rag serve` | starts the server, which runs until the document's end |
| `yaml` | checks it by `rag config check` |
| `sql` | only writes the file that its first line names |
| `text` | compares it with the output of the block above, which is `sh`, `python` or `py` |

A block whose first line is a comment with a file name, such as `# my.yaml`, is also written to this file; a `python`
block with a name is only written. A block after `<!-- not run: REASON -->` is parsed and not run.

A command must end with exit code 0, unless the lines below it show an `error:`.
"""

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import typer
import yaml
from commands import Rag, Ran
from hosts import with_interrupts
from markdown_it import MarkdownIt

from rag_cli.app import app

ROOT = Path(__file__).parents[1]
ANYTHING = "…"
PROGRAMS = ("sh", "python", "py")
RUN = ("console", "yaml", *PROGRAMS)
PICTURES = ("mermaid",)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->", re.DOTALL)
EXPORT = re.compile(r"^export (\w+=.*)", re.MULTILINE)
FILE_NAME = re.compile(r"(?:#|--) ([\w./-]+\.\w+)$")


@dataclass(frozen=True)
class Block:
    """A fenced block. `reason`: why it is not run, or empty. `printed`: the `text` block that shows its output."""

    language: str
    text: str
    line: int
    reason: str = ""
    printed: str = ""

    @property
    def file(self) -> str:
        """The name in a comment on the first line, or empty."""
        named = FILE_NAME.match(self.text.partition("\n")[0])
        return named[1] if named else ""

    @property
    def commands(self) -> list[tuple[str, str]]:
        """(command, what it prints) of a `console` block, in order."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        lengths = [len(re.match(r"(?:.*\\\n)*.*", part)[0]) for part in parts]  # type: ignore[index]
        return [(part[:length], part[length:].lstrip("\n")) for part, length in zip(parts, lengths, strict=True)]


def read_blocks(document: str) -> list[Block]:
    """The fenced blocks in order. A `text` block after a program is its `printed`, and not a block of its own."""
    blocks: list[Block] = []
    reason = ""
    for token in MarkdownIt().parse(document):
        if token.type == "html_block":
            marked = NOT_RUN.search(token.content)
            reason = " ".join(marked[1].split()) if marked else ""
        elif token.type == "fence":
            block = Block(token.info.strip(), token.content, token.map[0] + 1 if token.map else 0, reason)
            if block.language == "text" and not reason and blocks and blocks[-1].language in PROGRAMS:
                program = blocks.pop()
                assert not program.printed, f"line {block.line}: the program above has an output already"
                block = Block(program.language, program.text, program.line, program.reason, block.text)
            blocks.append(block)
            reason = ""
        elif token.type == "code_block":
            raise AssertionError(f"indented code, which no test runs; use a fence: {token.content}")
    return blocks


def unknown_blocks(blocks: list[Block]) -> list[Block]:
    """The blocks that are neither run, nor written to a file, nor marked as not run."""
    languages = (*RUN, *PICTURES)
    return [block for block in blocks if not (block.language in languages or block.reason or block.file)]


def as_pattern(line: str) -> str:
    """A pattern that matches the line with any white space, because columns are as wide as their contents, and with any
    numbers of seconds."""
    spaced = re.sub(r"\d+\.\d\d (?=[a-z])", f"{ANYTHING} ", " ".join(line.split()))
    return ".*".join(re.escape(part) for part in spaced.split(ANYTHING))


def assert_prints(code: str, expected: str, actual: str) -> None:
    """Fails unless every line that the document shows is in the output, in the same order."""
    actual = " ".join(actual.split())
    position = 0
    for line in filter(str.strip, expected.splitlines()):
        match = re.compile(as_pattern(line)).search(actual, position)
        assert match, f"{code}\nshould print: {line}\nprinted: {actual}"
        position = match.start() if line.strip() == ANYTHING else match.start() + 1


@dataclass
class Reader:
    """A reader who runs the blocks of documents in one folder.

    `replaced`: what the test does not have as the document shows it, such as a port, and what it has instead.
    `rag`: runs `rag` in this process, which saves seconds of imports per command.
    """

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    rag: Rag | None = None
    _servers: ExitStack = field(default_factory=ExitStack)

    def follow(self, document: str) -> None:
        """Runs or parses every block, in order."""
        blocks = read_blocks(document)
        assert not unknown_blocks(blocks), f"neither run nor marked as not run: {unknown_blocks(blocks)}"
        with self._servers:
            for block in blocks:
                if block.reason:
                    check_block(block)
                else:
                    self.run_block(block)

    def run_block(self, block: Block) -> None:
        if block.file:
            self.write_file(block)
        if block.language == "console":
            for command, printed in block.commands:
                assert_prints(f"$ {command}", self.replace(printed), self.run(command, must_fail="error: " in printed))
        elif block.language == "yaml":
            self.check_yaml(block)
        elif block.language in PROGRAMS and not (block.file and block.language != "sh"):
            assert_prints(block.text, self.replace(block.printed), self.run_program(block))

    def run_program(self, block: Block) -> str:
        if block.language != "sh":
            return self.run(f"python - <<'PYTHON'\n{block.text}\nPYTHON")
        printed = self.run(block.text)
        for assignment in EXPORT.findall(self.replace(block.text)):
            name, _, value = shlex.split(assignment, comments=True)[0].partition("=")
            variables = {**self._variables(), "PWD": str(self.folder)}
            expanded = re.sub(r"\$(\w+)", lambda match, values=variables: values.get(match[1], ""), value)
            self.environment = {**self.environment, name: expanded}
        return printed

    def run(self, command: str, must_fail: bool = False) -> str:
        """What a command in the shell prints. Fails unless it ends as it should."""
        if command.startswith("rag serve ") and not must_fail:
            return self._servers.enter_context(self._serve(self.replace(command)))
        ran = self._run_here(self.replace(command)) or self._run_in_shell(self.replace(command))
        assert (ran.code != 0) == must_fail, f"{command}\nexit code {ran.code}\n{ran.out}\n{ran.err}"
        return ran.out + ran.err

    def _run_here(self, command: str) -> Ran | None:
        """Runs a `rag` command in this process; None if it needs a shell or imports of its own."""
        if not self.rag or not re.match("rag (?!serve)", command) or "PYTHONPATH" in self.environment or "$" in command:
            return None
        words = list(shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True))
        if any(re.fullmatch(r"[|&;<>()]+", word) for word in words):
            return None
        with chdir(self.folder), patch.dict(os.environ, self.environment):
            return self.rag(*shlex.split(command.replace("\\\n", " "))[1:])

    def _run_in_shell(self, command: str) -> Ran:
        shell = ["bash", "-ec", command]
        process = subprocess.run(
            shell, cwd=self.folder, env=self._variables(), capture_output=True, text=True, check=False
        )
        return Ran(process.returncode, process.stdout, process.stderr)

    @contextmanager
    def _serve(self, command: str) -> Iterator[str]:
        """Yields the first line that the server prints, which it does when it is ready."""
        log = self.folder / "serve.log"
        with (
            log.open("w") as errors,
            subprocess.Popen(
                with_interrupts(shlex.split(command)),
                cwd=self.folder,
                env=self._variables(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdout
            yield process.stdout.readline() or log.read_text()
            process.send_signal(signal.SIGINT)

    def _variables(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **self.environment,
        }

    def check_yaml(self, block: Block) -> None:
        """Checks the settings. Without a name they are in a folder of their own: the reader's can be the repository."""
        with TemporaryDirectory() as folder:
            file = Path(block.file or f"{folder}/block.yaml")
            (self.folder / file).write_text(self.replace(block.text))
            # modules that a file in a subfolder names can be next to it
            path = f"PYTHONPATH={file.parent} " if block.file and file.parent != Path() else ""
            self.run(f"{path}rag config check --config {file}")

    def write_file(self, block: Block) -> None:
        file = self.folder / block.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.replace(block.text))

    def replace(self, text: str) -> str:
        for placeholder, actual in self.replaced.items():
            text = text.replace(placeholder, actual)
        return text


def check_block(block: Block) -> None:
    """Checks a block that is not run: Python and YAML must parse, and `rag` must have the commands and options."""
    if block.language == "console":
        for command, _ in block.commands:
            check_shell(command)
    elif block.language == "sh":
        check_shell(block.text)
    elif block.language in ("python", "py"):
        ast.parse(block.text)
    elif block.language == "yaml":
        yaml.safe_load(block.text)


def check_shell(code: str) -> None:
    subprocess.run(["bash", "-n", "-c", code], check=True, timeout=10)
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["rag"]:
            check_rag(words[1 : next((at for at, word in enumerate(words) if word in ("|", "&", ">")), None)])


def check_rag(arguments: list[str]) -> None:
    """Raises typer's UsageError if `rag` has no such command, or the command no such options."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="rag")
    while isinstance(command, typer.core.TyperGroup):
        _, command, arguments = command.resolve_command(context, arguments)
    command.make_context(command.name, arguments, parent=context)
