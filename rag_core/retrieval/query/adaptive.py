"""The weights of a conversation's history in the search, by how its subject has changed."""

from dataclasses import replace

from rag_core.types import Understanding, VariantName

SETTLED_TURNS = 5
"""The turns after which a subject is stable."""

_FROM_HISTORY: frozenset[VariantName] = frozenset(("carried", "previous", "answer", "first"))


def stability(turns_since_shift: int) -> float:
    """A number that rises from 0, at a change of the subject, to 1 after five turns."""
    return min(1.0, turns_since_shift / SETTLED_TURNS)


def leave_subject(question: str, understanding: Understanding, weight: float) -> Understanding:
    """The understanding of a question that changes the subject, with the history's weights multiplied by `weight`.

    Rules carry nothing over into it. A model's own rewrite stays, because the model has read the history.
    """
    scaled = [
        replace(variant, weight=variant.weight * weight) if variant.name in _FROM_HISTORY else variant
        for variant in understanding.variants
    ]
    changed = replace(understanding, variants=tuple(variant for variant in scaled if variant.weight), is_shift=True)
    return changed if understanding.method == "llm" else replace(changed, standalone=question, resolved={})
