"""Given vectors compared with our own: does a document that brings its vectors rank as one that we embed?

The documents of a dataset are ingested twice: as texts, which are split and embedded, and as JSON lines with the same
chunks and with vectors that the library sentence-transformers computed from them. The floor is the first ingest.

    python -m benchmarks.given DATASET --documents 2000 --questions 300
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from sentence_transformers import SentenceTransformer

from benchmarks.json_lines import json_lines
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core import KnowledgeBase, open_knowledge_base
from rag_core.evaluation.dataset import read_corpus
from rag_core.evaluation.question import CorpusDocument
from rag_core.ingestion.report import SyncReport
from rag_core.models.encoders.model_files import find_model_folder
from rag_core.settings import load_settings
from rag_core.types import Document
from rag_core.wiring.chunking import build_chunker

OURS, GIVEN = "ours", "given"
MODEL = "all-MiniLM-L6-v2"
K = 10
NO_ID = UUID(int=0)


def main() -> None:
    arguments = _arguments()
    print(heading())
    documents = list(read_corpus(arguments.dataset / "corpus.jsonl"))[: arguments.documents]
    questions = [line["text"] for line in json_lines(arguments.dataset / "queries.jsonl")][: arguments.questions]
    with scratch_folder() as scratch, server_in(scratch) as dsn, open_knowledge_base(dsn) as kb:
        lines = scratch / "documents.jsonl"
        began = time.perf_counter()
        lines.write_text("".join(json.dumps(line) + "\n" for line in _embed_outside(documents)))
        print(f"{len(documents)} documents embedded outside in {time.perf_counter() - began:.1f} s")
        ours = _time_ingest(OURS, lambda: kb.add([_to_document(document) for document in documents], OURS))
        given = _time_ingest(GIVEN, lambda: kb.ingest(f"jsonl:{lines}", collection=GIVEN))
        print(f"given / ours: {given / ours:.2f} of the time")
        _compare_rankings(kb, questions)


def _to_document(document: CorpusDocument) -> Document:
    return Document(uri=document.id, title=document.title, text=document.text)


def _embed_outside(documents: Sequence[CorpusDocument]) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects of the documents, with the chunks of the default profile and vectors of the library."""
    chunker, model = build_chunker(load_settings()), SentenceTransformer(str(find_model_folder(MODEL)))
    split = [chunker.split(NO_ID, _to_document(document)) for document in documents]
    texts = [chunk.embedded_text for chunks in split for chunk in chunks]
    vectors = iter(model.encode(texts, normalize_embeddings=True))
    for document, chunks in zip(documents, split, strict=True):
        yield {
            "id": document.id,
            "title": document.title,
            "text": document.text,
            "model": MODEL,
            "chunks": [
                {"start": chunk.start, "end": chunk.end, "prefix": chunk.prefix, "vector": next(vectors).tolist()}
                for chunk in chunks
            ],
        }


def _time_ingest(collection: str, ingest: Callable[[], SyncReport]) -> float:
    """Prints the counts of an ingest, and returns its seconds."""
    began = time.perf_counter()
    report = ingest()
    seconds = time.perf_counter() - began
    counts = ", ".join(f"{count} {name}" for name, count in report.chunks.items())
    print(f"{collection}: {report.documents['completed']} documents in {seconds:.1f} s; chunks: {counts}")
    for failure in report.failures[:3]:
        print(f"  {failure['uri']}: {failure['reason']}")
    return seconds


def _compare_rankings(kb: KnowledgeBase, questions: Sequence[str]) -> None:
    rankings = [(_rank(kb, question, OURS), _rank(kb, question, GIVEN)) for question in questions]
    first = sum(ours[:1] == given[:1] for ours, given in rankings)
    sets = sum(set(ours) == set(given) for ours, given in rankings)
    equal = sum(ours == given for ours, given in rankings)
    print(
        f"of {len(questions)} questions: {first} have the same first hit, {sets} the same {K} hits, "
        f"{equal} the same {K} hits in the same order"
    )


def _rank(kb: KnowledgeBase, question: str, collection: str) -> list[tuple[str, int]]:
    """The title and the position of each hit."""
    return [(hit.origin.title, hit.chunk.start) for hit in kb.search(question, K, collection)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, metavar="DATASET")
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=300)
    return parser.parse_args()


if __name__ == "__main__":
    main()
