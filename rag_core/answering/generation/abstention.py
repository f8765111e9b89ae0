"""How likely it is that what was found answers at all: a measure that holds from one corpus to another.

.5 cosine of the best hit + .5 of the best share of the question's idf in a passage + the gap between the first cosine
and the 20th, which is what anything of this corpus has to do with the question. Below .6 to .7 an answer is a guess.
"""

from collections.abc import Sequence

from rag_core.types import Hit

BACKGROUND = 20
"""The rank of what is taken for unrelated; with fewer the last one is."""

SENTENCES_GAP = 0.5
"""What a gap between sentences counts. They lie further apart than chunks do: counted fully, 39 % of COVID-QA's
questions are refused by a store of XQuAD, and 79 % by half, of its own ones 1 % (84 and 2 % with dense scores)."""


def confidence(hits: Sequence[Hit], cosines: Sequence[float], coverage: float) -> float:
    """From 0 to about 2. `cosines` are of sentences, and stand in for those of hits that no dense leg has scored.

    Without any the coverage, the best share of the question's idf in a passage, is all that is known.
    """
    if hits and "dense" in hits[0].scores:
        known = [hit.scores["dense"] for hit in hits if "dense" in hit.scores]
        return 0.5 * known[0] + 0.5 * coverage + _gap(known)
    if len(cosines):
        return 0.5 * max(cosines) + 0.5 * coverage + SENTENCES_GAP * _gap(cosines)
    return coverage


def _gap(cosines: Sequence[float]) -> float:
    """A single one is as far from nothing as it is."""
    first, *others = sorted(cosines, reverse=True)[:BACKGROUND]
    return first - others[-1] if others else first
