"""The values that travel between the stages: frozen, slotted, keyword-only.

Offsets are Unicode code points of the document's text, half open: `document.text[chunk.start:chunk.end] == chunk.text`.
"""

import json
import re
import time
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
"""A metadata value, as filters compare it."""

NEVER_NS = 2**63
"""The end of the times that the store holds, in nanoseconds since 1970: the year 2262. They begin in 1677."""

Metadata: TypeAlias = Mapping[str, Value]

DocumentStatus: TypeAlias = Literal["completed", "failed", "skipped", "quarantined"]

MAX_HEADER_CHARS = 1_000
"""The characters of a table's header row that the prefix of a chunk can repeat; the rest is left out."""
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that no row can hold: NUL for Postgres, and halves of surrogate pairs for UTF-8."""

DEFAULT_TENANT = "default-tenant"
TENANT_PATTERN = r"^[a-z0-9-]{8,64}$"
DEFAULT_COLLECTION = "default"
_IDS = UUID("6f2f3a52-5a0e-5c4b-9d52-1b7a3c0e9d11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and the text it governs, up to the next heading of its own level or above."""

    path: tuple[str, ...]
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenChunk:
    """A chunk that its document brings along: the span `document.text[start:end]`.

    `vector` has the dimension of the collection's embedding space and length 1; an empty one is computed.
    """

    start: int
    end: int
    prefix: str = ""
    metadata: Metadata = field(default_factory=dict)
    vector: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed document: its text, and what is known about it. `sections` are in text order.

    `pages` holds the offset at which each page begins; it is empty if the format has no pages. `given` holds the chunks
    that the document brings; without any, a chunker splits it. `access` holds the groups that can read it; if it is
    empty, everyone of the tenant can, and if it is None, the rules of the settings decide.
    """

    uri: str
    text: str
    title: str = ""
    media_type: str = "text/plain"
    language: str = ""
    metadata: Metadata = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    pages: tuple[int, ...] = ()
    given: tuple[GivenChunk, ...] = ()
    access: tuple[str, ...] | None = field(default=None, repr=False)  # not part of the bytes that are hashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A span of a document. `prefix` (title, headings) is embedded and shown with it, but is not part of `text`."""

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
    """A question, its tenant, and the collection to search. The caller waits `timeout` seconds for an answer.

    `history` holds the earlier messages, oldest first, if no session stores them. `variants` are searched instead of
    the text, and their rankings are fused; if there are none, the text is searched. `user_id` is empty for an unknown
    user. `answer_id` is the id of the answer; a query that is sent again has the same one.
    """

    text: str
    tenant: str = DEFAULT_TENANT
    collection: str = DEFAULT_COLLECTION
    filters: "Filter | None" = None
    groups: tuple[str, ...] = ()
    session_id: str = ""
    user_id: str = ""
    answer_id: str = ""
    history: "tuple[Message, ...]" = ()
    variants: "tuple[Variant, ...]" = ()
    timeout: float = inf


VariantName: TypeAlias = Literal["question", "previous", "answer", "first", "carried", "rewrite"]
"""The origin of a variant: the question, the user's previous or first message, the last answer, the question with what
was carried over from the history, or a model's rewrite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A text to search for a question, and the weight of its ranking."""

    name: VariantName
    text: str
    weight: float


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
    """The document that a hit belongs to, as far as the hit reports it."""

    uri: str
    title: str
    language: str = ""
    updated_at: datetime | None = None
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk and how well it answers. `scores` keeps the score of every stage, by the stage's name."""

    chunk: Chunk
    origin: Origin
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)

    def rescored(self, stage: str, score: float) -> "Hit":
        return replace(self, score=score, scores={**self.scores, stage: score})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One line of a conversation.

    `titles` are those of the documents that an answer cites, in the order of its markers. `entities` are the names in
    the text. `intent` is that of the user's message, and of the answer to it. `standalone` is the user's message as it
    was searched; `is_shift` is true if it changed the subject.
    """

    role: Literal["user", "assistant"]
    text: str
    titles: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    intent: str = ""
    standalone: str = ""
    is_shift: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Clarification:
    """A question to the user, and the answers to choose from."""

    question: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Understanding:
    """What a question means in its conversation.

    `standalone` is the question in words that need no history. `variants` are the texts to search; none if
    `standalone` alone is searched. `resolved` maps words of the question to what they refer to. `drift` is the distance
    from the subject so far, from 0 to 1, and `is_shift` says whether it is too large for the history to help; None
    and false if nothing was measured. `method` is `none` if there is no history.
    """

    standalone: str
    variants: tuple[Variant, ...] = ()
    intent: str = "search"
    resolved: Mapping[str, str] = field(default_factory=dict)
    sub_questions: tuple[str, ...] = ()
    clarification: Clarification | None = None
    drift: float | None = None
    is_shift: bool = False
    method: Literal["none", "rules", "llm"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A numbered part of a document for the generator to read. Markers in the answer refer to `n`, which counts from 1.

    `text` is the document's own text from `start` on. It was joined from `chunks`, in text order; `hit` is the best of
    them. `note` precedes the passage in the prompt and is not part of the text.
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
    """How an answer is written: `pack` names a prompt pack, `citations` the look of markers."""

    pack: str = "conversational"
    citations: CitationStyle = "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The input of a generator. `hits` are all hits, best first, including those in no passage.

    `query` has the standalone question, and `question` the user's words if they differ. `unsupported` holds sentences
    of a first attempt that the passages do not support. `excluded` holds sentences of earlier answers, which the answer
    must not repeat. `drift` and `is_shift` are those of the understanding.
    """

    query: Query
    passages: tuple[Passage, ...]
    hits: tuple[Hit, ...] = ()
    history: tuple[Message, ...] = ()
    style: Style = Style()
    question: str = ""
    unsupported: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    drift: float | None = None
    is_shift: bool = False


Grade: TypeAlias = Literal["supported", "partial", "unsupported", "unchecked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """The source that a marker refers to: `document.text[start:end] == quote`.

    `spans` are the positions of the marker in the answer, and `claim` is the sentence before it; both in code points of
    the answer.
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
    """A sentence of an answer, in code points, and how well the passages support it; `score` is from 0 to 1."""

    start: int
    end: int
    grade: Grade
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A judge's result for an answer. `method` names how it judged, and so how far to trust it."""

    grade: Grade = "unchecked"
    score: float = 0.0
    claims: tuple[Claim, ...] = ()
    method: str = ""


Finish: TypeAlias = Literal[
    "stop", "passages", "abstained", "cut", "broken", "blocked", "clarification", "conversational", "repeated"
]
"""Why an answer ended: `passages` if it only quotes the closest passages because no answer was sure enough, `cut` by a
limit of tokens or time, `broken` because the generator failed before its end, `blocked` by the judge. A
`clarification` asks the user back, a `conversational` reply needs no sources, and `repeated` means that there is
nothing new to add to an earlier answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer and its citations: `[n]` occurs in the text if and only if a citation has that `n`.

    `confidence` is the calibrated probability that it is right; None if nothing was calibrated. `coverage` is the share
    of its sentences that are cited, from 0 to 1.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    confidence: float | None = None
    coverage: float = 0.0
    verdict: Verdict = Verdict()
    finish: Finish = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A question and its answer, to be remembered."""

    query: Query
    understanding: Understanding
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """How one timed part of a request went. `error` is empty if it succeeded; `ranking` holds chunk ids, best first.

    `started` is in seconds since the recording started. `time_limit` is the stage's limit in seconds when it
    started. The deadline and the enclosing stage can make it shorter than the stage's own limit. `skipped` is the
    reason why the stage did not run. `figures` holds what it measured, by name. `error_type` is the name of the
    error's class.
    """

    stage: str
    seconds: float
    error: str = ""
    parent: str = ""
    ranking: tuple[UUID, ...] = ()
    started: float = 0.0
    time_limit: float = inf
    skipped: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    error_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and everything that went into it. `degraded` names the stages that failed.

    `standalone` is the question as it was searched. `understanding` is None if no history was interpreted.
    `clarification` is what the answer asks back; None if it answers. `seconds` is the duration of the whole turn.
    """

    query: Query
    standalone: str
    answer: Answer
    understanding: Understanding | None = None
    clarification: Clarification | None = None
    passages: tuple[Passage, ...] = ()
    stages: tuple[StageReport, ...] = ()
    seconds: float = 0.0

    @property
    def degraded(self) -> tuple[str, ...]:
        return tuple(report.stage for report in self.stages if report.error)

    @property
    def degraded_reasons(self) -> dict[str, str]:
        """The error of each stage in `degraded`."""
        return {report.stage: report.error for report in self.stages if report.error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """An embedding space: only vectors of one space are comparable. `window` is the model's limit in its own tokens."""

    model: str
    dimension: int
    window: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class TermWeights:
    """The SPLADE representation of a text: distinct terms, and their weights, which are above 0."""

    terms: tuple[str, ...]
    weights: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a source's listing. Equal entries mean equal bytes, without reading them.

    `delta` knows the exceptions: sources with neither times nor etags, and files written while they were listed. The
    store holds times as `clamp_ns` returns them. `access` is as in `Document`, and does not count for equality.
    """

    uri: str
    size: int
    modified_ns: int
    changed_ns: int = 0
    etag: str = ""
    access: tuple[str, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A stored document: its entry as listed, the hash of its bytes, and the recipe that it was read with.

    `released` is the hash of bytes that are ingested whatever a scan finds in them; empty if there are none. `access`
    holds the groups that can read it, sorted; empty: everyone of the tenant. `metadata` holds only what access rules
    read.
    """

    id: UUID
    entry: Entry
    sha256: bytes
    recipe: str
    status: DocumentStatus
    retryable: bool
    listed_ns: int
    released: bytes = b""
    access: tuple[str, ...] = ()
    metadata: Metadata = field(default_factory=dict)

    @property
    def can_be_retried(self) -> bool:
        """True if an unchanged document is worth another attempt: it failed temporarily, or was released."""
        return self.retryable or (self.status == "quarantined" and self.released == self.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a document is not in the index. `retryable`: the next sync tries again, even if nothing changed."""

    stage: str
    reason: str
    retryable: bool = False
    status: DocumentStatus = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A document that is being ingested. Each stage returns it with more fields filled in, or with a failure.

    `known_sha256` is the hash that the store holds for the same recipe: equal bytes need no work, and set `same`.
    `released` is the hash of bytes that are not quarantined.
    `vectors` has one row per chunk, in order; `embedded` counts the rows that were encoded and not reused.
    `has_given_vectors`: the document brought them, so no other document reuses them.
    `weights` has one value per chunk, or none if the profile has no SPLADE.
    `seconds` has the busy seconds of each stage, and `times` its start and end, in seconds since 1970.
    `access` holds the groups that can read the document; empty: everyone of the tenant.
    `part` is the draft's number, from 0, and the count of drafts: a very large document travels as several.
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
    has_given_vectors: bool = False
    embedded: int = 0
    weights: tuple[TermWeights, ...] = ()
    failure: Failure | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    access: tuple[str, ...] = ()
    part: tuple[int, int] = (0, 1)

    @property
    def is_whole(self) -> bool:
        return self.part == (0, 1)

    @property
    def pending(self) -> bool:
        """True if the next stage has work to do on it."""
        return self.failure is None and not self.same

    def with_stage_time(self, stage: str, seconds: float, started: float = 0.0, **changes: Any) -> "Draft":
        """A copy with `changes`, and with a stage that ends now. Without `started`, it began `seconds` ago."""
        now = time.time()
        start, _ = self.times.get(stage, (started or now - seconds, now))
        return replace(
            self,
            seconds={**self.seconds, stage: self.seconds.get(stage, 0.0) + seconds},
            times={**self.times, stage: (start, now)},
            **changes,
        )

    def with_failure(self, failure: Failure) -> "Draft":
        """A copy without contents. The reason can quote the document, so unstorable characters become U+FFFD."""
        failure = replace(failure, reason=UNSTORABLE.sub("\ufffd", failure.reason))
        return replace(self, failure=failure, document=None, chunks=(), vectors=None, weights=())


def comparison_text(value: object) -> str:
    """The text that filters compare: a boolean is written as in JSON and YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def clamp_ns(moment: int) -> int:
    """Limits a time in nanoseconds to the range that the store holds."""
    return max(-NEVER_NS, min(moment, NEVER_NS - 1))


def text_hash(text: str) -> bytes:
    """The 16-byte hash of a text. Equal texts share a vector within a space."""
    return blake2b(text.encode(), digest_size=16).digest()


def vector_hash(text: str, vector: Matrix) -> bytes:
    """The 16-byte hash of a text with the vector that its document brought. No text alone has this hash."""
    return blake2b(text_hash(text) + vector.astype(np.float32).tobytes(), digest_size=16).digest()


def document_id(tenant: str, collection: str, uri: str) -> UUID:
    return uuid5(_IDS, f"{tenant}\x1f{collection}\x1f{uri}")


def conversation_id(query: Query) -> UUID:
    """The id of the query's own conversation. Every user has another conversation under the same session id.

    So has every set of groups if the user is unknown: messages can quote documents that other callers may not read.
    """
    owner = {"user": query.user_id} if query.user_id else sorted(query.groups)
    return uuid5(_IDS, json.dumps([query.tenant, query.session_id, owner]))


def chunk_id(document: UUID, text: str, duplicate: int) -> UUID:
    """Stable while the document contains the text, wherever it moves; `duplicate` counts equal texts from 0."""
    return uuid5(document, f"{text_hash(text).hex()}\x1f{duplicate}")
