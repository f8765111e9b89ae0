"""Drafts of a few words each, in the states that the stages of ingestion produce."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import numpy as np

from rag_core.types import (
    DEFAULT_COLLECTION,
    Chunk,
    Document,
    Draft,
    Entry,
    Failure,
    Matrix,
    Metadata,
    Space,
    TermWeights,
    chunk_id,
    document_id,
    text_hash,
)

TENANT = "tenant-under-test"
SPACE = Space(model="test-encoder", dimension=16, window=256, fingerprint="test-encoder-16")
OTHER_SPACE = Space(model="other-encoder", dimension=16, window=256, fingerprint="other-encoder-16")
MODIFIED_NS = 1_700_000_000_000_000_000
BREAK = "\n\n"


def vector(text: str) -> Matrix:
    """Shape (dimension,), length 1. The same text always has the same vector."""
    row = np.random.default_rng(int.from_bytes(text_hash(text))).standard_normal(SPACE.dimension)
    return (row / np.linalg.norm(row)).astype(np.float32)


def weights(text: str) -> TermWeights:
    """Weights of the text's words, in (0, 3). The same text always has the same weights."""
    terms = tuple(dict.fromkeys(text.split()))
    values = np.random.default_rng(int.from_bytes(text_hash(text))).uniform(0.001, 3, len(terms))
    return TermWeights(terms, values.astype(np.float32))


def document(uri: str, texts: Sequence[str], metadata: Metadata | None = None, title: str = "A title") -> Document:
    """A document of these texts, separated by empty lines."""
    return Document(uri=uri, text=BREAK.join(texts), title=title, language="en", metadata=metadata or {})


def chunks(document_id: UUID, texts: Sequence[str], prefix: str = "", **metadata: Any) -> tuple[Chunk, ...]:
    """One chunk per text, at its position in the text of `document`."""
    starts = np.cumsum([0, *(len(text) + len(BREAK) for text in texts)]).tolist()
    return tuple(
        Chunk(
            id=chunk_id(document_id, text, texts[:ordinal].count(text)),
            document_id=document_id,
            ordinal=ordinal,
            text=text,
            start=starts[ordinal],
            end=starts[ordinal] + len(text),
            prefix=prefix,
            metadata=metadata,
        )
        for ordinal, text in enumerate(texts)
    )


def blank_draft(uri: str, tenant: str = TENANT, collection: str = DEFAULT_COLLECTION) -> Draft:
    """A draft that no stage has processed yet."""
    entry = Entry(uri=uri, size=len(uri), modified_ns=MODIFIED_NS)
    return Draft(id=document_id(tenant, collection, uri), source=1, entry=entry, recipe="recipe")


def draft(
    uri: str,
    *texts: str,
    tenant: str = TENANT,
    collection: str = DEFAULT_COLLECTION,
    metadata: Metadata | None = None,
    prefix: str = "",
    about_chunks: Metadata | None = None,
) -> Draft:
    """A draft that was read, split into these texts, and embedded."""
    read = document(uri, texts, metadata)
    blank = blank_draft(uri, tenant, collection)
    return embed_draft(
        replace(
            blank,
            sha256=sha256(read.text.encode()).digest(),
            document=read,
            chunks=chunks(blank.id, texts, prefix, **(about_chunks or {})),
        )
    )


def embed_draft(draft: Draft) -> Draft:
    vectors = np.stack([vector(chunk.embedded_text) for chunk in draft.chunks])
    return replace(draft, vectors=vectors, embedded=len(vectors), seconds={"embed": 0.25})


def weigh_draft(draft: Draft) -> Draft:
    return replace(draft, weights=tuple(weights(chunk.embedded_text) for chunk in draft.chunks))


def draft_with_failure(draft: Draft, retryable: bool = False, skipped: bool = False) -> Draft:
    status = "skipped" if skipped else "failed"
    return draft.with_failure(Failure(stage="read", reason="it was a test", retryable=retryable, status=status))


def same_draft(draft: Draft, modified_ns: int = MODIFIED_NS) -> Draft:
    """The draft of a file that was listed again, with the same bytes as stored."""
    blank = replace(draft, document=None, chunks=(), vectors=None, weights=(), embedded=0)
    return replace(blank, same=True, entry=replace(draft.entry, modified_ns=modified_ns))
