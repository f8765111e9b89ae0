"""Answers by a language model at an OpenAI-compatible endpoint."""

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from rag_core.answering.generation.prompt import REFUSAL, PromptPack, load_prompt_pack, render_messages
from rag_core.errors import GenerationError, TruncatedError
from rag_core.models.chat import Streamer
from rag_core.models.fence import fresh_nonce
from rag_core.stage import record_figures
from rag_core.types import Prompt

_REFUSAL_SENTENCE = re.compile(rf"[\s.\"'*`]*{REFUSAL}[ \"'*`]*[.!:;。\n]", re.I)
_TRUNCATIONS = {
    "length": "the answer reached its limit of {} tokens",
    "content_filter": "the endpoint's content filter ended the answer",
}


class OpenAIGenerator:
    """A Generator that uses a chat client. `temperature` is from 0 to 2; `max_tokens` limits one answer.

    `pack` is used instead of the prompt pack that the prompt names.
    """

    def __init__(self, client: Streamer, temperature: float, max_tokens: int, pack: PromptPack | None = None) -> None:
        self._client, self._temperature, self._max_tokens, self._pack = client, temperature, max_tokens, pack

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yields the answer's pieces, or nothing if the answer is REFUSAL.

        Raises GenerationError, including when the endpoint ends the answer early, or sends one without words.

        Records the figures `first_token`, in seconds, and the `prompt_tokens`, `completion_tokens` and `cached_tokens`
        that the endpoint counted.
        """
        async with aclosing(self._stream_texts(prompt)) as texts, aclosing(_drop_refusal(texts)) as pieces:
            async for piece in pieces:
                yield piece

    async def _stream_texts(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        messages = render_messages(prompt, self._pack or load_prompt_pack(prompt.style.pack), fresh_nonce())
        started, is_first = time.perf_counter(), True
        deltas = self._client.stream(messages, temperature=self._temperature, max_tokens=self._max_tokens)
        async with aclosing(deltas):
            async for delta in deltas:
                if is_first:
                    record_figures(first_token=time.perf_counter() - started)
                    is_first = False
                if delta.text:
                    yield delta.text
                if delta.usage:
                    record_figures(
                        prompt_tokens=delta.usage.prompt_tokens,
                        completion_tokens=delta.usage.completion_tokens,
                        cached_tokens=delta.usage.cached_tokens,
                    )
                if delta.finish in _TRUNCATIONS:
                    raise TruncatedError(_TRUNCATIONS[delta.finish].format(self._max_tokens))


async def _drop_refusal(texts: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    """Yields the texts, or nothing if they or their first sentence are REFUSAL. Raises GenerationError without words.

    The beginning is held while it can still become REFUSAL.
    """
    beginning = ""
    async for text in texts:
        beginning += text
        if _REFUSAL_SENTENCE.match(beginning) and _normalize_refusal(beginning) != REFUSAL:
            return
        if not REFUSAL.startswith(_normalize_refusal(beginning)):
            yield beginning
            break
    else:
        if not _normalize_refusal(beginning):
            raise GenerationError("the language model sent an empty answer")
        if _normalize_refusal(beginning) != REFUSAL:
            yield beginning
    async for text in texts:
        yield text


def _normalize_refusal(text: str) -> str:
    return text.strip(" \n.\"'*`").upper()
