"""The simplest possible hybrid as a TREC run: the baseline for `rag evaluate --against RUN`.

It ranks whole documents, title and text, truncated at the end of the model's window. One leg is the cosines of MiniLM,
the other the scores of bm25s (Snowball's English stems, bm25s' English stop words). The 100 best of each leg are
min-max scaled and summed in a few lines of numpy. A document that a leg did not find has score 0 in it.

    python -m benchmarks.plain_fusion DATASET run.trec
    rag evaluate DATASET --against run.trec
"""

import argparse
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from benchmarks.machine import heading
from jobs.machine import CPUS
from rag_core.config import BertEmbedder
from rag_core.evaluation.dataset import Dataset, Run, read_corpus, read_dataset, write_run
from rag_core.wiring.embedding import build_encoder

Scores = NDArray[np.float32]

DEPTH = 100


def main() -> None:
    arguments = _arguments()
    print(heading())
    dataset = read_dataset(arguments.dataset)
    corpus = list(read_corpus(arguments.dataset / "corpus.jsonl"))
    texts = [f"{document.title}\n{document.text}" for document in corpus]
    questions = [question.text for question in dataset.questions]
    fused = _fuse([_cosines(texts, questions), _bm25(texts, questions)])
    run = _run(dataset, [document.id for document in corpus], fused)
    write_run(arguments.run, run, "plain")


def _cosines(texts: list[str], questions: list[str]) -> Scores:
    """Shape (questions, documents), like all scores in this module."""
    model = build_encoder(BertEmbedder(type="bert", model="all-MiniLM-L6-v2"), CPUS)
    cosines: Scores = model.embed_questions(questions) @ model.embed(texts).T
    return cosines


def _bm25(texts: list[str], questions: list[str]) -> Scores:
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(questions, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
    return np.stack([index.get_scores(words) for words in tokens])


def _fuse(legs: list[Scores]) -> Scores:
    return np.sum([_scale(scores) for scores in legs], axis=0)


def _scale(scores: Scores) -> Scores:
    depth = min(DEPTH, scores.shape[1])
    threshold = np.partition(scores, -depth, axis=1)[:, -depth][:, None]
    best = scores.max(axis=1, keepdims=True)
    return np.where(scores >= threshold, (scores - threshold) / np.maximum(best - threshold, 1e-9), 0)


def _run(dataset: Dataset, ids: list[str], fused: Scores) -> Run:
    best = np.argsort(-fused, axis=1, kind="stable")[:, :DEPTH].tolist()
    return {
        question.id: {ids[index]: float(row[index]) for index in indexes}
        for question, row, indexes in zip(dataset.questions, fused, best, strict=True)
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="a folder in BEIR's layout")
    parser.add_argument("run", type=Path, help="the file to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
