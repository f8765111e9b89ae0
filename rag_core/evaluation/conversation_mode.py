"""The ways to search a question that has a history."""

from collections.abc import Sequence
from enum import StrEnum

from rag_core.evaluation.question import Question
from rag_core.types import Variant


class ConversationMode(StrEnum):
    """`raw` searches the question alone, `rewritten` what the profile makes of it in words that need no history.

    `fused` searches as users are served: the question and its variants. `gold` searches the question and the dataset's
    own rewrite, as with a language model that returns this rewrite.
    """

    raw = "raw"
    rewritten = "rewritten"
    fused = "fused"
    gold = "gold"


def list_gold_variants(question: Question) -> Sequence[Variant]:
    """The question and its rewrite, with equal weights; none if they are equal, or if there is no rewrite."""
    if question.rewrite in ("", question.text):
        return ()
    return (
        Variant(name="question", text=question.text, weight=1.0),
        Variant(name="rewrite", text=question.rewrite, weight=1.0),
    )
