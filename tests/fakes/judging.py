"""Answers as their citations make them, and an endpoint's client that answers as it is told."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.answering import citation

from rag_core.models.endpoint import ChatMessage, Completion
from rag_core.text.sentences import sentence_spans
from rag_core.types import Answer, Citation, Passage, Verdict

MARKER = re.compile(r"\[(\d+)\]")


def cited(text: str) -> Answer:
    """Each marker cites the sentence before it."""
    blank = MARKER.sub(lambda found: " " * len(found[0]), text)
    return Answer(
        text=text,
        citations=tuple(
            citation(int(found[1]), claim=sentence_spans(blank[: found.start()])[-1], span=found.span())
            for found in MARKER.finditer(text)
        ),
    )


def quoting(quote: str, passage: Passage, text: str) -> Answer:
    """The text is an answer of one citation, at its end, of the first place where the passage has the quote."""
    start = passage.start + passage.text.index(quote)
    (own,) = cited(text).citations
    quoted: Citation = replace(own, quote=quote, start=start, end=start + len(quote))
    return Answer(text=text, citations=(quoted,))


def grades(answer: Answer, verdict: Verdict) -> dict[str, str]:
    """By the claims' texts."""
    return {answer.text[claim.start : claim.end]: claim.grade for claim in verdict.claims}


@dataclass(kw_only=True)
class ScriptedClient:
    """It answers with the text of the first of these words that stands in what it is asked, else with `otherwise`;
    raises `error` if any; and keeps what it was asked, and how many asked at once at the most."""

    answers: Mapping[str, Completion] = field(default_factory=dict)
    otherwise: Completion = Completion(text='{"supported": true, "reason": "it says so"}')  # noqa: RUF009
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)
    most: int = 0
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
        asked = messages[-1]["content"]
        self.asked.append(asked)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if self.error:
            raise self.error
        return next((answer for word, answer in self.answers.items() if word in asked), self.otherwise)
