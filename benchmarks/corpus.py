"""One seeded corpus for all benchmarks: passages, vectors, and documents made of them.

A passage is two runs of words from real texts, so that any number of passages can be made. Without real texts its words
are generated. A vector does not encode its passage. It lies between a centre and one of the centre's neighbours (SMOTE,
Chawla et al. 2002), with noise. The centres are some encoded passages. Without real texts the centres are generated,
too: in a space of few dimensions, which a random map projects into the dimensions of an encoder.
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
"""With these numbers, 100,000 vectors have cosines of .61, .46, .40 and .32 or a little more at ranks 20, 100, 200 and
1,000. 5,000 encoded passages of public sets have .60, .48, .43 and .34 at ranks 1, 5, 10 and 50."""
MIN_VARIANCE = 1e-6
"""Variance added to each direction, because few encoded centres have none in some directions."""
CHUNKS_PER_DOCUMENT = 4
BREAK = "\n\n"


def texts_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--texts",
        type=Path,
        nargs="+",
        default=[],
        help='files with {"text": ...} per line, to mix; default: generated',
    )


def read_texts(files: Sequence[Path]) -> list[str]:
    """The texts of files with one JSON object per line."""
    return [row["text"] for file in files for row in json_lines(file)]


def passages(count: int, seed: int = 7, files: Sequence[Path] = ()) -> list[str]:
    """Passages of words from these files; without files, of generated words that follow Zipf's law."""
    return _mix(read_texts(files), count, seed) if files else _generate(count, seed)


def vectors(count: int, seed: int = 7, files: Sequence[Path] = ()) -> Matrix:
    """Shape (count, DIMENSION), rows of length 1. Another seed gives vectors of questions."""
    random, (centres, neighbours, spread) = np.random.default_rng(seed), _centres(tuple(files))
    one = random.integers(CENTRES, size=count)
    other = neighbours[one, random.integers(NEIGHBOURS, size=count)]
    weight = random.random((count, 1), np.float32)
    noise = random.standard_normal((count, len(spread)), np.float32) @ (NOISE * spread)
    return _directions(weight * centres[one] + (1 - weight) * centres[other] + noise)


def drafts(texts: Sequence[str], embeddings: Matrix, tenant: str, collection: str) -> Iterator[Draft]:
    """Documents of four passages, ready to be published.

    A filter for 0 in the metadata `in_10`, `in_100` or `in_1000` selects one of ten, a hundred or a thousand documents.
    """
    for number, first in enumerate(range(0, len(texts), CHUNKS_PER_DOCUMENT)):
        part = slice(first, first + CHUNKS_PER_DOCUMENT)
        yield _draft(number, texts[part], embeddings[part], tenant, collection)


def _mix(texts: Sequence[str], count: int, seed: int) -> list[str]:
    words, run = " ".join(texts).split(), WORDS // 2
    starts = np.random.default_rng(seed).integers(len(words) - run, size=(count, 2)).tolist()
    return [" ".join(words[one : one + run] + words[other : other + run]) for one, other in starts]


def _generate(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    words = np.array([f"{word:x}" for word in random.permutation(VOCABULARY)])
    ranks = np.minimum(random.zipf(1.2, size=(count, WORDS)), VOCABULARY) - 1
    return [" ".join(row) for row in words[ranks]]


@cache
def _centres(files: tuple[Path, ...]) -> tuple[Matrix, Numbers, Matrix]:
    """Returns the centres, the row numbers of each centre's neighbours, and the map of the noise.

    The map turns independent normal numbers into vectors with the covariance of the centres.
    """
    if files:
        embedding = load_settings(environment={}).embedding
        centres = load_shared_encoder(embedding).embed(passages(CENTRES, files=files))
        spread = np.linalg.cholesky(np.cov(centres.T) + MIN_VARIANCE * np.eye(DIMENSION)).T
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
    starts = np.cumsum([0, *(len(text) + len(BREAK) for text in texts)]).tolist()
    chunks = tuple(
        Chunk(
            id=chunk_id(id, chunk_text, texts[:ordinal].count(chunk_text)),
            document_id=id,
            ordinal=ordinal,
            text=chunk_text,
            start=starts[ordinal],
            end=starts[ordinal] + len(chunk_text),
        )
        for ordinal, chunk_text in enumerate(texts)
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
