"""Every role of the system, with one or two methods. An object with these methods has the role; nothing is inherited.

The query path is async, the ingest path is sync. Only the embedder and the SPLADE weigher exist in both forms: they
encode documents in bulk and questions one at a time.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable
from uuid import UUID

from rag_core.events import Listener, ignore_event
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
    Turn,
    Understanding,
    Verdict,
)


class Source(Protocol):
    """A place that documents come from. `uri` is its absolute root: every entry's uri begins with it."""

    @property
    def uri(self) -> str: ...

    def listing(self) -> Iterator[Entry]:
        """Yields every entry once. Raises ListingError if it cannot list all of them: then nothing may be deleted."""
        ...

    def read(self, entry: Entry) -> bytes:
        """Returns the entry's stored bytes.

        Raises DocumentError if it is missing, unreadable or above the size limit, and TransientError if another
        attempt can succeed.
        """
        ...


class Parser(Protocol):
    def parse(self, uri: str, body: bytes) -> Document:
        """Raises DocumentError("parse", ...) if the bytes are not of a format that this parser reads."""
        ...


class Tokenizer(Protocol):
    """The embedder's tokenizer, without special tokens."""

    def lengths(self, texts: Sequence[str]) -> list[int]: ...

    def ends(self, text: str) -> list[int]:
        """The offset at which each token ends in `text`, in code points, ascending."""
        ...


class Chunker(Protocol):
    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        """Returns chunks in text order; each fits the embedder's window together with its prefix."""
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
        """One value per text, in the order given."""
        ...


class QueryWeigher(Protocol):
    async def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        """One value per text, in the order given."""
        ...


class Retriever(Protocol):
    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        """Returns at most k hits, best first."""
        ...


@runtime_checkable
class OuterRetriever(Retriever, Protocol):
    """A retriever that reorders or drops the first `depth` hits of another, in a stage that has the new ranking."""

    @property
    def stage_name(self) -> str: ...

    @property
    def retriever(self) -> Retriever: ...

    @property
    def depth(self) -> int: ...


Ranking = list[tuple[UUID, float]]
"""Chunk ids and scores, best first; ties by id."""


class Leg(Protocol):
    """A way to rank chunks by id; fusion works on legs before any text is fetched."""

    async def rank(self, query: Query, k: int) -> Ranking:
        """Returns at most k chunks."""
        ...

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        """The exact scores that `rank` would assign to these chunks, in the order given."""
        ...


class Rarities(Protocol):
    async def idf(self, query: Query) -> Mapping[str, float]:
        """The inverse document frequency of each term of the question in the searched collection; 0 or more."""
        ...


Pair: TypeAlias = tuple[str, str]
"""Two texts that a model reads together: a reranker's question and text, or a judge's passage and claim."""


class PairScorer(Protocol):
    """The model of a reranker or a judge, in this process or behind a handle."""

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        """One score per pair, in the order given. Raises ModelError if the model is unavailable or broke."""
        ...


class Reranker(Protocol):
    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """One score per text, in the order given; a higher score is better."""
        ...


class Generator(Protocol):
    def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yields the answer in pieces, with markers such as `[1]`; yields nothing if the passages do not answer.

        Raises GenerationError if it breaks off. A reader that stops early must close it, which cancels the work.
        """
        ...


class Judge(Protocol):
    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        """Raises JudgeError or ModelError if it cannot judge."""
        ...


class Answerer(Protocol):
    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply: ...


class Understander(Protocol):
    async def understand(self, query: Query, history: Sequence[Message]) -> Understanding:
        """Interprets a question; `history` begins with the conversation's first message, and is oldest first."""
        ...


class Conversations(Protocol):
    """The messages of earlier turns, by session. A query without a session has no history."""

    async def history(self, query: Query, limit: int) -> list[Message]:
        """The last `limit` messages, oldest first, after the conversation's first message if that is older.

        The messages of the query's own `answer_id` are left out.
        """
        ...

    async def remember(self, turn: Turn) -> None:
        """Adds the turn to the end of the session of its query. Concurrent turns are added one after the other.

        A turn whose `answer_id` is stored is not added again.
        """
        ...
