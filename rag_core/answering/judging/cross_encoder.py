"""A classifier reads passage and claim together: for entailment, or for hallucinations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rag_core.answering.judging.statements import Statement, premise, statements
from rag_core.answering.judging.verdicts import Thresholds, claim, verdict
from rag_core.errors import ConfigError
from rag_core.models.cross_encoder import loaded_cross_encoder, logits
from rag_core.models.shared import Scoring, SharedModel
from rag_core.protocols import Pair, PairScorer
from rag_core.types import Answer, Claim, Passage, Verdict

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder

METHOD = "cross-encoder"


@dataclass(frozen=True, slots=True)
class Classifier:
    """`supported` is the class that means so, of a model that has several."""

    model: "CrossEncoder"
    supported: int

    def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
        """Of pairs of passage and claim."""
        scores = logits(self.model, pairs)
        several = scores.ndim > 1
        likely = scores.softmax(dim=-1)[:, self.supported] if several else scores.sigmoid()
        probabilities: list[float] = likely.tolist()
        return probabilities


class CrossEncoderJudge:
    """A claim's score is the probability that the passage which supports it best does so: the sigmoid of the one
    logit, or the softmax's share of the class that means supported."""

    def __init__(self, pairs: PairScorer, thresholds: Thresholds) -> None:
        self._pairs, self._thresholds = pairs, thresholds

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        stated = statements(answer, passages)
        pairs = [(premise(passage), each.text) for each in stated for passage in each.passages]
        scores = iter(await self._pairs.score(pairs))
        return verdict([self._claim(each, [next(scores) for _ in each.passages]) for each in stated], METHOD)

    def _claim(self, statement: Statement, scores: Sequence[float]) -> Claim:
        score = max(scores, default=0.0)
        return claim(statement, self._thresholds.grade(score), score)


def classifier_pairs(loading: Callable[[], Classifier], batch_size: int) -> SharedModel[Classifier]:
    """Scores are the probabilities that a passage supports a claim."""
    return SharedModel("judge", loading, _scoring, batch_size)


def classifier(folder: Path, weights: "torch.dtype", device: str, label: str) -> Classifier:
    """ModelError if it cannot be loaded; ConfigError if it has several classes and none is named so."""
    model = loaded_cross_encoder(folder, weights, device)
    labels = [str(name) for _, name in sorted(model.config.id2label.items())]
    if model.num_labels == 1:
        return Classifier(model, 0)
    places = {name.lower(): place for place, name in enumerate(labels)}
    if label.lower() not in places:
        raise ConfigError(f"guard.judge.label must be one of {', '.join(labels)}, got {label}")
    return Classifier(model, places[label.lower()])


def _scoring(model: Classifier, _pairs: Sequence[Pair]) -> Scoring:
    return model.probabilities
