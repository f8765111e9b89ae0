"""The stages of ingestion: each takes drafts, and returns them with more fields filled, or with a failure.

No stage raises an error because of a single document. The same objects run in this process and in Ray's workers.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import TypeVar
from uuid import UUID

import numpy as np
import stamina

from rag_core.chunking.given import stack_given_vectors
from rag_core.cpu_limit import limit_cpu
from rag_core.errors import DocumentError, FencedError, ModelError, RagError, TransientError
from rag_core.ingestion.access import NO_RULES, AccessRules
from rag_core.ingestion.recipe import with_label
from rag_core.ingestion.sources.format_uri import format_uri
from rag_core.parsing.flags import with_flags
from rag_core.parsing.scan import Scanner, quarantine_reason, skip_scan
from rag_core.protocols import Chunker, DocumentEmbedder, DocumentWeigher, Source
from rag_core.types import Document, Draft, Failure, Matrix, text_hash

M = TypeVar("M")

READ_ATTEMPTS, FIRST_WAIT, MAX_WAIT = 3, 1.0, 60.0
"""The attempts to read a document, and the first and the longest wait between them, in seconds. Waits double, and each
has up to a second more, at random."""


MAX_TEXTS = 512
"""The texts that are encoded between two queries for stored vectors. Such a query fails if the job has ended."""


class Preparation:
    """Reads, parses, scans and splits documents. Bytes that are already stored are not parsed again."""

    def __init__(
        self,
        sources: Mapping[int, Source],
        parse: Callable[[Source, str, bytes], Document],
        chunker: Chunker,
        scan: Scanner = skip_scan,
        seconds: float = 0.0,
        dimension: int = 0,
        label: Callable[[Document], str] = lambda _: "",
        access: AccessRules = NO_RULES,
    ) -> None:
        """`seconds` of CPU time limit the scan of a document, and its splitting again; 0 means no limit.

        `dimension` is that of the vectors which documents can bring along. `label` returns the label of a document's
        own profile, which its recipe then has.
        """
        self._sources, self._parse, self._chunker, self._scan = sources, parse, chunker, scan
        self._seconds, self._dimension, self._label, self._access = seconds, dimension, label, access

    def __call__(self, drafts: Sequence[Draft]) -> Iterator[Draft]:
        """Yields each draft when it is ready.

        Documents that their source temporarily cannot deliver are yielded after the others. All of them share one wait
        before each further attempt, and no other document waits for them.
        """
        remaining, unavailable = drafts, list[tuple[Draft, TransientError]]()
        with suppress(TransientError):
            for attempt in stamina.retry_context(
                TransientError, attempts=READ_ATTEMPTS, timeout=None, wait_initial=FIRST_WAIT, wait_max=MAX_WAIT
            ):
                with attempt:
                    unavailable = yield from self._prepare_available(remaining)
                    remaining = [draft for draft, _ in unavailable]
                    if unavailable:
                        raise unavailable[-1][1]
        for draft, error in unavailable:
            reason = f"{error.reason} ({READ_ATTEMPTS} attempts)"
            yield draft.with_failure(replace(_failure_from_error(error), reason=reason))

    def _prepare_available(self, drafts: Sequence[Draft]) -> Generator[Draft, None, list[tuple[Draft, TransientError]]]:
        """Yields the drafts that are ready. Returns those that their sources temporarily cannot deliver."""
        unavailable = []
        for draft in drafts:
            try:
                ready = self._prepare_draft(draft)
            except TransientError as error:
                unavailable.append((draft, error))
                continue
            except DocumentError as error:
                ready = draft.with_failure(_failure_from_error(error))
            yield ready
        return unavailable

    def _prepare_draft(self, draft: Draft) -> Draft:
        stopwatch = _Stopwatch()
        source = self._sources[draft.source]
        body = source.read(draft.entry)
        draft = draft.with_stage_time("read", stopwatch.lap(), sha256=sha256(body).digest())
        if draft.sha256 == draft.known_sha256:
            return replace(draft, same=True)
        try:
            document = self._parse(source, draft.entry.uri, body)
        except DocumentError as error:
            draft = self._scan_draft(draft.with_failure(_failure_from_error(error)), body)
            return draft.with_stage_time("parse", stopwatch.lap())
        groups = self._access.find_groups(draft.entry, document.metadata)
        draft = draft.with_stage_time("parse", stopwatch.lap(), document=document, access=groups)
        draft = self._scan_draft(draft, body).with_stage_time("scan", stopwatch.lap())
        if draft.document is None:
            return draft
        document = draft.document
        draft = replace(draft, access=self._access.find_groups(draft.entry, document.metadata))  # with the scan's flags
        with limit_cpu("split", self._seconds):
            chunks = self._chunker.split(draft.id, document)
            vectors = stack_given_vectors(document, self._dimension)
        recipe = with_label(draft.recipe, self._label(document))
        draft = draft.with_stage_time("split", stopwatch.lap(), chunks=chunks, recipe=recipe)
        if not chunks:
            return draft.with_failure(Failure(stage="split", reason="no text"))
        document = replace(document, given=())
        return replace(draft, document=document, vectors=vectors, has_given_vectors=vectors is not None)

    def _scan_draft(self, draft: Draft, body: bytes) -> Draft:
        """Quarantines the document if the scan finds a reason, unless these very bytes were released."""
        uri = format_uri(self._sources[draft.source], draft.entry.uri)
        with limit_cpu("scan", self._seconds):
            findings = self._scan(uri, body, draft.document)
        reason = quarantine_reason(findings)
        if reason and draft.sha256 != draft.released:
            return draft.with_failure(Failure(stage="scan", reason=reason, status="quarantined"))
        if not draft.document:
            return draft
        return replace(draft, document=with_flags(draft.document, (finding.flag for finding in findings)))


class Embedding:
    """The stage that gives the chunks of many documents their vectors and term weights.

    Stored vectors are found by the hash of the text. Every other text is encoded once. The vectors of the previous
    batch are reused too, because they are possibly not stored yet. With a weigher, all texts are weighed, because
    stored weights cannot be read back.

    The models are loaded when the first text has to be encoded, which takes `start_seconds`.
    """

    def __init__(
        self,
        open_embedder: Callable[[], DocumentEmbedder],
        find_vectors: Callable[[Sequence[bytes]], Mapping[bytes, Matrix]],
        open_weigher: Callable[[], DocumentWeigher] | None = None,
    ) -> None:
        self._open_embedder, self._find_vectors, self._open_weigher = open_embedder, find_vectors, open_weigher
        self._recent: Mapping[bytes, Matrix] = {}
        self.start_seconds = 0.0

    def load(self) -> None:
        """Loads the models now instead of with the first text."""
        _ = self._embedder, self._weigher

    def __call__(self, drafts: Sequence[Draft]) -> list[Draft]:
        pending = [draft for draft in drafts if draft.pending]
        if not pending:
            return list(drafts)
        try:
            processed = {_part_key(draft): draft for draft in self._weigh_drafts(list(self._embed_drafts(pending)))}
        except FencedError:
            raise
        except RagError as error:
            failure = Failure(stage="embed", reason=str(error), retryable=True)
            processed = {_part_key(draft): draft.with_failure(failure) for draft in pending}
        return [processed.get(_part_key(draft), draft) for draft in drafts]

    def _embed_drafts(self, drafts: Sequence[Draft]) -> Iterator[Draft]:
        yield from (draft for draft in drafts if draft.has_given_vectors)
        drafts = [draft for draft in drafts if not draft.has_given_vectors]
        started = time.time()
        texts = {text_hash(chunk.embedded_text): chunk.embedded_text for draft in drafts for chunk in draft.chunks}
        vectors = {key: self._recent[key] for key in texts.keys() & self._recent.keys()}
        unknown = [key for key in texts if key not in vectors]
        missing: dict[bytes, str] = {}
        seconds = 0.0
        for first in range(0, len(unknown), MAX_TEXTS):
            keys = unknown[first : first + MAX_TEXTS]
            vectors |= self._find_vectors(keys)
            new = {key: texts[key] for key in keys if key not in vectors}
            if new:
                embedder = self._embedder
                stopwatch = _Stopwatch()
                vectors |= dict(zip(new, embedder.embed(list(new.values())), strict=True))
                seconds += stopwatch.lap()
                missing |= new
        seconds /= len(missing) or 1
        self._recent = vectors
        for draft in drafts:
            hashes = [text_hash(chunk.embedded_text) for chunk in draft.chunks]
            encoded = [key for key in dict.fromkeys(hashes) if missing.pop(key, None) is not None]
            matrix = np.stack([vectors[key] for key in hashes])
            yield draft.with_stage_time("embed", seconds * len(encoded), started, vectors=matrix, embedded=len(encoded))

    def _weigh_drafts(self, drafts: Sequence[Draft]) -> Sequence[Draft]:
        weigher = self._weigher
        if weigher is None:
            return drafts
        stopwatch = _Stopwatch()
        texts = list(dict.fromkeys(chunk.embedded_text for draft in drafts for chunk in draft.chunks))
        weights = dict(zip(texts, weigher.weigh(texts), strict=True))
        seconds = stopwatch.lap() / sum(len(draft.chunks) for draft in drafts)
        return [
            replace(draft, weights=tuple(weights[chunk.embedded_text] for chunk in draft.chunks)).with_stage_time(
                "embed", seconds * len(draft.chunks)
            )
            for draft in drafts
        ]

    @cached_property
    def _embedder(self) -> DocumentEmbedder:
        return self._load_model("embedding", self._open_embedder)

    @cached_property
    def _weigher(self) -> DocumentWeigher | None:
        return self._load_model("SPLADE", self._open_weigher) if self._open_weigher else None

    def _load_model(self, role: str, open_model: Callable[[], M]) -> M:
        """Loads a model, and adds the time to `start_seconds`."""
        stopwatch = _Stopwatch()
        try:
            return open_model()
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelError(f"the {role} model cannot be loaded: {error}") from error
        finally:
            self.start_seconds += stopwatch.lap()


def _part_key(draft: Draft) -> tuple[UUID, tuple[int, int]]:
    """The key of a part of a document; all parts of one document have the same id."""
    return draft.id, draft.part


class _Stopwatch:
    """A clock that measures seconds of wall time from lap to lap."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def lap(self) -> float:
        before, self._started = self._started, time.perf_counter()
        return self._started - before


def _failure_from_error(error: DocumentError) -> Failure:
    return Failure(stage=error.stage, reason=error.reason, retryable=error.retryable, status=error.status)
