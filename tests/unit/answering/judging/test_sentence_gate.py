import asyncio
from collections.abc import Sequence

import pytest
from fakes.answering import citation

from rag_core.answering.judging import sentence_gate
from rag_core.answering.judging.sentence_gate import SentenceGate, first_sentence_length
from rag_core.events import CitationAdded, Event, TextDelta, Usage
from rag_core.types import Answer

EVENTS: Sequence[Event] = [
    TextDelta("Keys are replaced "),
    TextDelta("often "),
    TextDelta("[1]"),
    CitationAdded(citation(1, claim=(0, 23), span=(24, 27))),
    TextDelta(". A lie "),
    TextDelta("[2]"),
    CitationAdded(citation(2, claim=(29, 34), span=(35, 38))),
    TextDelta(". Locks open [1]"),
    CitationAdded(citation(1, claim=(40, 50), span=(51, 54))),
    TextDelta("."),
]


def pass_events(events: Sequence[Event], refused: str = "lie") -> tuple[SentenceGate, list[Event], list[str]]:
    emitted, judged = list[Event](), list[str]()

    async def emit(event: Event) -> None:
        emitted.append(event)

    async def judge(sentence: Answer) -> Answer:
        judged.append(sentence.text)
        return sentence

    async def all_events() -> SentenceGate:
        gate = SentenceGate(judge, lambda sentence: refused not in sentence.text, emit)
        for event in events:
            await gate.receive(event)
        await gate.finish()
        return gate

    return asyncio.run(all_events()), emitted, judged


def test_each_sentence_is_judged_with_its_markers_and_refused_ones_are_never_emitted() -> None:
    gate, emitted, judged = pass_events(EVENTS)
    assert judged == ["Keys are replaced often [1]. ", "A lie [2]. ", "Locks open [1]."]
    assert gate.answer.text == "Keys are replaced often [1]. Locks open [1]."
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == gate.answer.text
    assert gate.rejected == 1


def test_citations_move_with_their_sentences() -> None:
    gate, _, _ = pass_events(EVENTS)
    text = gate.answer.text
    assert [text[slice(*citation.spans[0])] for citation in gate.answer.citations] == ["[1]", "[1]"]
    assert [text[slice(*citation.claim)] for citation in gate.answer.citations] == [
        "Keys are replaced often",
        "Locks open",
    ]


def test_a_citation_is_emitted_after_its_sentence() -> None:
    _, emitted, _ = pass_events(EVENTS)
    assert [type(event) for event in emitted] == [TextDelta, CitationAdded, TextDelta, CitationAdded]


def test_an_event_without_text_passes_at_once() -> None:
    _, emitted, _ = pass_events([TextDelta("Half a sen"), Usage(7, 3), TextDelta("tence.")])
    assert emitted == [Usage(7, 3), TextDelta("Half a sentence.")]


@pytest.mark.parametrize(("pieces", "sentences"), [(1, 400), (20_000, 400), (1, 1), (20_000, 1)])
def test_the_text_that_is_searched_grows_with_the_length_of_the_answer(
    monkeypatch: pytest.MonkeyPatch, pieces: int, sentences: int
) -> None:
    """The same holds if the answer arrives as one piece, or is one block of code and so has no sentence."""
    searched = 0

    def search(text: str) -> int:
        nonlocal searched
        searched += len(text)
        return first_sentence_length(text)

    monkeypatch.setattr(sentence_gate, "first_sentence_length", search)

    def count(length: int) -> int:
        nonlocal searched
        searched = 0
        text = "Keys are replaced often, and the old ones. " * (length // 43)
        text = text if sentences > 1 else "```\n" + text.replace(".", ";")
        size = max(1, len(text) // pieces)
        pass_events([TextDelta(text[start : start + size]) for start in range(0, len(text), size)])
        return searched

    assert count(80_000) < 2.2 * count(40_000)


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("", 0),
        ("One sentence", 0),
        ("One. ", 0),
        ("One. [1]", 0),
        ("One. [1] ", 0),
        ("One. Two", 5),
        ("One. [1] Two", 9),
        ("One. [1][2] Two", 12),
    ],
)
def test_the_second_sentence_begins_after_the_markers_of_the_first(text: str, begun: int) -> None:
    assert first_sentence_length(text) == begun
