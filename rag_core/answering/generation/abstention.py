"""The confidence that the hits answer the question at all, on a scale that holds from one corpus to another.

confidence = 0.5 * cosine of the best hit + 0.5 * coverage + gap. The coverage is the largest share of the question's
idf in one passage. The gap is the first cosine less the 20th, which even unrelated texts of the corpus reach.
Below 0.6 to 0.7 an answer is a guess.
"""

from collections.abc import Sequence

from rag_core.types import Hit

BACKGROUND_RANK = 20
"""The rank of the cosine that counts as unrelated; if there are fewer, the last one does."""

SENTENCE_GAP_WEIGHT = 0.5
"""The weight of a gap between sentences, whose cosines differ more than those of chunks. A store of XQuAD refuses 39 %
of COVID-QA's questions with weight 1, and 79 % with 0.5, and 1 % of its own (with dense scores 84 % and 2 %)."""


def confidence(hits: Sequence[Hit], cosines: Sequence[float], coverage: float) -> float:
    """The confidence, from 0 to about 2.

    `cosines` are those of sentences; they replace the scores of hits if no dense leg ran. Without any cosines the
    confidence is the coverage alone.
    """
    if hits and "dense" in hits[0].scores:
        dense = [hit.scores["dense"] for hit in hits if "dense" in hit.scores]
        return 0.5 * dense[0] + 0.5 * coverage + _gap(dense)
    if len(cosines):
        return 0.5 * max(cosines) + 0.5 * coverage + SENTENCE_GAP_WEIGHT * _gap(cosines)
    return coverage


def _gap(cosines: Sequence[float]) -> float:
    """The first cosine less the background's; a single one less 0."""
    first, *others = sorted(cosines, reverse=True)[:BACKGROUND_RANK]
    return first - others[-1] if others else first
