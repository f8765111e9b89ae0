"""The chunkers compared with known boundaries: texts of a corpus are joined, and chunks should begin where texts do.

The method is from Choi, Advances in domain independent linear text segmentation, NAACL 2000. The table has the
precision, recall and F1 of each chunker. The column `evenly` is the F1 of the same number of boundaries at equal
distances. A boundary is correct if it is at most `--tolerance` characters away. Chunks do not overlap here.

    python -m benchmarks.chunking --texts scifact/corpus.jsonl --texts-a-document 10
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from statistics import mean
from uuid import UUID

from benchmarks.machine import heading
from rag_core.evaluation.boundaries import BoundaryScores, boundary_scores
from rag_core.evaluation.dataset import read_corpus
from rag_core.protocols import Chunker
from rag_core.settings import load_settings
from rag_core.types import Document
from rag_core.wiring.chunking import build_chunker

SPACE = "\n\n"
CHUNKERS: Mapping[str, Sequence[str]] = {
    "sections": ("chunking={type: sections, overlap: 0}",),
    "sentences": ("chunking={type: sentences, overlap: 0}",),
    "fixed": ("chunking={type: fixed, overlap: 0}",),
    "semantic": ("chunking={type: semantic}",),
    "clinical": ("chunking={type: clinical, overlap: 0}",),
}


@dataclass(frozen=True)
class JoinedTexts:
    """A document of several texts. `boundaries` are the starts of all texts except the first."""

    document: Document
    boundaries: list[int]


def main() -> None:
    arguments = _arguments()
    joined = list(_join_texts(arguments.texts, arguments.documents, arguments.texts_a_document))
    mean_boundaries = mean(len(text.boundaries) for text in joined)
    print(heading())
    print(f"{len(joined)} documents of {mean_boundaries + 1:g} texts; tolerance {arguments.tolerance} characters")
    print("chunker    boundaries  precision  recall     F1  evenly     MB/s")
    for name, overrides in CHUNKERS.items():
        _report(name, build_chunker(load_settings(None, "default", overrides, {})), joined, arguments.tolerance)


def _report(name: str, chunker: Chunker, joined: Sequence[JoinedTexts], tolerance: int) -> None:
    chunker.split(UUID(int=0), joined[0].document)  # loads its model
    began = time.perf_counter()
    boundaries = [[chunk.start for chunk in chunker.split(UUID(int=0), text.document)][1:] for text in joined]
    seconds = time.perf_counter() - began
    scores = _mean(boundaries, joined, tolerance)
    even_scores = _mean(list(map(_even_boundaries, boundaries, joined)), joined, tolerance)
    rate = sum(len(text.document.text) for text in joined) / seconds / 1e6
    figures = f"{scores.precision:10.3f} {scores.recall:7.3f} {scores.f1:6.3f} {even_scores.f1:7.3f} {rate:8.2f}"
    print(f"{name:9} {mean(map(len, boundaries)):11.1f} {figures}")


def _mean(boundaries: Sequence[Sequence[int]], joined: Sequence[JoinedTexts], tolerance: int) -> BoundaryScores:
    scores = [
        boundary_scores(starts, text.boundaries, tolerance) for starts, text in zip(boundaries, joined, strict=True)
    ]
    return BoundaryScores(*(mean(getattr(score, name) for score in scores) for name in ("precision", "recall", "f1")))


def _even_boundaries(boundaries: Sequence[int], joined: JoinedTexts) -> list[int]:
    step = len(joined.document.text) / (len(boundaries) + 1)
    return [round(step * (n + 1)) for n in range(len(boundaries))]


def _join_texts(corpus: Path, documents: int, texts: int) -> Iterator[JoinedTexts]:
    bodies = (document.text.strip() for document in read_corpus(corpus))
    for number in range(documents):
        document_texts = list(islice(filter(None, bodies), texts))
        if len(document_texts) < texts:
            return
        starts = list(accumulate((len(text) + len(SPACE) for text in document_texts), initial=0))[1:-1]
        text = SPACE.join(document_texts)
        yield JoinedTexts(Document(uri=f"file:///{number}.txt", text=text, media_type="text/plain"), starts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="a corpus.jsonl in BEIR's layout")
    parser.add_argument("--documents", type=int, default=50, help="maximum number of documents")
    parser.add_argument("--texts-a-document", type=int, default=10)
    parser.add_argument("--tolerance", type=int, default=20, help="characters")
    return parser.parse_args()


if __name__ == "__main__":
    main()
