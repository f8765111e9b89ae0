"""The stages of ingestion: each takes drafts and returns them with more filled in, or failed; none raises for one.

The same objects run in this process and in Ray's workers.
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

from rag_core.errors import DocumentError, ModelError, RagError, TransientError
from rag_core.ingestion.sources.pushed import PushedSource, named
from rag_core.parsing.scan import Scan, flagged, quarantine_reason, unscanned
from rag_core.protocols import Chunker, DocumentEmbedder, DocumentWeigher, Source
from rag_core.types import Document, Draft, Failure, Matrix, text_hash

M = TypeVar("M")

ATTEMPTS, FIRST_WAIT, LONGEST_WAIT = 3, 1.0, 60.0
"""How often a source is asked for a document, and the seconds between: each time twice as many, and up to one more."""


class Preparation:
    """Reads, parses, scans and splits documents. Bytes that are stored already are not parsed again."""

    def __init__(
        self,
        sources: Mapping[int, Source],
        parse: Callable[[str, bytes], Document],
        chunker: Chunker,
        scan: Scan = unscanned,
    ) -> None:
        self._sources, self._parse, self._chunker, self._scan = sources, parse, chunker, scan

    def __call__(self, drafts: Sequence[Draft]) -> Iterator[Draft]:
        """Each as it is ready. What its source does not give for the moment comes behind the others, which do not wait
        for it, and the wait is one for all of that.
        """
        left, away = drafts, list[tuple[Draft, TransientError]]()
        with suppress(TransientError):
            for attempt in stamina.retry_context(
                TransientError, attempts=ATTEMPTS, timeout=None, wait_initial=FIRST_WAIT, wait_max=LONGEST_WAIT
            ):
                with attempt:
                    away = yield from self._asked(left)
                    left = [draft for draft, _ in away]
                    if away:
                        raise away[-1][1]
        for draft, error in away:
            yield draft.with_failure(replace(_failure(error), reason=f"{error.reason} ({ATTEMPTS} attempts)"))

    def _asked(self, drafts: Sequence[Draft]) -> Generator[Draft, None, list[tuple[Draft, TransientError]]]:
        """Returns those that their sources do not give for the moment."""
        away = []
        for draft in drafts:
            try:
                ready = self._prepared(draft)
            except TransientError as error:
                away.append((draft, error))
                continue
            except DocumentError as error:
                ready = draft.with_failure(_failure(error))
            yield ready
        return away

    def _prepared(self, draft: Draft) -> Draft:
        clock = _Clock()
        body = self._sources[draft.source].read(draft.entry)
        draft = draft.with_stage_time("read", clock.lap(), sha256=sha256(body).digest())
        if draft.sha256 == draft.known_sha256:
            return replace(draft, same=True)
        try:
            document = self._parse(draft.entry.uri, body)
        except DocumentError as error:
            return self._scanned(draft.with_failure(_failure(error)), body).with_stage_time("parse", clock.lap())
        draft = draft.with_stage_time("parse", clock.lap(), document=document)
        draft = self._scanned(draft, body).with_stage_time("scan", clock.lap())
        if draft.document is None:
            return draft
        chunks = self._chunker.split(draft.id, draft.document)
        draft = draft.with_stage_time("split", clock.lap(), chunks=chunks)
        return draft if draft.chunks else draft.with_failure(Failure(stage="split", reason="no text"))

    def _scanned(self, draft: Draft, body: bytes) -> Draft:
        findings = self._scan(self._name(draft), body, draft.document)
        reason = quarantine_reason(findings)
        if reason and draft.sha256 != draft.released:
            return draft.with_failure(Failure(stage="scan", reason=reason, status="quarantined"))
        return replace(draft, document=flagged(draft.document, findings)) if draft.document else draft

    def _name(self, draft: Draft) -> str:
        """The parser's, whose suffix tells the format: what was pushed has a media type for that."""
        source = self._sources[draft.source]
        return named(source.documents[draft.entry.uri]) if isinstance(source, PushedSource) else draft.entry.uri


class Embedding:
    """Gives the chunks of many documents their vectors: stored ones by hash, each other text encoded once, also where
    the documents before, with the same text, are not published yet. With a weigher, also their term weights: of all,
    because stored ones cannot be read back.

    The models are loaded when the first text has to be encoded; `start_seconds` is what that took.
    """

    def __init__(
        self,
        open_embedder: Callable[[], DocumentEmbedder],
        known_vectors: Callable[[Sequence[bytes]], Mapping[bytes, Matrix]],
        open_weigher: Callable[[], DocumentWeigher] | None = None,
    ) -> None:
        self._open_embedder, self._known_vectors, self._open_weigher = open_embedder, known_vectors, open_weigher
        self._recent: Mapping[bytes, Matrix] = {}
        self.start_seconds = 0.0

    def load(self) -> None:
        """Loads the models now."""
        _ = self._embedder, self._weigher

    def __call__(self, drafts: Sequence[Draft]) -> list[Draft]:
        pending = [draft for draft in drafts if draft.pending]
        if not pending:
            return list(drafts)
        try:
            done = {_key(draft): draft for draft in self._weighed(list(self._embedded(pending)))}
        except RagError as error:
            failure = Failure(stage="embed", reason=str(error), retryable=True)
            done = {_key(draft): draft.with_failure(failure) for draft in pending}
        return [done.get(_key(draft), draft) for draft in drafts]

    def _embedded(self, drafts: Sequence[Draft]) -> Iterator[Draft]:
        texts = {text_hash(chunk.embedded_text): chunk.embedded_text for draft in drafts for chunk in draft.chunks}
        vectors = {key: self._recent[key] for key in texts.keys() & self._recent.keys()}
        vectors |= self._known_vectors(list(texts.keys() - vectors.keys()))
        missing = {key: text for key, text in texts.items() if key not in vectors}
        seconds = 0.0
        if missing:
            embedder = self._embedder
            clock = _Clock()
            vectors |= dict(zip(missing, embedder.embed(list(missing.values())), strict=True))
            seconds = clock.lap() / len(missing)
        self._recent = vectors
        for draft in drafts:
            hashes = [text_hash(chunk.embedded_text) for chunk in draft.chunks]
            encoded = [key for key in dict.fromkeys(hashes) if missing.pop(key, None) is not None]
            matrix = np.stack([vectors[key] for key in hashes])
            yield replace(draft, vectors=matrix, embedded=len(encoded)).with_stage_time("embed", seconds * len(encoded))

    def _weighed(self, drafts: Sequence[Draft]) -> Sequence[Draft]:
        weigher = self._weigher
        if weigher is None:
            return drafts
        clock = _Clock()
        texts = list(dict.fromkeys(chunk.embedded_text for draft in drafts for chunk in draft.chunks))
        weights = dict(zip(texts, weigher.weigh(texts), strict=True))
        seconds = clock.lap() / sum(len(draft.chunks) for draft in drafts)
        return [
            replace(draft, weights=tuple(weights[chunk.embedded_text] for chunk in draft.chunks)).with_stage_time(
                "embed", seconds * len(draft.chunks)
            )
            for draft in drafts
        ]

    @cached_property
    def _embedder(self) -> DocumentEmbedder:
        return self._loaded("embedding", self._open_embedder)

    @cached_property
    def _weigher(self) -> DocumentWeigher | None:
        return self._loaded("SPLADE", self._open_weigher) if self._open_weigher else None

    def _loaded(self, role: str, opening: Callable[[], M]) -> M:
        clock = _Clock()
        try:
            return opening()
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelError(f"the {role} model cannot be loaded: {error}") from error
        finally:
            self.start_seconds += clock.lap()


def _key(draft: Draft) -> tuple[UUID, tuple[int, int]]:
    """Parts of one document have one id."""
    return draft.id, draft.part


class _Clock:
    """Seconds of wall time from lap to lap."""

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def lap(self) -> float:
        before, self._at = self._at, time.perf_counter()
        return self._at - before


def _failure(error: DocumentError) -> Failure:
    return Failure(stage=error.stage, reason=error.reason, retryable=error.retryable, status=error.status)
