"""The instructions of a Dockerfile by stage, and the files that its .dockerignore leaves out."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

INSTRUCTION = re.compile(r"([A-Z]+) (.*)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """`value`: the text after the name, on one line."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Stage:
    """`parent`: the name of the stage or of the image that it begins with, with its variables."""

    name: str
    parent: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """`arguments`: the `ARG` instructions before the first stage."""

    arguments: tuple[Instruction, ...]
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def parse_dockerfile(text: str) -> Dockerfile:
    """Raises ValueError for a line that does not begin with an instruction, and for a stage without a name."""
    arguments: list[Instruction] = []
    stages: list[Stage] = []
    for instruction in read_instructions(text):
        if instruction.name == "FROM":
            match = re.fullmatch(r"(\S+) AS (\S+)", instruction.value)
            if not match:
                raise ValueError(f"a stage must have a name, FROM image AS name: {instruction.value}")
            stages.append(Stage(match[2], match[1], ()))
        elif stages:
            stage = stages.pop()
            stages.append(Stage(stage.name, stage.parent, (*stage.instructions, instruction)))
        else:
            arguments.append(instruction)
    return Dockerfile(tuple(arguments), tuple(stages))


def read_instructions(text: str) -> Iterable[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        match = INSTRUCTION.fullmatch(" ".join(line.split()))
        if not match:
            raise ValueError(f"a line must begin with an instruction in capitals: {line}")
        yield Instruction(match[1], match[2])


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with its variables replaced. A shell does it, so `${NAME:+word}` and `${NAME:-word}` work."""
    if "$" not in text:
        return text
    script = f"cat <<END\n{text}\nEND\n"
    done = subprocess.run(["/bin/sh", "-c", script], env=dict(variables), capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


def read_assignments(value: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of `ENV A=1 B=2`."""
    words = (word.partition("=") for word in shlex.split(value))
    return {name: expand(text, variables) for name, _, text in words}


def read_command(value: str) -> list[str]:
    """The words of an instruction in exec form, such as `["rag", "--help"]`."""
    words: list[str] = json.loads(value)
    return words


def read_patterns(text: str) -> tuple[str, ...]:
    """The patterns of a .dockerignore."""
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def is_ignored(path: PurePosixPath, patterns: Iterable[str]) -> bool:
    """True if the last pattern of a .dockerignore that matches the path or a folder above it excludes it."""
    ignored = False
    for pattern in patterns:
        glob = pattern.removeprefix("!").strip("/")
        expression = re.escape(glob).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
        if re.fullmatch(f"{expression}(/.*)?", str(path)):
            ignored = not pattern.startswith("!")
    return ignored
