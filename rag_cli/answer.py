"""How an answer looks: its text while it comes, then its sources and what the judge says of it."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rag_core.events import CitationAdded, Event, RunFailed, RunFinished, TextDelta, TextRetracted
from rag_core.types import Citation, Grade, Reply
from rag_core.wire import age_days

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹", "[]^")
SIGNS: dict[Grade, tuple[str, str]] = {
    "supported": ("✓", "green"),
    "partial": ("~", "yellow"),
    "unsupported": ("✗", "red"),
    "unchecked": ("·", "dim"),
}
SAID = {"abstained": "no answer", "cut": "cut short", "broken": "broke off", "blocked": "held back"}
"""Where the verdict is not what matters."""
WEEK, MONTH, YEAR = 7, 30, 365


class Streamed:
    """Prints an answer as it is told: a line is broken between words, and on a terminal markers are superscripts.

    A delta waits for the next event, which tells whether there is a marker in it.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._column, self._word = console, 0, ""
        self._waiting, self._start = "", 0

    def hear(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                start = self._start + len(self._waiting)
                self._print(self._waiting)
                self._waiting, self._start = text, start
            case CitationAdded(citation):
                self._raise(citation)
            case TextRetracted(reason):
                self._print(f"{self._waiting}\n\nThat is withdrawn: {reason}.\n\n")
                self._waiting, self._start = "", 0
            case RunFinished() | RunFailed():
                self._print(f"{self._waiting}\n")
                self._waiting = ""
            case _:
                pass

    def _raise(self, citation: Citation) -> None:
        start, end = (place - self._start for place in citation.spans[-1])
        if self._console.is_terminal and start >= 0:
            self._print(self._waiting[:start].rstrip(" ") + superscript(self._waiting[start:end]))
            self._waiting, self._start = self._waiting[end:], self._start + end

    def _print(self, text: str) -> None:
        if self._console.is_terminal:
            for character in text:
                self._add(character)
        else:
            self._console.file.write(text)
        self._console.file.flush()

    def _add(self, character: str) -> None:
        """Scripts without spaces, whose characters are wide, may be broken anywhere."""
        if not character.isspace():
            self._word += character
        if character.isspace() or cell_len(character) > 1:
            self._end_word(character if character.isspace() else "")

    def _end_word(self, space: str) -> None:
        if self._column and self._column + cell_len(self._word) >= self._console.width:
            self._console.file.write("\n")
            self._column = 0
        self._console.file.write(self._word + space)
        self._column = 0 if space == "\n" else self._column + cell_len(self._word + space)
        self._word = ""


def superscript(marker: str) -> str:
    return marker.translate(SUPERSCRIPTS)


def sources(reply: Reply, terminal: bool, now: datetime) -> RenderableType:
    """Each cited passage once, with the quotes that were taken from it."""
    number = superscript if terminal else str
    in_order = sorted(reply.answer.citations, key=lambda each: (each.n, each.claim))
    return Group(
        *(part for n, cited in groupby(in_order, lambda each: each.n) for part in _source(n, cited, number, now))
    )


def _source(n: int, cited: Iterator[Citation], number: Callable[[str], str], now: datetime) -> Iterator[RenderableType]:
    citations = list(cited)
    first = citations[0]
    section = first.section.removeprefix(first.title).removeprefix(" > ")
    about = [section, f"page {first.page}" if first.page else "", age(first, now)]
    heading = Text(f"{number(f'[{n}]')} ", style="bold")
    heading.append(first.title or first.uri)
    heading.append("".join(f" · {each}" for each in about if each), style="cyan")
    yield heading
    for citation in {each.start: each for each in citations}.values():
        sign, colour = SIGNS[citation.grade]
        quote = Text.assemble((f"{sign} ", colour), f"“{_on_one_line(citation.quote)}”")
        yield Padding(quote, (0, 0, 0, 2), expand=False)
    yield Padding(Text(first.uri, style="dim", overflow="fold"), (0, 0, 1, 2), expand=False)


def verdict_line(reply: Reply) -> Text:
    answer, verdict = reply.answer, reply.answer.verdict
    sign, colour = SIGNS[verdict.grade]
    said = SAID.get(answer.finish, verdict.grade)
    method = f" by {verdict.method}" if verdict.method else ""
    rest = f" · {answer.confidence:.0%} of it cited · {reply.seconds:.2f} s"
    return Text.assemble((f"{sign} {said}{method}", colour), (rest, "dim"))


def age(citation: Citation, now: datetime) -> str:
    days = age_days(citation.updated_at, now)
    if days is None:
        return ""
    if days < 1:
        return "today"
    for name, length in (("year", YEAR), ("month", MONTH), ("week", WEEK), ("day", 1)):
        if days >= 2 * length or (days >= length and name in ("day", "year")):
            count = days // length
            return f"{count} {name}{'s' if count > 1 else ''} old"
    return ""


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
