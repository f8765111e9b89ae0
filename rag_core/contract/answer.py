"""Answer from chunks, or from what is stored under a name."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from urllib.parse import unquote
from uuid import UUID

from anyio.from_thread import start_blocking_portal

from rag_core.answering.citing.citations import Citer
from rag_core.answering.pipeline import ABSTAINED
from rag_core.config import Settings
from rag_core.contract.search import (
    DEFAULT_OPTIONS,
    QueryOptions,
    RetrievedChunk,
    check_question,
    search_documents,
)
from rag_core.errors import RagError
from rag_core.retrieval.legs import named
from rag_core.settings import load_settings
from rag_core.stage import recording, stage
from rag_core.text.analysis import read_question
from rag_core.types import Answer, Chunk, Hit, Metadata, Origin, Passage, Prompt, Query, StageReport, Style
from rag_core.wiring.generation import generator

NOTHING_FOUND = "Nothing was found for this question."

_UNKNOWN = UUID(int=0)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What `[n]` in an answer stands for: the nth of the chunks, and the sentence of it, verbatim, that supports what
    stands before the marker. A chunk that supports several claims is cited for each.
    """

    n: int
    chunk_id: UUID
    text_excerpt: str
    filename: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedResponse:
    """`confidence` is the share of the answer's sentences that are cited, from 0 to 1."""

    answer_text: str
    citations: list[Citation] = field(default_factory=list)
    confidence: float = 0.0


def generate_answer(question: str, chunks: Sequence[RetrievedChunk]) -> GeneratedResponse:
    """By the profile's generator, from all of these chunks and nothing else; if they do not answer, it says so and
    cites nothing.

    ValueError without chunks, or if the question has no words; RuntimeError if the generator, or the model behind it,
    cannot be used, breaks off or is late.
    """
    check_question(question)
    if not chunks:
        raise ValueError("chunks must hold at least one, got none")
    try:
        with start_blocking_portal() as portal:
            answer, stages = portal.call(named, _written(load_settings(), question, _passages(chunks)))
    except RagError as error:
        raise RuntimeError(f"the question cannot be answered: {error}") from error
    for report in stages:
        if report.error:
            _log.warning("answered without %s: %s", report.stage, report.error)
    return _response(answer, chunks)


def chat_with_documents(name: str, question: str, options: QueryOptions = DEFAULT_OPTIONS) -> GeneratedResponse:
    """`generate_answer` to the question as it was asked, from what `search_documents` finds; if that is nothing, an
    answer that says so. Raises what both of them raise.
    """
    found = search_documents(name, question, options)
    if not found.chunks:
        return GeneratedResponse(answer_text=NOTHING_FOUND)
    return generate_answer(question, found.chunks)


def _passages(chunks: Sequence[RetrievedChunk]) -> tuple[Passage, ...]:
    return tuple(_passage(n, chunk) for n, chunk in enumerate(chunks, 1))


def _passage(n: int, retrieved: RetrievedChunk) -> Passage:
    """Where the chunk stands in its document is not known here, so it begins at 0."""
    text, about = retrieved.text, retrieved.metadata
    chunk = Chunk(
        id=retrieved.chunk_id, document_id=_UNKNOWN, ordinal=0, text=text, start=0, end=len(text), metadata=about
    )
    uri, title, language = (str(about.get(name, "")) for name in ("uri", "title", "language"))
    origin = Origin(uri=uri, title=title, language=language, metadata=about)
    hit = Hit(chunk=chunk, origin=origin, score=retrieved.similarity_score, scores=retrieved.scores)
    return Passage(n=n, hit=hit, text=text, start=0, chunks=(chunk,))


async def _written(
    settings: Settings, question: str, passages: tuple[Passage, ...]
) -> tuple[Answer, list[StageReport]]:
    style = Style(pack=settings.prompt.pack, citations=settings.prompt.citations)
    query = Query(text=question, tenant=settings.tenant)
    # No hits: what else was found is not known, and the gap between chosen chunks is not one to what is unrelated. Of
    # 100 questions of XQuAD with their best 1, 2, 3, 5 chunks 8, 4, 3, 3 are refused so; 4, 27, 14, 6 by the gap.
    prompt = Prompt(query=query, passages=passages, style=style)
    writing = generator(settings, _Given(passages))
    citer = Citer(passages, query.collection, style.citations, frozenset(settings.guard.link_hosts))
    with recording(settings.answering.timeout_ms / 1000) as stages:
        async with stage("generate"), aclosing(writing.stream(prompt)) as pieces:
            async for piece in pieces:
                citer.feed(piece)
    citer.finish()
    return citer.answer, stages


@dataclass(frozen=True, slots=True)
class _Given:
    """What a generator asks of a corpus, of these passages: chunks do not tell which collection they are of."""

    passages: Sequence[Passage]

    async def idf(self, query: Query) -> Mapping[str, float]:
        """Equal ones: a handful of chunks that were chosen for a question says nothing about how rare its words are."""
        question = read_question(query.text, sorted({passage.language for passage in self.passages}))
        return dict.fromkeys(question.counts, 1.0)


def _response(answer: Answer, chunks: Sequence[RetrievedChunk]) -> GeneratedResponse:
    if not answer.text.strip():
        return GeneratedResponse(answer_text=ABSTAINED)
    cited = (
        Citation(
            n=each.n,
            chunk_id=each.chunk_id,
            text_excerpt=each.quote,
            filename=_filename(chunks[each.n - 1].metadata),
        )
        for each in answer.citations
    )
    return GeneratedResponse(
        answer_text=answer.text, citations=list(dict.fromkeys(cited)), confidence=answer.confidence
    )


def _filename(about: Metadata) -> str:
    return str(about.get("filename") or unquote(str(about.get("uri", "")).rpartition("/")[2]))
