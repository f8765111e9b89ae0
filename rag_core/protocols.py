"""Every role of the system, one method each. What has the method is the role; there is nothing to inherit.

The query path is async, the ingest path is sync; no role exists in both colours but the embedder
and SPLADE's weigher, which encode documents in bulk and questions one at a time.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

from rag_core.events import Listener, nobody
from rag_core.types import (
    Answer,
    Chunk,
    Document,
    Entry,
    Hit,
    Matrix,
    Message,
    Passage,
    Prompt,
    Query,
    Reply,
    TermWeights,
    Verdict,
)


class Source(Protocol):
    """Where documents come from. `uri` is its root, absolute: every entry's uri begins with it."""

    @property
    def uri(self) -> str: ...

    def listing(self) -> Iterator[Entry]:
        """Every entry once. ListingError if it cannot be listed to its end: then nothing may be deleted."""
        ...

    def read(self, entry: Entry) -> bytes:
        """The entry's bytes as they are stored. DocumentError if it is gone, unreadable or above the size limit,
        TransientError if the same may succeed a little later."""
        ...


class Parser(Protocol):
    def parse(self, uri: str, body: bytes) -> Document:
        """DocumentError("parse", ...) if the bytes are not what this parser reads."""
        ...


class Tokenizer(Protocol):
    """The embedder's own tokens, without its special ones."""

    def lengths(self, texts: Sequence[str]) -> list[int]: ...

    def ends(self, text: str) -> list[int]:
        """Where each token ends in `text`, in code points, ascending."""
        ...


class Chunker(Protocol):
    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        """In text order; each fits the embedder's window together with its prefix."""
        ...


class DocumentEmbedder(Protocol):
    def embed(self, texts: Sequence[str]) -> Matrix:
        """Shape (len(texts), dimension), in the order given; rows have length 1."""
        ...


class QueryEmbedder(Protocol):
    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Shape (len(texts), dimension), in the order given; rows have length 1."""
        ...


class DocumentWeigher(Protocol):
    def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        """In the order given."""
        ...


class QueryWeigher(Protocol):
    async def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        """In the order given."""
        ...


class Retriever(Protocol):
    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        """At most k hits, best first."""
        ...


Ranking = list[tuple[UUID, float]]
"""Chunk ids and scores, best first; ties by id."""


class Leg(Protocol):
    """A way to rank chunks, without their texts: what is fused before anything is fetched."""

    async def rank(self, query: Query, k: int) -> Ranking:
        """At most k."""
        ...

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        """The exact scores that `rank` would give these chunks, in the order given."""
        ...


class Rarities(Protocol):
    async def idf(self, query: Query) -> Mapping[str, float]:
        """Of each term of the question, in what it is asked of: 0 or more, the rarer the higher."""
        ...


Pair: TypeAlias = tuple[str, str]
"""Two texts that a model reads together: question and text of a reranker, passage and claim of a judge."""


class PairScorer(Protocol):
    """Where the model of a reranker or a judge runs: in this process, or elsewhere."""

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        """In the order given. ModelError if the model is not there, or broke."""
        ...


class Reranker(Protocol):
    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """The higher the better, in the order given."""
        ...


class Generator(Protocol):
    def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """The answer in pieces, with markers such as `[1]`; nothing at all if the passages do not answer.

        GenerationError if it breaks off. Whoever stops reading closes it, which ends the work below.
        """
        ...


class Judge(Protocol):
    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        """JudgeError or ModelError if it cannot say."""
        ...


class Answerer(Protocol):
    async def answer(self, query: Query, tell: Listener = nobody) -> Reply: ...


class Conversations(Protocol):
    """What was said before, by session; a query without a session has no history."""

    async def history(self, query: Query, most: int) -> list[Message]:
        """The last `most` messages, oldest first."""
        ...

    async def remember(self, query: Query, answer: Answer) -> None: ...
