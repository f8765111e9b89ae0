"""Answers that a language model writes, behind an OpenAI-compatible endpoint."""

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from rag_core.answering.generation.prompt import ABSENT, prompt_pack, rendered
from rag_core.errors import TruncatedError
from rag_core.events import Usage
from rag_core.models.endpoint import Delta
from rag_core.models.fence import fresh_nonce
from rag_core.stage import record_figures
from rag_core.types import Prompt

_ABSENT = re.compile(rf"[\s.\"'*`]*{ABSENT}[ \"'*`]*[.!:;。\n]", re.I)
_CUT = {
    "length": "the answer reached its limit of {} tokens",
    "content_filter": "the endpoint's filter ended the answer",
}


class ChatClient(Protocol):
    """A model that completes chats, wherever it runs."""

    def stream(
        self, messages: Sequence[Mapping[str, str]], *, temperature: float, max_tokens: int
    ) -> AsyncGenerator[Delta, None]: ...


class OpenAIGenerator:
    """`temperature` from 0 to 2; `max_tokens` of an answer."""

    def __init__(self, client: ChatClient, temperature: float, max_tokens: int) -> None:
        self._client, self._temperature, self._max_tokens = client, temperature, max_tokens

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """GenerationError also where the endpoint ended the answer before the model did. Measures `first_token`, in
        seconds, and how many `prompt_tokens`, `completion_tokens` and `cached_tokens` the endpoint counted."""
        async with aclosing(self._texts(prompt)) as texts, aclosing(_unless_absent(texts)) as pieces:
            async for piece in pieces:
                yield piece

    async def _texts(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        messages = rendered(prompt, prompt_pack(prompt.style.pack), fresh_nonce())
        began, first = time.perf_counter(), True
        deltas = self._client.stream(messages, temperature=self._temperature, max_tokens=self._max_tokens)
        async with aclosing(deltas):
            async for delta in deltas:
                if first:
                    record_figures(first_token=time.perf_counter() - began)
                    first = False
                if delta.text:
                    yield delta.text
                _measure(delta.usage)
                self._refuse_cut(delta.finish)

    def _refuse_cut(self, finish: str) -> None:
        if finish in _CUT:
            raise TruncatedError(_CUT[finish].format(self._max_tokens))


def _measure(usage: Usage | None) -> None:
    if usage:
        record_figures(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
        )


async def _unless_absent(texts: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    """Held back as long as it may become ABSENT; nothing if it is that, or has that for its first sentence."""
    held = ""
    async for text in texts:
        held += text
        if _ABSENT.match(held) and _bare(held) != ABSENT:
            return
        if not ABSENT.startswith(_bare(held)):
            yield held
            held = ""
            break
    async for text in texts:
        yield text
    if held and _bare(held) != ABSENT:
        yield held


def _bare(text: str) -> str:
    return text.strip(" \n.\"'*`").upper()
