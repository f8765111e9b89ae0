"""What holds for every reply, however its generator's text is written and cut into pieces."""

import asyncio
import re
from itertools import pairwise

from example_counts import scale_examples
from fakes.answering import ScriptedGenerator, ScriptedJudge, ScriptedRetriever, passage, passages_from_hits
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered import visible_text

from rag_core.answering.judging.guard import Guard
from rag_core.answering.pipeline import AnswerLimits, QueryPipeline
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.events import CitationAdded, Event, TextDelta, fold
from rag_core.retrieval.query.rules import RuleUnderstander
from rag_core.types import Query, Reply, Style

DOCUMENTS = {
    1: "The keys are replaced every 45 days. The harbour master keeps a copy. See [3] and 【2】 there.",
    2: "- The lock opens at high water.\n- Boats wait at the pontoon.\n\n| hour | lock |\n|---|---|\n| 6 | open |",
    3: "Ключи меняют каждые 45 дней. 鍵は四十五日ごとに交換されます。Fish on Fridays!",
}
OFFSET = 100
HITS = [passage(n, text, start=OFFSET, title=f"Document {n}").hit for n, text in DOCUMENTS.items()]
PIECES = [
    *("The keys are replaced every 45 days", "The lock opens", "Ключи меняют", " and "),
    *(". ", "\n\n", "? ", "\n- ", "# A\n"),
    *("[1]", "[2]", "[3]", "[9]", "[1,2]", "[[1]]", "【1】", "［2］", "[1†source]"),  # noqa: RUF001
    *("[0]", "[^2]", "[1-3]", "[", "]", "[1", "1]"),
    *("`[1]`", "```\nx[1] = 2\n```\n", "`", "~~~"),
    *("[link](http://evil.example/x)", "![i](http://evil.example/y)", "http://a.b/c"),
]

texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
cuts = st.lists(st.integers(0, 200), max_size=8)
guards = st.sampled_from(
    [
        *[("off", "after"), ("flag", "after"), ("flag", "sentence"), ("block", "after"), ("block", "sentence")],
        *[("block", "buffer"), ("flag", "buffer"), ("regenerate", "after"), ("regenerate", "buffer")],
    ]
)
judged = st.sampled_from([{}, {"keys": "unsupported"}, {"lock": "unsupported"}, {"": "unsupported"}])


@settings(max_examples=scale_examples(300), deadline=None)
@given(texts, cuts, guards, judged)
def test_visible_markers_are_cited_and_quotes_are_verbatim_and_the_stream_is_the_reply(
    text: str, cuts: list[int], guard: tuple[str, str], words: dict[str, str]
) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]
    reply, events = asyncio.run(_ask([pieces, pieces], guard, words))
    assert fold(events) == reply
    _check_citations(reply)
    emitted = [event for event in events if isinstance(event, TextDelta | CitationAdded)]
    assert all(event.text for event in emitted if isinstance(event, TextDelta))


def _check_citations(reply: Reply) -> None:
    answer = reply.answer
    visible = markers(visible_text(answer.text))
    assert visible == {citation.n for citation in answer.citations}
    spans = [span for citation in answer.citations for span in citation.spans]
    assert sorted(spans) == sorted(set(spans))
    for citation in answer.citations:
        assert DOCUMENTS[citation.n][citation.start - OFFSET : citation.end - OFFSET] == citation.quote
        assert {answer.text[start:end] for start, end in citation.spans} == {f"[{citation.n}]"}
        assert 0 <= citation.claim[0] <= citation.claim[1] <= len(answer.text)


def markers(text: str) -> set[int]:
    return {int(n) for n in re.findall(r"\[(\d+)\]", text)}


async def _ask(answers: list[list[str]], guard: tuple[str, str], words: dict[str, str]) -> tuple[Reply, list[Event]]:
    mode, stream = guard
    judge = ScriptedJudge(words=words)  # type: ignore[arg-type]
    events: list[Event] = []

    async def hear(event: Event) -> None:
        events.append(event)

    answering = QueryPipeline(
        retriever=ScriptedRetriever(hits=HITS),
        pack=passages_from_hits,
        generator=ScriptedGenerator(answers=answers),
        guard=Guard(judge=judge, mode=mode, stream=stream, on_judge_error="block", timeout=5.0),  # type: ignore[arg-type]
        understander=RuleUnderstander(),
        conversations=InMemoryConversations(),
        style=Style(),
        limits=AnswerLimits(),
    )
    return await answering.answer(Query(text="?"), hear), events
