"""Texts joined into documents with known boundaries: chunks should begin where texts do.

The method is from Choi, Advances in domain independent linear text segmentation, NAACL 2000.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from statistics import fmean
from uuid import UUID

from rag_core.evaluation.boundaries import BoundaryScores, boundary_scores
from rag_core.protocols import Chunker
from rag_core.types import Document

SPACE = "\n\n"


@dataclass(frozen=True, slots=True)
class JoinedTexts:
    """A document of several texts. `boundaries` are the starts of all texts except the first."""

    document: Document
    boundaries: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkBoundaries:
    """The mean scores of a chunker over documents, and those of as many boundaries at equal distances.

    `predicted` is the mean number of boundaries of a document.
    """

    predicted: float
    scores: BoundaryScores
    evenly: BoundaryScores


def join_texts(texts: Iterable[str], documents: int, texts_a_document: int) -> Iterator[JoinedTexts]:
    """Yields at most so many documents, each of different texts. Texts that are left over are not used."""
    bodies = filter(None, (text.strip() for text in texts))
    for number in range(documents):
        parts = list(islice(bodies, texts_a_document))
        if len(parts) < texts_a_document:
            return
        starts = list(accumulate((len(text) + len(SPACE) for text in parts), initial=0))[1:-1]
        document = Document(uri=f"file:///{number}.txt", text=SPACE.join(parts), media_type="text/plain")
        yield JoinedTexts(document, starts)


def measure_boundaries(chunker: Chunker, joined: Sequence[JoinedTexts], tolerance: int) -> ChunkBoundaries:
    """A boundary is right if it is at most `tolerance` characters away. The chunks should not overlap."""
    starts = [[chunk.start for chunk in chunker.split(UUID(int=0), text.document)][1:] for text in joined]
    return ChunkBoundaries(
        predicted=fmean(map(len, starts)),
        scores=_average_scores(starts, joined, tolerance),
        evenly=_average_scores(list(map(_space_evenly, starts, joined)), joined, tolerance),
    )


def _average_scores(starts: Sequence[Sequence[int]], joined: Sequence[JoinedTexts], tolerance: int) -> BoundaryScores:
    scores = [
        boundary_scores(boundaries, text.boundaries, tolerance) for boundaries, text in zip(starts, joined, strict=True)
    ]
    return BoundaryScores(*(fmean(getattr(score, name) for score in scores) for name in ("precision", "recall", "f1")))


def _space_evenly(boundaries: Sequence[int], joined: JoinedTexts) -> list[int]:
    step = len(joined.document.text) / (len(boundaries) + 1)
    return [round(step * (n + 1)) for n in range(len(boundaries))]
