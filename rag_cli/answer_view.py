"""The display of an answer: its text while it streams, then its sources and the verdict."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rag_core.events import (
    CitationAdded,
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    TextRetracted,
    Understood,
)
from rag_core.types import Citation, Grade, Passage, Reply
from rag_core.wire.answer import count_days

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹", "[]^")
GRADE_SIGNS: dict[Grade, tuple[str, str]] = {
    "supported": ("✓", "green"),
    "partial": ("~", "yellow"),
    "unsupported": ("✗", "red"),
    "unchecked": ("·", "dim"),
}
FINISH_LABELS = {
    "passages": "closest passages",
    "abstained": "no answer",
    "cut": "cut short",
    "broken": "broken off",
    "blocked": "blocked",
    "clarification": "question",
    "repeated": "repeated",
}
"""The labels of answers that ended early. Other answers show the grade of their verdict."""
WEEK, MONTH, YEAR = 7, 30, 365


class AnswerPrinter:
    """A printer of an answer's events. On a terminal, it breaks lines between words and prints markers as superscripts.

    It prints a delta at the next event: a CitationAdded means that the delta contains a marker.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._column, self._word = console, 0, ""
        self._pending, self._pending_start = "", 0
        self._question = ""

    def print_event(self, event: Event) -> None:
        match event:
            case RunStarted(query):
                self._question = query.text
            case Understood(understanding):
                if understanding.is_shift:
                    self._print("new subject: the earlier messages count less\n\n")
                if understanding.standalone != self._question:
                    self._print(f"searched as: {understanding.standalone}\n\n")
            case TextDelta(text):
                start = self._pending_start + len(self._pending)
                self._print(self._pending)
                self._pending, self._pending_start = text, start
            case CitationAdded(citation):
                start, end = (offset - self._pending_start for offset in citation.spans[-1])
                if self._console.is_terminal and start >= 0:
                    self._print(self._pending[:start].rstrip(" ") + to_superscript(self._pending[start:end]))
                    self._pending, self._pending_start = self._pending[end:], self._pending_start + end
            case TextRetracted(reason):
                self._print(f"{self._pending}\n\nThis text was withdrawn: {reason}.\n\n")
                self._pending, self._pending_start = "", 0
            case RunFinished() | RunFailed():
                self._print(f"{self._pending}\n")
                self._pending = ""
            case _:
                pass

    def _print(self, text: str) -> None:
        if self._console.is_terminal:
            for character in text:
                if not character.isspace():
                    self._word += character
                # scripts without spaces, whose characters are wide, can be broken anywhere
                if character.isspace() or cell_len(character) > 1:
                    self._write_word(character if character.isspace() else "")
        else:
            self._console.file.write(text)
        self._console.file.flush()

    def _write_word(self, space: str) -> None:
        if self._column and self._column + cell_len(self._word) >= self._console.width:
            self._console.file.write("\n")
            self._column = 0
        self._console.file.write(self._word + space)
        self._column = 0 if space == "\n" else self._column + cell_len(self._word + space)
        self._word = ""


def to_superscript(marker: str) -> str:
    return marker.translate(SUPERSCRIPTS)


def render_sources(reply: Reply, terminal: bool, now: datetime) -> RenderableType:
    """Each cited passage once, with the quotes from it."""
    format_marker = to_superscript if terminal else str
    citations = sorted(reply.answer.citations, key=lambda citation: (citation.n, citation.claim))
    return Group(
        *(
            part
            for n, group in groupby(citations, lambda citation: citation.n)
            for part in _render_source(format_marker(f"[{n}]"), list(group), now)
        )
    )


def _render_source(marker: str, citations: Sequence[Citation], now: datetime) -> Iterator[RenderableType]:
    first = citations[0]
    section = first.section.removeprefix(first.title).removeprefix(" > ")
    details = [section, f"page {first.page}" if first.page else "", format_age(first, now)]
    heading = Text(f"{marker} ", style="bold")
    heading.append(first.title or first.uri)
    heading.append("".join(f" · {detail}" for detail in details if detail), style="cyan")
    yield heading
    for citation in {citation.start: citation for citation in citations}.values():
        sign, colour = GRADE_SIGNS[citation.grade]
        quote = Text.assemble((f"{sign} ", colour), f"“{' '.join(citation.quote.split())}”")
        yield Padding(quote, (0, 0, 0, 2), expand=False)
    yield Padding(Text(first.uri, style="dim", overflow="fold"), (0, 0, 1, 2), expand=False)


def render_passages(passages: Sequence[Passage]) -> RenderableType:
    """Each passage with its number, title, text and uri."""
    return Group(*(part for passage in passages for part in _render_passage(passage)))


def _render_passage(passage: Passage) -> Iterator[RenderableType]:
    origin = passage.hit.origin
    heading = Text(f"[{passage.n}] ", style="bold")
    heading.append(origin.title or origin.uri)
    yield heading
    yield Padding(Text(" ".join(passage.text.split())), (0, 0, 0, 2), expand=False)
    yield Padding(Text(origin.uri, style="dim", overflow="fold"), (0, 0, 1, 2), expand=False)


def render_verdict(reply: Reply) -> Text:
    answer, verdict = reply.answer, reply.answer.verdict
    sign, colour = GRADE_SIGNS[verdict.grade]
    label = FINISH_LABELS.get(answer.finish, verdict.grade)
    method = f" by {verdict.method}" if verdict.method else ""
    confidence = "" if answer.confidence is None else f" · {answer.confidence:.0%} confident"
    figures = f"{confidence} · {answer.coverage:.0%} cited · {reply.seconds:.2f} s"
    return Text.assemble((f"{sign} {label}{method}", colour), (figures, "dim"))


def format_age(citation: Citation, now: datetime) -> str:
    """The age of the document, for example "3 weeks old"; empty if its date is unknown.

    The unit is the largest that gives a count of at least 2, or at least 1 for years and days.
    """
    days = count_days(citation.updated_at, now)
    if days is None:
        return ""
    if days < 1:
        return "today"
    for name, length in (("year", YEAR), ("month", MONTH), ("week", WEEK), ("day", 1)):
        if days >= 2 * length or (days >= length and name in ("day", "year")):
            count = days // length
            return f"{count} {name}{'s' if count > 1 else ''} old"
    return ""
