"""A reranker by BM25 whose statistics are those of the candidates alone. Its terms are those of the lexical index."""

from collections.abc import Mapping, Sequence
from math import log

from anyio import to_thread
from rank_bm25 import BM25Okapi

from rag_core.text.analysis import terms


class LexicalReranker:
    """BM25 with the stemmer and the stop words of `language`, an ISO 639-1 code."""

    def __init__(self, language: str) -> None:
        self._language = language

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Scores in a thread. If the caller is cancelled, it returns at once, and the thread still finishes."""
        return await to_thread.run_sync(_score_texts, question, texts, self._language, abandon_on_cancel=True)


class _LuceneBM25(BM25Okapi):  # type: ignore[misc]
    """BM25 with Lucene's idf, ln(1 + (N - df + 1/2) / (df + 1/2)).

    Okapi's idf is zero or negative for terms in half of the texts or more. Among a few candidates, most terms are that
    frequent.
    """

    def _calc_idf(self, nd: Mapping[str, int]) -> None:
        self.idf = {term: log(1 + (self.corpus_size - df + 0.5) / (df + 0.5)) for term, df in nd.items()}


def _score_texts(question: str, texts: Sequence[str], language: str) -> list[float]:
    documents = [terms(text, language) for text in texts]
    if not any(documents):  # the mean length would be 0
        return [0.0] * len(texts)
    scores: list[float] = _LuceneBM25(documents).get_scores(terms(question, language)).tolist()
    return scores
