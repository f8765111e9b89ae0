"""Chunkers against known boundaries: texts of a corpus are joined, and a chunk should begin where one of them does.

(Choi, Advances in domain independent linear text segmentation, NAACL 2000.) Beside each chunker's precision, recall and
F1 stands the F1 of as many boundaries at equal distances: what its number alone is worth. A boundary counts that is at
most `--tolerance` characters away. Chunks do not overlap here.

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
class Joined:
    """`boundaries` are where all texts but the first begin."""

    document: Document
    boundaries: list[int]


def main() -> None:
    arguments = _arguments()
    joined = list(_joined(arguments.texts, arguments.documents, arguments.texts_a_document))
    true = mean(len(each.boundaries) for each in joined)
    print(f"{heading()}\n{len(joined)} documents of {true + 1:g} texts; tolerance {arguments.tolerance} characters")
    print("chunker    boundaries  precision  recall     F1  evenly     MB/s")
    for name, overrides in CHUNKERS.items():
        _report(name, build_chunker(load_settings(None, "default", overrides, {})), joined, arguments.tolerance)


def _report(name: str, chosen: Chunker, joined: Sequence[Joined], tolerance: int) -> None:
    chosen.split(UUID(int=0), joined[0].document)  # loads what it needs
    began = time.perf_counter()
    found = [[chunk.start for chunk in chosen.split(UUID(int=0), each.document)][1:] for each in joined]
    seconds = time.perf_counter() - began
    own, evenly = _mean(found, joined, tolerance), _mean(list(map(_evenly, found, joined)), joined, tolerance)
    rate = sum(len(each.document.text) for each in joined) / seconds / 1e6
    measured = f"{own.precision:10.3f} {own.recall:7.3f} {own.f1:6.3f} {evenly.f1:7.3f} {rate:8.2f}"
    print(f"{name:9} {mean(map(len, found)):11.1f} {measured}")


def _mean(found: Sequence[Sequence[int]], joined: Sequence[Joined], tolerance: int) -> BoundaryScores:
    scores = [boundary_scores(own, each.boundaries, tolerance) for own, each in zip(found, joined, strict=True)]
    return BoundaryScores(*(mean(getattr(each, name) for each in scores) for name in ("precision", "recall", "f1")))


def _evenly(found: Sequence[int], joined: Joined) -> list[int]:
    step = len(joined.document.text) / (len(found) + 1)
    return [round(step * (n + 1)) for n in range(len(found))]


def _joined(corpus: Path, documents: int, texts: int) -> Iterator[Joined]:
    bodies = (document.text.strip() for document in read_corpus(corpus))
    for number in range(documents):
        own = list(islice(filter(None, bodies), texts))
        if len(own) < texts:
            return
        starts = list(accumulate((len(text) + len(SPACE) for text in own), initial=0))[1:-1]
        text = SPACE.join(own)
        yield Joined(Document(uri=f"file:///{number}.txt", text=text, media_type="text/plain"), starts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="a corpus.jsonl in BEIR's layout")
    parser.add_argument("--documents", type=int, default=50, help="how many at the most")
    parser.add_argument("--texts-a-document", type=int, default=10)
    parser.add_argument("--tolerance", type=int, default=20, help="characters")
    return parser.parse_args()


if __name__ == "__main__":
    main()
