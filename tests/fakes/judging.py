"""Answers with citations, and a scripted client of a language model."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.answering import citation

from rag_core.models.chat import ChatMessage, Completion
from rag_core.text.sentences import sentence_spans
from rag_core.types import Answer, Citation, Passage, Verdict

MARKER = re.compile(r"\[(\d+)\]")


def cite_markers(text: str) -> Answer:
    """An answer in which each marker cites the sentence before it."""
    blank = MARKER.sub(lambda marker: " " * len(marker[0]), text)
    return Answer(
        text=text,
        citations=tuple(
            citation(int(marker[1]), claim=sentence_spans(blank[: marker.start()])[-1], span=marker.span())
            for marker in MARKER.finditer(text)
        ),
    )


def quoting_answer(quote: str, passage: Passage, text: str) -> Answer:
    """An answer with one citation, at its end, of the first occurrence of the quote in the passage."""
    start = passage.start + passage.text.index(quote)
    (marked,) = cite_markers(text).citations
    quoted: Citation = replace(marked, quote=quote, start=start, end=start + len(quote))
    return Answer(text=text, citations=(quoted,))


def grades(answer: Answer, verdict: Verdict) -> dict[str, str]:
    """The grade of each claim, by its text."""
    return {answer.text[claim.start : claim.end]: claim.grade for claim in verdict.claims}


@dataclass(kw_only=True)
class ScriptedClient:
    """A Completer that answers by the first key of `answers` that the last message contains, else with `otherwise`.

    It raises `error` if there is one. `contents` holds the last message of each call, and `max_running` is the largest
    number of concurrent calls.
    """

    answers: Mapping[str, Completion] = field(default_factory=dict)
    otherwise: Completion = Completion(text='{"supported": true, "reason": "it says so"}')  # noqa: RUF009
    error: Exception | None = None
    contents: list[str] = field(default_factory=list)
    max_running: int = 0
    running: int = 0

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, Any] | None = None,
        logprobs: bool = False,
        max_tokens: int,
    ) -> Completion:
        assert schema is not None
        assert logprobs
        assert max_tokens > 0
        content = messages[-1]["content"]
        self.contents.append(content)
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if self.error:
            raise self.error
        return next((answer for word, answer in self.answers.items() if word in content), self.otherwise)
