"""The detection of topic shifts in a session."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from rag_core.retrieval.query.adaptive import stability
from rag_core.retrieval.query.topic_shift import cosine_with_mean
from rag_core.settings import load_settings
from rag_core.types import Matrix
from rag_core.wiring.embedding import load_shared_encoder


@dataclass(frozen=True)
class DriftDetector:
    """A shift is a question whose cosine with the mean of the last `drift_window` questions is below the threshold.

    The questions are encoded with the embedding model of the profile.
    """

    shift_threshold: Annotated[float, Field(ge=-1, le=1)] = 0.4
    drift_window: Annotated[int, Field(ge=1)] = 3

    def detect(self, query: str, history: Sequence[str] = ()) -> dict[str, Any]:
        """Compares the question with the user's earlier ones, oldest first.

        Returns `similarity`, `drift_score` (1 - similarity), `is_shift`, `turns_since_shift` and `stability`, which is
        the number of turns since the last shift, divided by 5, at most 1. The first question is not a shift.
        """
        encoder = load_shared_encoder(load_settings().embedding)
        similarities = self._compare(encoder.embed_questions([*history, query]))
        shifts = [similarity < self.shift_threshold for similarity in similarities]
        turns = next((turns for turns, is_shift in enumerate(reversed(shifts)) if is_shift), len(history))
        return {
            "similarity": similarities[-1],
            "drift_score": 1 - similarities[-1],
            "is_shift": shifts[-1],
            "turns_since_shift": turns,
            "stability": stability(turns),
        }

    def _compare(self, vectors: Matrix) -> list[float]:
        """The similarity of each question with those before it; 1 for the first."""
        windows = (vectors[max(0, index - self.drift_window) : index] for index in range(1, len(vectors)))
        pairs = zip(vectors[1:], windows, strict=True)
        return [1.0, *(cosine_with_mean(vector, window) for vector, window in pairs)]
