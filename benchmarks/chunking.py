"""The chunkers compared with known boundaries: texts of a corpus are joined, and chunks should begin where texts do.

The table has the precision, recall and F1 of each chunker. The column `evenly` is the F1 of the same number of
boundaries at equal distances. A boundary is correct if it is at most `--tolerance` characters away. Chunks do not
overlap here. `rag dataset boundaries` measures the chunker of a profile in the same way.

    python -m benchmarks.chunking --texts scifact/corpus.jsonl --texts-a-document 10
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from uuid import UUID

from benchmarks.machine import heading
from rag_core.evaluation.dataset import read_corpus
from rag_core.evaluation.joined_texts import JoinedTexts, join_texts, measure_boundaries
from rag_core.protocols import Chunker
from rag_core.settings import load_settings
from rag_core.wiring.chunking import build_chunker

CHUNKERS: Mapping[str, Sequence[str]] = {
    "sections": ("chunking={type: sections, overlap: 0}",),
    "sentences": ("chunking={type: sentences, overlap: 0}",),
    "fixed": ("chunking={type: fixed, overlap: 0}",),
    "semantic": ("chunking={type: semantic}",),
    "clinical": ("chunking={type: clinical, overlap: 0}",),
}


def main() -> None:
    arguments = _arguments()
    texts = (document.text for document in read_corpus(arguments.texts))
    joined = list(join_texts(texts, arguments.documents, arguments.texts_a_document))
    mean_boundaries = mean(len(text.boundaries) for text in joined)
    print(heading())
    print(f"{len(joined)} documents of {mean_boundaries + 1:g} texts; tolerance {arguments.tolerance} characters")
    print("chunker    boundaries  precision  recall     F1  evenly     MB/s")
    for name, overrides in CHUNKERS.items():
        _report(name, build_chunker(load_settings(None, "default", overrides, {})), joined, arguments.tolerance)


def _report(name: str, chunker: Chunker, joined: Sequence[JoinedTexts], tolerance: int) -> None:
    chunker.split(UUID(int=0), joined[0].document)  # loads its model
    began = time.perf_counter()
    measured = measure_boundaries(chunker, joined, tolerance)
    rate = sum(len(text.document.text) for text in joined) / (time.perf_counter() - began) / 1e6
    scores = measured.scores
    figures = f"{scores.precision:10.3f} {scores.recall:7.3f} {scores.f1:6.3f} {measured.evenly.f1:7.3f} {rate:8.2f}"
    print(f"{name:9} {measured.predicted:11.1f} {figures}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="a corpus.jsonl in BEIR's layout")
    parser.add_argument("--documents", type=int, default=50, help="maximum number of documents")
    parser.add_argument("--texts-a-document", type=int, default=10)
    parser.add_argument("--tolerance", type=int, default=20, help="characters")
    return parser.parse_args()


if __name__ == "__main__":
    main()
