"""One seeded corpus for all benchmarks: passages, their vectors, and documents made of them.

A vector lies between two of many centres in a space of few dimensions, which a random map carries into the many of an
encoder, and is noisy: as with real passages, neighbours are near and there is structure for an index to find.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from rag_core.types import Chunk, Document, Draft, Entry, Matrix, Space, chunk_id, document_id

DIMENSION = 384
SPACE = Space(model="synthetic", dimension=DIMENSION, window=256, fingerprint=f"synthetic-{DIMENSION}")
WORDS = 75
VOCABULARY = 50_000
LATENT = 48
PASSAGES_A_CENTRE = 50
NOISE = 0.3
CHUNKS_A_DOCUMENT = 4
BREAK = "\n\n"


def passages(count: int, seed: int = 7, file: Path | None = None) -> list[str]:
    """The texts of a file with one JSON object a line, again and again with their number; else words of Zipf's law."""
    if file is None:
        return _made_up(count, seed)
    with file.open() as lines:
        known = [str(json.loads(line)["text"]) for line in lines]
    return [known[n % len(known)] + (f" ({n // len(known)})" if n >= len(known) else "") for n in range(count)]


def vectors(count: int, seed: int = 7, among: int = 0) -> Matrix:
    """Shape (count, DIMENSION), rows of length 1: passages, or with another seed questions `among` so many passages."""
    fixed, drawn = np.random.default_rng(0), np.random.default_rng(seed)
    spread = fixed.standard_normal((LATENT, DIMENSION))
    places = fixed.standard_normal((max(2, (among or count) // PASSAGES_A_CENTRE), LATENT))
    one, other = drawn.integers(len(places), size=(2, count))
    weight = drawn.random((count, 1))
    latent = weight * places[one] + (1 - weight) * places[other] + NOISE * drawn.standard_normal((count, LATENT))
    rows: Matrix = (latent @ spread).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def drafts(texts: Sequence[str], embeddings: Matrix, tenant: str, collection: str) -> Iterator[Draft]:
    """Documents of four passages, ready to be published. Of each of the metadata's numbers a filter on 0 lets one in
    ten, a hundred or a thousand documents pass."""
    for number, first in enumerate(range(0, len(texts), CHUNKS_A_DOCUMENT)):
        own = slice(first, first + CHUNKS_A_DOCUMENT)
        yield _draft(number, texts[own], embeddings[own], tenant, collection)


def _made_up(count: int, seed: int) -> list[str]:
    drawn = np.random.default_rng(seed)
    words = np.array([f"{word:x}" for word in drawn.permutation(VOCABULARY)])
    ranks = np.minimum(drawn.zipf(1.2, size=(count, WORDS)), VOCABULARY) - 1
    return [" ".join(row) for row in words[ranks]]


def _draft(number: int, texts: Sequence[str], embeddings: Matrix, tenant: str, collection: str) -> Draft:
    uri, text = f"file:///corpus/{number:07}.md", BREAK.join(texts)
    id = document_id(tenant, collection, uri)
    starts = np.cumsum([0, *(len(each) + len(BREAK) for each in texts)]).tolist()
    chunks = tuple(
        Chunk(
            id=chunk_id(id, each, texts[:ordinal].count(each)),
            document_id=id,
            ordinal=ordinal,
            text=each,
            start=starts[ordinal],
            end=starts[ordinal] + len(each),
        )
        for ordinal, each in enumerate(texts)
    )
    metadata = {f"in_{share}": number % share for share in (10, 100, 1000)}
    return Draft(
        id=id,
        source=1,
        entry=Entry(uri=uri, size=len(text), modified_ns=1_700_000_000_000_000_000 + number),
        recipe="benchmark",
        sha256=sha256(text.encode()).digest(),
        document=Document(uri=uri, text=text, title=f"Document {number}", language="en", metadata=metadata),
        chunks=chunks,
        vectors=embeddings,
        embedded=len(chunks),
    )
