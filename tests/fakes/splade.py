"""A weigher that a test's settings can name: `{type: python, object: "fakes.splade:WordWeights"}`."""

from collections.abc import Sequence

from drafts import weights

from rag_core.types import TermWeights


class WordWeights:
    """A weigher with the same word weights as `drafts`. The test chooses `fingerprint`."""

    def __init__(self, fingerprint: str = "one") -> None:
        self.fingerprint = fingerprint

    def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        return [weights(text) for text in texts]

    def weigh_questions(self, texts: Sequence[str]) -> list[TermWeights]:
        return [weights(text) for text in texts]
