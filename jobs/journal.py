"""The outcomes of a run that has not ended, in a file, so that a run that was killed can be continued."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

JOURNALS = "*.partial.jsonl"
"""The names of all journals of a run."""


class Entry(Protocol):
    """The outcome of a question. An `error` that is not empty means that it has to be computed again."""

    @property
    def question(self) -> str: ...

    @property
    def error(self) -> str: ...


E = TypeVar("E", bound=Entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal(Generic[E]):
    """One outcome per line, after a line with `key`. Outcomes of another key do not belong to this run.

    Without a path nothing is kept.
    """

    path: Path | None
    key: str
    kind: TypeAdapter[E]

    def read(self) -> dict[str, E]:
        """The outcomes by question. Those with an error are not among them, nor is a line that was cut."""
        if self.path is None or not self.path.is_file():
            return {}
        text = self.path.read_text(encoding="utf-8", errors="replace")  # a cut can be within a character
        key, *lines = text.split("\n")
        entries = [entry for line in lines if (entry := self._parse_line(line))] if key == self.key else []
        return {entry.question: entry for entry in entries if not entry.error}

    @contextmanager
    def appending(self) -> Iterator[Callable[[E], None]]:
        """Writes the file again with what `read` returns. Each call of the function adds a line at once.

        A kill during the writing leaves the earlier file.
        """
        if self.path is None:
            yield lambda entry: None  # noqa: ARG005
            return
        finished = self.read().values()
        written = self.path.with_name(f"{self.path.name}.new")
        with written.open("w", encoding="utf-8") as file:
            file.write(f"{self.key}\n")

            def append(entry: E) -> None:
                file.write(self.kind.dump_json(entry).decode() + "\n")
                file.flush()

            for entry in finished:
                append(entry)
            written.replace(self.path)
            yield append

    def _parse_line(self, line: str) -> E | None:
        try:
            return self.kind.validate_json(line)
        except ValidationError:
            return None
