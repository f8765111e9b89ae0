"""BEIR: corpus.jsonl, queries.jsonl, and a file of grades for each split (github.com/beir-cellar/beir).

The questions of a split can be in `queries_SPLIT.jsonl`.
"""

from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import read_corpus, read_qrels, read_queries
from rag_core.evaluation.imports.imported_dataset import ImportedDataset


def read_beir(source: Path) -> ImportedDataset:
    splits = sorted((source / "qrels").glob("*.tsv"))
    if not splits:
        raise DatasetError(f"{source} must contain qrels/SPLIT.tsv, such as qrels/test.tsv")
    return ImportedDataset(
        corpus=list(read_corpus(source / "corpus.jsonl")),
        queries=_read_all_queries(source),
        qrels={path.stem: read_qrels(path) for path in splits},
    )


def _read_all_queries(source: Path) -> dict[str, str]:
    queries: dict[str, str] = {}
    for path in (source / "queries.jsonl", *sorted(source.glob("queries_*.jsonl"))):
        for id, text in read_queries(path).items():
            if queries.setdefault(id, text) != text:
                raise DatasetError(f"{path}: question {id!r} has another text in an earlier file")
    return queries
