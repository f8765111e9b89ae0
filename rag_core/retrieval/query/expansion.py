"""Expansion of a question, by a language model, with terms that documents can use instead of its words.

Rules without a model do not help: an abbreviation that the question spells out is already present in both forms, and
the meaning of any other abbreviation depends on the corpus.
"""

import re
from collections.abc import Iterator
from contextlib import aclosing
from itertools import islice

from rag_core.errors import GenerationError
from rag_core.models.chat import ChatMessage, Streamer
from rag_core.models.fence import defuse

TEMPERATURE = 0.1

MAX_QUESTION_CHARS = 1_000
"""The most characters of a question that is expanded. Longer questions have enough words."""

_TERMS, _MAX_TERM_CHARS, _MAX_TOKENS = 8, 60, 128
"""The most terms that are added, the most characters of a term, and the token limit of the model."""
_SEPARATOR, _WORD = re.compile(r"[,;\n]"), re.compile(r"\w+")
_PUNCTUATION = " \t\r-*•.:\"'`"
_NONE = "none"

_SYSTEM = f"""\
You add search terms to a question. Write up to {_TERMS} of them on one line, with commas between them: synonyms of its
words, what its abbreviations stand for, and the abbreviations of what it names. Write only what means the same, and no
abbreviation that you would have to guess. Do not answer the question, and do not repeat its words. If there are no such
terms, write {_NONE}."""


async def expand_question(client: Streamer, question: str) -> str:
    """Returns the question, followed by at most 8 terms that it does not contain.

    Raises GenerationError if the question is empty or longer than MAX_QUESTION_CHARS, or if the endpoint fails.
    """
    if not 0 < len(question) <= MAX_QUESTION_CHARS:
        raise GenerationError(
            f"a question to expand must have 1 to {MAX_QUESTION_CHARS} characters, got {len(question)}"
        )
    completion = await _complete(client, question)
    return " ".join([question, *islice(_new_terms(completion, question), _TERMS)])


async def _complete(client: Streamer, question: str) -> str:
    messages: list[ChatMessage] = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": f"Question: {defuse(question)}\n\nTerms:"},
    ]
    text = ""
    async with aclosing(client.stream(messages, temperature=TEMPERATURE, max_tokens=_MAX_TOKENS)) as deltas:
        async for delta in deltas:
            text += delta.text
            if delta.finish not in ("", "stop"):
                raise GenerationError(
                    f"the model must finish the terms of an expansion, got finish reason {delta.finish}"
                )
    return text


def _new_terms(completion: str, question: str) -> Iterator[str]:
    """Yields the terms that add at least one word. Longer parts are skipped: there the model answers, or explains."""
    words = {*_word_set(question), _NONE}
    for term in (part.strip(_PUNCTUATION) for part in _SEPARATOR.split(completion)):
        if len(term) <= _MAX_TERM_CHARS and term.isprintable() and not _word_set(term) <= words:
            words |= _word_set(term)
            yield term


def _word_set(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
