"""What documents may say for the words of a question, by a language model.

There is no rule for it without one: an abbreviation that the question spells out stands in it both ways already, and of
any other only the corpus knows what it stands for.
"""

import re
from collections.abc import Iterator
from contextlib import aclosing
from itertools import islice

from rag_core.errors import GenerationError
from rag_core.models.endpoint import ChatMessage, EndpointClient
from rag_core.models.fence import defuse

TEMPERATURE = 0.1

MAX_QUESTION_CHARS = 1_000
"""Characters of a question that is expanded. A longer one has words enough."""

_TERMS, _TERM_LENGTH, _MAX_TOKENS = 8, 60, 128
_SEPARATOR, _WORD = re.compile(r"[,;\n]"), re.compile(r"\w+")
_AROUND = " \t\r-*•.:\"'`"
_NONE = "none"

_SYSTEM = f"""\
You add search terms to a question. Write up to {_TERMS} of them on one line, with commas between them: synonyms of its
words, what its abbreviations stand for, and the abbreviations of what it names. Write only what means the same, and no
abbreviation that you would have to guess. Do not answer the question, and do not repeat its words. If there are no such
terms, write {_NONE}."""


async def expand_question(client: EndpointClient, question: str) -> str:
    """The question as it is, and behind it up to 8 terms that it does not have.

    GenerationError if the question is longer than LONGEST or empty, or if the endpoint fails.
    """
    if not 0 < len(question) <= MAX_QUESTION_CHARS:
        raise GenerationError(
            f"a question that is expanded must have 1 to {MAX_QUESTION_CHARS} characters, got {len(question)}"
        )
    written = await _written(client, question)
    return " ".join([question, *islice(_added(written, question), _TERMS)])


async def _written(client: EndpointClient, question: str) -> str:
    messages: list[ChatMessage] = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": f"Question: {defuse(question)}\n\nTerms:"},
    ]
    text = ""
    async with aclosing(client.stream(messages, temperature=TEMPERATURE, max_tokens=_MAX_TOKENS)) as deltas:
        async for delta in deltas:
            text += delta.text
            if delta.finish not in ("", "stop"):
                raise GenerationError(f"the terms of an expansion must come to their end, got {delta.finish}")
    return text


def _added(written: str, question: str) -> Iterator[str]:
    """Each new by at least a word. What is longer than a term is none: there a model answers, or explains itself."""
    known = {*_words(question), _NONE}
    for term in (part.strip(_AROUND) for part in _SEPARATOR.split(written)):
        if len(term) <= _TERM_LENGTH and term.isprintable() and not _words(term) <= known:
            known |= _words(term)
            yield term


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
