"""BEIR: corpus.jsonl, queries.jsonl, and a file of grades for each split (github.com/beir-cellar/beir)."""

from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import read_corpus, read_qrels, read_queries
from rag_core.evaluation.imports.imported import ImportedDataset


def read_beir(source: Path) -> ImportedDataset:
    splits = sorted((source / "qrels").glob("*.tsv"))
    if not splits:
        raise DatasetError(f"{source} must contain qrels/SPLIT.tsv, such as qrels/test.tsv")
    return ImportedDataset(
        corpus=list(read_corpus(source / "corpus.jsonl")),
        queries=read_queries(source / "queries.jsonl"),
        qrels={path.stem: read_qrels(path) for path in splits},
    )
