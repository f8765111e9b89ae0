import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fakes.answering import citation
from rich.console import Console

from rag_cli.answer_view import AnswerPrinter, format_age, render_sources, render_verdict
from rag_core.events import CitationAdded, Event, RunFinished, TextDelta, TextRetracted
from rag_core.types import Answer, Query, Reply, Verdict

NOW = datetime(2026, 11, 21, tzinfo=UTC)
END = RunFinished("stop", None, 1.0, 0.3)


def print_events(events: Sequence[Event], terminal: bool = True, width: int = 80) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width)
    streamed = AnswerPrinter(console)
    for event in events:
        streamed.print_event(event)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


CITED = [
    TextDelta("Keys are replaced "),
    TextDelta("[12]"),
    CitationAdded(citation(12, claim=(0, 17), span=(18, 22))),
    TextDelta(". A list[3] stays."),
    END,
]


def test_markers_on_a_terminal_are_superscripts_and_nothing_else_is() -> None:
    assert print_events(CITED) == "Keys are replaced ¹². A list[3] stays.\n"


def test_text_in_a_pipe_is_unchanged() -> None:
    assert print_events(CITED, terminal=False) == "Keys are replaced [12]. A list[3] stays.\n"


def test_markers_in_the_middle_of_a_delta_are_found() -> None:
    events = [
        TextDelta("One [1] and two [2]. "),
        CitationAdded(citation(1, claim=(0, 3), span=(4, 7))),
        CitationAdded(citation(2, claim=(8, 15), span=(16, 19))),
        END,
    ]
    assert print_events(events) == "One¹ and two². \n"


def test_lines_are_broken_between_words_whatever_the_pieces() -> None:
    pieces = [TextDelta(piece) for piece in ("The quick bro", "wn fox jumps ov", "er the lazy dog.")]
    assert print_events([*pieces, END], width=16) == "The quick brown \nfox jumps over \nthe lazy dog.\n"


def test_withdrawn_text_is_marked_as_withdrawn() -> None:
    events = [TextDelta("A lie."), TextRetracted("not supported"), TextDelta("Nothing."), END]
    assert print_events(events, terminal=False) == "A lie.\n\nThis text was withdrawn: not supported.\n\nNothing.\n"


def test_each_source_is_shown_once_with_its_quotes() -> None:
    first = replace(citation(1, claim=(0, 5), span=(6, 9)), grade="supported", page=3, section="Interval")
    second = replace(citation(1, claim=(9, 15), span=(16, 19)), start=40, quote="Another\nsentence.")
    reply = Reply(query=Query(text="?"), standalone="?", answer=Answer(text="", citations=(first, second)))
    console = Console(file=io.StringIO(), width=80)
    console.print(render_sources(reply, False, NOW))
    assert isinstance(console.file, io.StringIO)
    assert [line.rstrip() for line in console.file.getvalue().splitlines()] == [
        "[1] Document 1 · Interval · page 3",
        "  ✓ “As it stands there.”",
        "  · “Another sentence.”",
        "  file:///1.md",
        "",
    ]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        *[(0, "today"), (1, "1 day old"), (13, "13 days old"), (14, "2 weeks old"), (59, "8 weeks old")],
        *[(90, "3 months old"), (400, "1 year old"), (900, "2 years old")],
    ],
)
def test_an_age_is_printed_in_the_largest_unit_that_is_not_coarse(days: int, expected: str) -> None:
    dated = replace(citation(1, claim=(0, 1), span=(1, 2)), updated_at=NOW - timedelta(days=days))
    assert format_age(dated, NOW) == expected


def test_the_last_line_says_how_the_answer_was_judged_and_how_much_of_it_is_cited() -> None:
    verdict = Verdict(grade="partial", score=0.5, method="lexical proxy")
    answer = Answer(text="x", coverage=0.5, verdict=verdict)
    reply = Reply(query=Query(text="?"), standalone="?", answer=answer, seconds=0.31)
    assert render_verdict(reply).plain == "~ partial by lexical proxy · 50% cited · 0.31 s"
    unsure = replace(reply, answer=replace(answer, finish="passages", confidence=0.312))
    assert render_verdict(unsure).plain == "~ closest passages by lexical proxy · 31% confident · 50% cited · 0.31 s"
    blocked = replace(reply, answer=replace(answer, finish="blocked"))
    assert render_verdict(blocked).plain.startswith("~ blocked by lexical proxy")
