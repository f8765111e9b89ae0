"""BM25 over the candidates alone, with the terms of the lexical index."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import log

from anyio import to_thread
from rank_bm25 import BM25Okapi

from rag_core.text.analysis import terms


class LexicalReranker:
    """`language`, an ISO 639-1 code, names the stemmer and the stop words."""

    def __init__(self, language: str) -> None:
        self._language = language

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """In a thread, which goes on by itself when the caller is cancelled."""
        scoring = partial(_scores, question, texts, self._language)
        return await to_thread.run_sync(scoring, abandon_on_cancel=True)


class _LuceneBM25(BM25Okapi):  # type: ignore[misc]
    """With Lucene's idf, ln(1 + (N - df + 1/2) / (df + 1/2)). Okapi's is zero or less for a term of half of the
    texts, and of a handful of candidates most terms are such."""

    def _calc_idf(self, nd: Mapping[str, int]) -> None:
        self.idf = {term: log(1 + (self.corpus_size - df + 0.5) / (df + 0.5)) for term, df in nd.items()}


def _scores(question: str, texts: Sequence[str], language: str) -> list[float]:
    analysed = [terms(text, language) for text in texts]
    if not any(analysed):  # no length to measure the others by
        return [0.0] * len(texts)
    scores: list[float] = _LuceneBM25(analysed).get_scores(terms(question, language)).tolist()
    return scores
