"""The values that travel between the stages: frozen, slotted, keyword-only.

Offsets are Unicode code points of the document's text, half open: `document.text[chunk.start:chunk.end] == chunk.text`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from math import inf
from typing import Any, Literal, TypeAlias
from uuid import UUID, uuid5

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float32]
"""Shape (texts, dimension), one row a text."""

Value: TypeAlias = str | int | float | bool | Sequence[str]
"""What metadata may hold, and filters may compare."""

NEVER_NS = 2**63
"""Of times in nanoseconds, in the year 2262: the store holds those before, and from 1677 on."""

Metadata: TypeAlias = Mapping[str, Value]

DocumentStatus: TypeAlias = Literal["completed", "failed", "skipped", "quarantined"]

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""NUL, which Postgres does not store, and halves of surrogate pairs, which UTF-8 does not hold."""

DEFAULT_TENANT = "default-tenant"
DEFAULT_COLLECTION = "default"
_IDS = UUID("6f2f3a52-5a0e-5c4b-9d52-1b7a3c0e9d11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and the text it governs, up to the next heading of its own level or above."""

    path: tuple[str, ...]
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed source: its text, and what is known about it. `sections` are in text order.

    `pages` holds where each page begins, the first page first; empty where the format has none.
    """

    uri: str
    text: str
    title: str = ""
    media_type: str = "text/plain"
    language: str = ""
    metadata: Metadata = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A span of a document. `prefix` (title, headings) is embedded and shown with it, but is no part of `text`."""

    id: UUID
    document_id: UUID
    ordinal: int
    text: str
    start: int
    end: int
    prefix: str = ""
    metadata: Metadata = field(default_factory=dict)

    @property
    def embedded_text(self) -> str:
        return f"{self.prefix}\n{self.text}" if self.prefix else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Whose question it is, and where it is asked. They wait `timeout` seconds for an answer.

    `history` is what was said before, oldest first, where there is no session that knows it.
    """

    text: str
    tenant: str = DEFAULT_TENANT
    collection: str = DEFAULT_COLLECTION
    filters: "Filter | None" = None
    groups: tuple[str, ...] = ()
    session_id: str = ""
    history: "tuple[Message, ...]" = ()
    timeout: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One condition on a document's metadata."""

    key: str
    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Compound:
    """All (`and`) or any (`or`) of its filters."""

    type: Literal["and", "or"]
    filters: "tuple[Filter, ...]"


Filter: TypeAlias = Comparison | Compound


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a hit tells of the document that it stands in."""

    uri: str
    title: str
    language: str = ""
    updated_at: datetime | None = None
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk and how well it answers; `scores` keeps what every stage gave it."""

    chunk: Chunk
    origin: Origin
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)

    def rescored(self, stage: str, score: float) -> "Hit":
        return replace(self, score=score, scores={**self.scores, stage: score})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One line of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """What a generator reads of a document: `n`, from 1, is what a marker in the answer names.

    `text` is the document's own, from `start` on; `chunks`, in text order, are those that it was joined from, and `hit`
    is the best of them. `note` stands before it in the prompt and is no part of the text.
    """

    n: int
    hit: Hit
    text: str
    start: int
    chunks: tuple[Chunk, ...]
    note: str = ""

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def language(self) -> str:
        return self.hit.origin.language or "en"


CitationStyle: TypeAlias = Literal["inline", "footnote", "endnote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How an answer is to be written. `pack` names a prompt pack; a citation style is how markers look."""

    pack: str = "conversational"
    citations: CitationStyle = "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a generator is given. `hits` are all that was found, best first, also what is in no passage; `unsupported`
    are sentences of a first try that the passages do not hold."""

    query: Query
    passages: tuple[Passage, ...]
    hits: tuple[Hit, ...] = ()
    history: tuple[Message, ...] = ()
    style: Style = Style()
    unsupported: tuple[str, ...] = ()


Grade: TypeAlias = Literal["supported", "partial", "unsupported", "unchecked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What a marker stands for: `document.text[start:end] == quote`.

    `spans` are the marker's places in the answer and `claim` the sentence before it, both in code points of the answer.
    """

    n: int
    chunk_id: UUID
    document_id: UUID
    collection: str
    title: str
    uri: str
    quote: str
    start: int
    end: int
    spans: tuple[tuple[int, int], ...]
    claim: tuple[int, int]
    score: float
    page: int | None = None
    section: str = ""
    updated_at: datetime | None = None
    grade: Grade = "unchecked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence of an answer, by its code points, and how well the passages support it: `score` is from 0 to 1."""

    start: int
    end: int
    grade: Grade
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says of an answer. `method` tells how it judged, and so what it is worth."""

    grade: Grade = "unchecked"
    score: float = 0.0
    claims: tuple[Claim, ...] = ()
    method: str = ""


Finish: TypeAlias = Literal["stop", "abstained", "cut", "broken", "blocked"]
"""Why an answer ended: `cut` by a limit of tokens or time, `broken` where its generator failed amid it, `blocked` if
the judge did not let it pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`[n]` stands in the text if and only if a citation has that `n`. `confidence` is the share of its sentences that
    are cited, from 0 to 1."""

    text: str
    citations: tuple[Citation, ...] = ()
    confidence: float = 0.0
    verdict: Verdict = Verdict()
    finish: Finish = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """How one timed part of a request went: `error` is empty when well; `ranking` holds chunk ids, best first.

    `began` is in seconds since the recording's, and `allowed` how many it had from then on. `skipped` says why it was
    not run at all. `figures` are what it measured, by name. `error_type` is the name of the error's class.
    """

    stage: str
    seconds: float
    error: str = ""
    parent: str = ""
    ranking: tuple[UUID, ...] = ()
    began: float = 0.0
    allowed: float = inf
    skipped: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    error_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and all that went into it. What was left out are the stages whose `error` is not empty.

    `standalone` is the question as it was searched. `seconds` are the whole turn's.
    """

    query: Query
    standalone: str
    answer: Answer
    passages: tuple[Passage, ...] = ()
    stages: tuple[StageReport, ...] = ()
    seconds: float = 0.0

    @property
    def degraded(self) -> tuple[str, ...]:
        return tuple(report.stage for report in self.stages if report.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """An embedding space: vectors are comparable only within one. `window` is the model's limit, in its own tokens."""

    model: str
    dimension: int
    window: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class TermWeights:
    """A text as SPLADE has it: terms, each once, and beside them their weights, above 0."""

    terms: tuple[str, ...]
    weights: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a source's listing. Equal entries mean unread equal bytes, but for the rules of `delta`: where a
    source keeps neither times nor etags, and where it was written while it was listed. The store holds times that
    `storable_ns` gives."""

    uri: str
    size: int
    modified_ns: int
    changed_ns: int = 0
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """What the store remembers of an entry: as it was listed, what it held, and how it was read.

    `released` names the bytes that are ingested whatever a scan finds in them; empty where none are.
    """

    id: UUID
    entry: Entry
    sha256: bytes
    recipe: str
    status: DocumentStatus
    retryable: bool
    listed_ns: int
    released: bytes = b""

    @property
    def awaited(self) -> bool:
        """Whether it can be ingested now, although it is as it was when it was not."""
        return self.retryable or (self.status == "quarantined" and self.released == self.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a document is not in the index. `retryable`: the next sync tries again although nothing changed."""

    stage: str
    reason: str
    retryable: bool = False
    status: DocumentStatus = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A document on its way into the store; each stage returns it with more filled in, or with its failure.

    `known_sha256` is what the store holds for the same recipe: equal bytes need no work, and `same` says so.
    `released` is the hash of bytes that are not quarantined.
    `vectors` has one row a chunk, in their order; `embedded` counts the rows that were encoded and not reused.
    `weights` has one for each chunk, too, or none where the profile has no SPLADE.
    `part` is its number, from 0, and how many there are: a very large document travels as several drafts.
    """

    id: UUID
    source: int
    entry: Entry
    recipe: str
    known_sha256: bytes = b""
    released: bytes = b""
    sha256: bytes = b""
    same: bool = False
    document: Document | None = None
    chunks: tuple[Chunk, ...] = ()
    vectors: Matrix | None = None
    embedded: int = 0
    weights: tuple[TermWeights, ...] = ()
    failure: Failure | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    part: tuple[int, int] = (0, 1)

    @property
    def whole(self) -> bool:
        return self.part == (0, 1)

    @property
    def pending(self) -> bool:
        """Whether the next stage has something to do with it."""
        return self.failure is None and not self.same

    def timed(self, stage: str, seconds: float, **changes: Any) -> "Draft":
        """With what the stage has changed."""
        return replace(self, seconds={**self.seconds, stage: self.seconds.get(stage, 0.0) + seconds}, **changes)

    def failed(self, failure: Failure) -> "Draft":
        """Its reason may quote the document: what of it no row can hold is U+FFFD."""
        failure = replace(failure, reason=UNSTORABLE.sub("\ufffd", failure.reason))
        return replace(self, failure=failure, document=None, chunks=(), vectors=None, weights=())


def spelled(value: object) -> str:
    """As filters compare it: a boolean as in JSON and YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def storable_ns(moment: int) -> int:
    """Or the first, or the last, that the store holds."""
    return max(-NEVER_NS, min(moment, NEVER_NS - 1))


def text_hash(text: str) -> bytes:
    """16 bytes that name a text; equal texts share a vector within a space."""
    return blake2b(text.encode(), digest_size=16).digest()


def document_id(tenant: str, collection: str, uri: str) -> UUID:
    return uuid5(_IDS, f"{tenant}\x1f{collection}\x1f{uri}")


def chunk_id(document: UUID, text: str, duplicate: int) -> UUID:
    """Stable while the text stands in the document, wherever it moves; `duplicate` counts equal texts from 0."""
    return uuid5(document, f"{text_hash(text).hex()}\x1f{duplicate}")
