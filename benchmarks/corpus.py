"""One seeded corpus for all benchmarks: passages, vectors, and documents made of them.

With real texts at hand a passage is two runs of their words: so there are as many as are wanted. Else its words are
made up. No vector is that of its passage: it lies between one of some encoded passages and one of those that are near
it (SMOTE, Chawla et al. 2002), and is noisy. Of made-up words these centres are made up, too, in a space of few
dimensions, which a random map carries into the many of an encoder.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.json_lines import json_lines
from rag_core.settings import load_settings
from rag_core.storage.lexical.packing import Numbers
from rag_core.types import Chunk, Document, Draft, Entry, Matrix, Space, chunk_id, document_id
from rag_core.wiring.embedding import load_shared_encoder

DIMENSION = 384
SPACE = Space(model="synthetic", dimension=DIMENSION, window=256, fingerprint=f"synthetic-{DIMENSION}")
WORDS = 75
VOCABULARY = 50_000
LATENT = 48
CENTRES, NEIGHBOURS, NOISE = 2_000, 10, 0.7
"""So 100,000 vectors have at ranks 20, 100, 200 and 1,000 cosines of .61, .46, .40 and .32 or a little more; 5,000
encoded passages of public sets have .60, .48, .43 and .34 at ranks 1, 5, 10 and 50."""
MINIMAL = 1e-6
"""Variance in each direction: of few encoded centres there is none in some."""
CHUNKS_A_DOCUMENT = 4
BREAK = "\n\n"


def texts_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--texts", type=Path, nargs="+", default=[], help='files with {"text": ...} a line, to mix; else made up'
    )


def stored(files: Sequence[Path]) -> list[str]:
    """The texts of files with one JSON object a line."""
    return [row["text"] for file in files for row in json_lines(file)]


def passages(count: int, seed: int = 7, files: Sequence[Path] = ()) -> list[str]:
    """Of words in such files; without any their words are of Zipf's law."""
    return _mixed(stored(files), count, seed) if files else _made_up(count, seed)


def vectors(count: int, seed: int = 7, files: Sequence[Path] = ()) -> Matrix:
    """Shape (count, DIMENSION), rows of length 1: passages, or with another seed questions."""
    drawn, (centres, near, spread) = np.random.default_rng(seed), _centres(tuple(files))
    one = drawn.integers(CENTRES, size=count)
    other = near[one, drawn.integers(NEIGHBOURS, size=count)]
    weight = drawn.random((count, 1), np.float32)
    noise = drawn.standard_normal((count, len(spread)), np.float32) @ (NOISE * spread)
    return _directions(weight * centres[one] + (1 - weight) * centres[other] + noise)


def drafts(texts: Sequence[str], embeddings: Matrix, tenant: str, collection: str) -> Iterator[Draft]:
    """Documents of four passages, ready to be published. Of each of the metadata's numbers a filter on 0 lets one in
    ten, a hundred or a thousand documents pass."""
    for number, first in enumerate(range(0, len(texts), CHUNKS_A_DOCUMENT)):
        own = slice(first, first + CHUNKS_A_DOCUMENT)
        yield _draft(number, texts[own], embeddings[own], tenant, collection)


def _mixed(texts: Sequence[str], count: int, seed: int) -> list[str]:
    words, run = " ".join(texts).split(), WORDS // 2
    places = np.random.default_rng(seed).integers(len(words) - run, size=(count, 2)).tolist()
    return [" ".join(words[one : one + run] + words[other : other + run]) for one, other in places]


def _made_up(count: int, seed: int) -> list[str]:
    drawn = np.random.default_rng(seed)
    words = np.array([f"{word:x}" for word in drawn.permutation(VOCABULARY)])
    ranks = np.minimum(drawn.zipf(1.2, size=(count, WORDS)), VOCABULARY) - 1
    return [" ".join(row) for row in words[ranks]]


@cache
def _centres(files: tuple[Path, ...]) -> tuple[Matrix, Numbers, Matrix]:
    """With the numbers of those near each, and what makes of independent numbers some that vary as the centres do."""
    if files:
        embedding = load_settings(environment={}).embedding
        centres = load_shared_encoder(embedding).embed(passages(CENTRES, files=files))
        spread = np.linalg.cholesky(np.cov(centres.T) + MINIMAL * np.eye(DIMENSION)).T
    else:
        fixed = np.random.default_rng(0)
        spread = fixed.standard_normal((LATENT, DIMENSION)) / np.sqrt(LATENT * DIMENSION)
        centres = _directions(fixed.standard_normal((CENTRES, LATENT)) @ spread)
    return centres, np.argsort(-centres @ centres.T)[:, 1 : NEIGHBOURS + 1], spread.astype(np.float32)


def _directions(rows: NDArray[np.floating]) -> Matrix:
    directions: Matrix = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return directions


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
