"""BM25 scores of other libraries, over the same terms."""

from collections.abc import Sequence
from math import log

import bm25s
import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from rag_core.storage.lexical.parameters import Bm25


def rank_bm25_scores(chunks: Sequence[Sequence[str]], question: Sequence[str], bm25: Bm25) -> NDArray[np.float64]:
    """The scores of rank_bm25, with Lucene's idf. Its own idf depends on the whole vocabulary."""
    oracle = BM25Okapi([list(chunk) for chunk in chunks], k1=bm25.k1, b=bm25.b)
    document_counts = {term: sum(term in frequencies for frequencies in oracle.doc_freqs) for term in question}
    oracle.idf = {term: log(1 + (len(chunks) - n + 0.5) / (n + 0.5)) for term, n in document_counts.items()}
    scores: NDArray[np.float64] = oracle.get_scores(list(question))
    return scores


def bm25s_scores(chunks: Sequence[Sequence[str]], question: Sequence[str], bm25: Bm25) -> NDArray[np.float64]:
    """The scores of bm25s, times k1 + 1: its method `lucene` leaves out this constant factor."""
    oracle = bm25s.BM25(k1=bm25.k1, b=bm25.b, method="lucene", dtype="float64")
    oracle.index([list(chunk) for chunk in chunks], show_progress=False)
    scores: NDArray[np.float64] = oracle.get_scores(list(question))
    return scores * (bm25.k1 + 1)
