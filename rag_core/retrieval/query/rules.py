"""Understanding by rules, without a language model: variants of the question from the history."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_core.types import Message, Query, Understanding, Variant, VariantName

MAX_VARIANT_CHARS = 1_000
"""The longest text of a variant from the history, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantWeights:
    """The weights of the variants in the fusion; a variant with weight 0 is not searched."""

    question: float = 1.0
    previous: float = 0.5
    answer: float = 0.5
    first: float = 0.5


@dataclass(frozen=True, slots=True)
class RuleUnderstander:
    """Searches the question together with earlier messages, each as a variant of its own."""

    weights: VariantWeights = VariantWeights()

    async def understand(self, query: Query, history: Sequence[Message]) -> Understanding:
        if not history:
            return Understanding(standalone=query.text)
        variants = tuple(list_variants(query.text, history, self.weights))
        return Understanding(standalone=query.text, variants=variants, method="rules")


def list_variants(question: str, history: Sequence[Message], weights: VariantWeights) -> Iterator[Variant]:
    """Yields the question and the variants with a weight. A text that occurs twice has the weight of the first."""
    said = [message.text for message in history if message.role == "user"]
    answers = [message.text for message in history if message.role == "assistant"]
    texts: list[tuple[VariantName, str, float]] = [
        ("question", question, weights.question),
        ("previous", said[-1] if said else "", weights.previous),
        ("answer", answers[-1] if answers else "", weights.answer),
        ("first", said[0] if said else "", weights.first),
    ]
    searched = set[str]()
    for name, text, weight in texts:
        if text.strip() and weight and text not in searched:
            searched.add(text)
            yield Variant(name=name, text=text if name == "question" else text[:MAX_VARIANT_CHARS], weight=weight)
